"""The options of the user: the number of seeds, the size, and a policy by name or file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from simfloat.policy import Policy, policies
from simfloat.policy.policy import unknown

#: Reported runs have this seed and larger ones. Steps, margins and learning rates were chosen on smaller seeds, so
#: claims are tested on other runs than those that the choices were made on.
FIRST_SEED = 1000


class Options(NamedTuple):
    """The options of the user."""

    tiny: bool = False
    seeds: int = 2  # how many
    policy: Policy | None = None  # a policy that replaces the experiment's own list

    @property
    def seed_numbers(self) -> range:
        """The seeds."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)


def named_policy(name: str) -> Policy:
    """Return the preset of that name, or the policy in that TOML file, which is read as UTF-8.

    A policy without a name gets the name of its file. Raises ValueError for an unknown name, and for an invalid file
    with the reason.
    """
    if name in policies:
        return policies[name]
    if not name.endswith(".toml"):
        raise ValueError(f"{unknown(name)} Pass your own policy as FILE.toml.")
    try:
        policy = Policy.from_toml(Path(name).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(
            f"There is no file {Path(name).absolute()}. Give the path of a file that Policy.to_toml writes, or a "
            f"preset: {', '.join(policies)}."
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
    return policy if policy.name else Policy.from_dict({**policy.to_dict(), "name": printable(Path(name).stem)})


def printable(name: str) -> str:
    """Return the name of a file as text; invalid bytes become question marks."""
    return name.encode(errors="replace").decode()
