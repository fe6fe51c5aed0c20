"""Queries of a recorder: shell patterns of paths and operations, and a phase."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from simfloat.checks import did_you_mean
from simfloat.telemetry.entries import Key

PHASES = ("forward", "backward", "update")


class Query(NamedTuple):
    """Shell patterns of a path and an operation, and a phase; None for any."""

    path: str | None
    phase: str | None
    operation: str | None

    def is_match(self, key: Key) -> bool:
        """Whether the key matches."""
        return (
            self.phase in (None, key.phase) and matches(self.path, key.path) and matches(self.operation, key.operation)
        )

    def check(self, keys: Iterable[Key]) -> None:
        """Raise ValueError for an unknown phase, and for patterns that match none of the keys if there are any."""
        check_phase(self.phase)
        seen_keys = list(keys)
        check_pattern("path", self.path, (key.path for key in seen_keys))
        check_pattern("operation", self.operation, (key.operation for key in seen_keys))


def check_phase(phase: str | None) -> None:
    """Raise ValueError, with the nearest one, for what is no phase."""
    if phase is not None and phase not in PHASES:
        raise ValueError(f"Unknown phase {phase!r}. Phases: {', '.join(PHASES)}.{did_you_mean(phase, PHASES, 3)}")


def check_pattern(what: str, pattern: str | None, names: Iterable[str] = ()) -> None:
    """Raise ValueError for a pattern that is no text, or that matches none of the names if there are any."""
    if pattern is not None and not isinstance(pattern, str):
        raise ValueError(f"{what} must be a text, such as 'hidden.*', got {pattern!r}.")
    seen_names = list(dict.fromkeys(names))
    if pattern is None or not seen_names or any(matches(pattern, name) for name in seen_names):
        return
    shown = ", ".join(name or "''" for name in seen_names)
    phase = f" {pattern!r} is a phase: pass phase={pattern!r}." if pattern in PHASES else ""
    raise ValueError(
        f"{what} {pattern!r} matches nothing that was seen.{phase}{did_you_mean(pattern, seen_names, 3)} Seen: {shown}."
    )


def matches(pattern: str | None, name: str) -> bool:
    """Whether a name is the pattern, or has it, or there is none."""
    return pattern is None or name == pattern or fnmatchcase(name, pattern)
