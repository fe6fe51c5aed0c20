"""Models as text: the tree of their modules, with the number of parameters in each."""

from __future__ import annotations

from collections.abc import Mapping


def tree(kind: str, arguments: str, parts: Mapping[str, str], count: int) -> str:
    """A module in the manner of torch: its parts, as text, by name; a comment counts the parameters at and below it."""
    text = f"{kind}({arguments})"
    if parts:
        inside = [arguments] * bool(arguments) + [f"({name}): {part}" for name, part in parts.items()]
        text = "\n".join([f"{kind}(", *("  " + line.replace("\n", "\n  ") for line in inside), ")"])
    return f"{text}  # {count} parameters" if count else text
