"""What an optimizer's options may be: checks of a value under its name."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

#: Raises ValueError, naming the option, unless the value may be used.
Check = Callable[[str, Any], None]


def number(name: str, value: Any) -> None:
    """A finite real number that float64 holds exactly: options are exact operands of the update."""
    if isinstance(value, bool | np.bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a real number, got {value!r}.")
    try:
        exact = isfinite(value) and float(value) == value
    except OverflowError:  # an integer beyond float64's range
        exact = False
    if not exact:
        raise ValueError(f"{name} must be a finite number that float64 holds exactly, got {value!r}.")


def number_from_zero(name: str, value: Any) -> None:
    """Such a number, and not negative."""
    number(name, value)
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}.")


def flag(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool | np.bool):
        raise ValueError(f"{name} must be True or False, got {value!r}.")
