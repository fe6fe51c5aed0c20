"""The parts that a set of data was divided into by those who made it."""

from __future__ import annotations

PARTS = ("train", "test")


def check_part(part: str) -> str:
    """The name of the part; ValueError if it is none."""
    if part not in PARTS:
        raise ValueError(f"The data have the parts {' and '.join(PARTS)}; {part!r} was asked for.")
    return part
