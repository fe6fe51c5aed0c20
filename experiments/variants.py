"""The policies that an experiment compares, known by what they are for, whatever their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.scalers import Scaler
from simfloat.policy import Policy, policies


class Variant(NamedTuple):
    """A policy in its part, with its loss scale if it has one: results are grouped by `key`, people read `label`."""

    key: str
    policy: Policy
    label: str
    scaler: Scaler | None = None


def given(policy: Policy, reference: Sequence[Variant]) -> list[Variant]:
    """The user's own policy beside the reference, told apart from it even if it has the same name."""
    name = policy.name or "given"
    taken = {label for variant in reference for label in (variant.key, variant.label)}
    return [*reference, Variant("given", policy, f"{name} (given)" if name in taken else name)]


def named_policy(name: str) -> Policy:
    """The preset of that name, or the policy in that TOML file, which is UTF-8 wherever it is read.

    A policy in a file that gives it no name has the file's. Raises ValueError for a name that is neither, and saying
    what is wrong with a file.
    """
    if name in policies:
        return policies[name]
    if not name.endswith(".toml"):
        raise ValueError(f"Unknown policy {name!r}. Policies: {', '.join(policies)}; or a FILE.toml.")
    try:
        policy = Policy.from_toml(Path(name).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
    return policy if policy.name else Policy.from_dict({**policy.to_dict(), "name": printable(Path(name).stem)})


def printable(name: str) -> str:
    """A file's name as text: bytes that are none become question marks."""
    return name.encode(errors="replace").decode()
