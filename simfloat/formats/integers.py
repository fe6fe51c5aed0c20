"""What passes for an integer: Python's and NumPy's, and no truth value; for a truth value: both of theirs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def is_integer(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """Whether `value` is an integer from `least` to `most`; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)


def as_pythons(value: Any) -> Any:
    """Python's integer or truth value for NumPy's; anything else as it is."""
    return value.item() if isinstance(value, np.integer | np.bool) else value


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError, naming it, for what is no integer of at least `least`."""
    if not is_integer(value, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def check_flags(**flags: Any) -> None:
    """Raise ValueError naming the first that is neither True nor False, as text is not, whatever it says."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool):
            raise ValueError(f"{name} must be True or False, got {value!r}.")
