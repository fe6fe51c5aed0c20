"""What the user asks for: how many seeds, how large, and a policy by name or file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from simfloat.policy import Policy, policies
from simfloat.policy.policy import unknown

#: Runs that are reported have seeds from here on: steps, margins and learning rates were chosen by looking at runs with
#: smaller ones, and what was chosen on some runs is tested on others.
FIRST_SEED = 1000


class Options(NamedTuple):
    """What the user asked for."""

    tiny: bool = False
    seeds: int = 2  # how many
    policy: Policy | None = None  # one policy instead of the experiment's own list

    @property
    def seed_numbers(self) -> range:
        """The seeds themselves."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)


def named_policy(name: str) -> Policy:
    """The preset of that name, or the policy in that TOML file, which is UTF-8 wherever it is read.

    A policy in a file that gives it no name has the file's. Raises ValueError for a name that is neither, and saying
    what is wrong with a file.
    """
    if name in policies:
        return policies[name]
    if not name.endswith(".toml"):
        raise ValueError(f"{unknown(name)} A policy of your own is given as FILE.toml.")
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
    """A file's name as text: bytes that are none become question marks."""
    return name.encode(errors="replace").decode()
