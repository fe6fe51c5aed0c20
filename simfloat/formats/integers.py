"""What passes for an integer: Python's and NumPy's, and no truth value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def is_integer(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """Whether `value` is an integer from `least` to `most`; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)
