"""The larger and the smaller of two numbers or many, rounded by whoever asks: NaN if one is, and -0 is below +0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array, is_on_gpu


def larger(a: NDArray, b: NDArray) -> NDArray:
    """The larger of two numbers: NaN if one is, and +0 of two zeros of unlike signs."""
    return -smaller(-a, -b)


def smaller(a: NDArray, b: NDArray) -> NDArray:
    """The smaller of two numbers: NaN if one is, and -0 of two zeros of unlike signs."""
    a, b = a[()], b[()]  # a single number is a scalar to arrays on any machine
    # Zeros compare as equal, so their signs decide. A NaN in a is asked for; one in b makes each comparison false,
    # and so is chosen itself.
    return np.where(np.isnan(a) | (a < b) | ((a == b) & np.signbit(a)), a, b)


def largest(rows: NDArray) -> NDArray:
    """The largest number of each row, along the last axis: NaN if one is, and +0 of zeros of unlike signs."""
    return _with_signs(np.max(rows, axis=-1), np.signbit(rows).all(-1))


def least(rows: NDArray) -> NDArray:
    """The smallest number of each row, along the last axis: NaN if one is, and -0 of zeros of unlike signs."""
    return _with_signs(np.min(rows, axis=-1), np.signbit(rows).any(-1))


def _with_signs(extremes: NDArray, is_negative: NDArray) -> NDArray:
    """Numbers with these signs, which only zeros may lack: which one of several was found, NumPy does not say."""
    one = extremes.dtype.type(1)
    return as_array(np.copysign(extremes, np.where(is_negative, -one, one)))


def place_of_largest(x: NDArray, axis: int | None = None) -> NDArray[np.integer]:
    """Where the largest number is along an axis, or in row-major order, as numpy.argmax gives it."""
    return _place_of_first_nan(x, x.argmax(axis), axis)


def place_of_least(x: NDArray, axis: int | None = None) -> NDArray[np.integer]:
    """Where the smallest number is along an axis, or in row-major order, as numpy.argmin gives it."""
    return _place_of_first_nan(x, x.argmin(axis), axis)


def _place_of_first_nan(x: NDArray, place: Any, axis: int | None) -> NDArray[np.integer]:
    """The place of the first NaN where one is: CuPy gives that of any of them."""
    if not is_on_gpu(x):
        return place
    unknown = np.isnan(x)
    return np.where(unknown.any(axis), unknown.argmax(axis), place)


def clip_by_extremes(a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """a, but `low` where it is below, and `high` where that is above `high`."""
    return smaller(larger(a, low), high)


def clamp(a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """a, but `low` where it is below, and `high` where it is above `high`; of zeros of unlike signs a itself."""
    a, low, high = a[()], low[()], high[()]
    return np.where(a < low, low, np.where(a > high, high, a))
