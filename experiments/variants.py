"""The policies that an experiment compares, known by what they are for, whatever their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simfloat.policy import Policy


class Variant(NamedTuple):
    """A policy in its part: results are grouped by `key`, people read `label`."""

    key: str
    policy: Policy
    label: str


def given(policy: Policy, reference: Sequence[Variant]) -> list[Variant]:
    """The user's own policy beside the reference, told apart from it even if it has the same name."""
    name = policy.name or "given"
    taken = {label for variant in reference for label in (variant.key, variant.label)}
    return [*reference, Variant("given", policy, f"{name} (given)" if name in taken else name)]
