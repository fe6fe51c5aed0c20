"""The options of an optimizer, which may differ between its groups of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def group_options(names: Iterable[str], groups: Sequence[Mapping[str, Any]], has_schedule: bool) -> dict[str, Any]:
    """Each option: its value, or where groups differ a tuple of theirs; of the lr that from which a schedule starts."""
    options = {}
    for name in names:
        first = "initial_lr" if name == "lr" and has_schedule else name
        values = [group.get(first, group[name]) for group in groups]
        options[name] = values[0] if all(value == values[0] for value in values) else tuple(values)
    return options
