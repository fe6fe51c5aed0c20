"""Words for a user: what may have been meant by a name that there is not, and where a warning points."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from types import FrameType


def did_you_mean(name: object, known: Iterable[str], most: int = 1) -> str:
    """A sentence for the end of a message, with a space before it: the known names most like this one; else empty."""
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(str(name), list(known), n=most)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def type_name(value: object) -> str:
    """The type of a value as a message names it: with its package where that is another one that has such a name."""
    package = type(value).__module__.partition(".")[0]
    return f"{package}.{type(value).__name__}" if package == "torch" else type(value).__name__


def warn(message: str) -> None:
    """Give a UserWarning that points at the line of the user's from which the library was entered."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
