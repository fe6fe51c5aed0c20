"""What a user may have meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str], most: int = 1) -> str:
    """A sentence for the end of a message, with a space before it: the known names most like this one; else empty."""
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(str(name), list(known), n=most)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def type_name(value: object) -> str:
    """The type of a value as a message names it: with its package where that is another one that has such a name."""
    package = type(value).__module__.partition(".")[0]
    return f"{package}.{type(value).__name__}" if package == "torch" else type(value).__name__
