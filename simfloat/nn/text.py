"""Models as text: the tree of their modules, with the number of parameters in each."""

from __future__ import annotations

from collections.abc import Mapping


def tree(kind: str, arguments: str, parts: Mapping[str, str], count: int) -> str:
    """A module in the manner of torch: its parts, as text, by name; a comment counts the parameters at and below it."""
    head, tail = f"{kind}({arguments}", ")"
    if parts:
        lines = [f"({name}): {part}".replace("\n", "\n  ") for name, part in parts.items()]
        head, tail = "\n  ".join([head, *lines]), "\n)"
    return f"{head}{tail}  # {count} parameters" if count else head + tail
