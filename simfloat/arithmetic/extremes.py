"""The larger and the smaller of two numbers, which is rounded by whoever asks: NaN if one is, and -0 is below +0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def larger(a: NDArray, b: NDArray) -> NDArray:
    """The larger of two numbers: NaN if one is, and +0 of two zeros of unlike signs."""
    return -smaller(-a, -b)


def smaller(a: NDArray, b: NDArray) -> NDArray:
    """The smaller of two numbers: NaN if one is, and -0 of two zeros of unlike signs."""
    a, b = a[()], b[()]  # a single number is a scalar to arrays on any machine
    return np.where(np.isnan(a) | (a < b) | ((a == b) & np.signbit(a)), a, b)


def between(a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """a, but `low` where it is below, and `high` where that is above `high`."""
    return smaller(larger(a, low), high)


def held(a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """a, but `low` where it is below, and `high` where it is above `high`; of zeros of unlike signs a itself."""
    a, low, high = a[()], low[()], high[()]
    return np.where(a < low, low, np.where(a > high, high, a))
