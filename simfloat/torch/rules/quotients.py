"""Quotients to integers and what they leave, exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

#: From here on the quotient of two float64 numbers may lie on the other side of an integer than the exact one.
LARGE = 2.0**51

Floats = NDArray[np.float64]


def remainders(a: NDArray, b: NDArray) -> Floats:
    """What is left of a behind b times the integer part of a / b: of a's sign, and exact; NaN for b = 0 and a = inf."""
    with np.errstate(invalid="ignore"):
        return np.fmod(np.asarray(a, np.float64), np.asarray(b, np.float64))


def quotients(a: NDArray, b: NDArray, *, is_floor: bool) -> tuple[Floats, Floats]:
    """The integer part of a / b, or the largest integer that is not above a / b, as the exact sum of two numbers.

    The second one is not zero only for integers that float64 lacks; a zero has the sign of the other one.
    """
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    left = remainders(a, b)
    with np.errstate(all="ignore"):
        quotient = a / b
        whole = np.rint((a - left) / b)
        if is_floor:
            whole = whole - ((left != 0) & ((left < 0) != (b < 0)))
        whole = np.where((b == 0) | (np.isinf(a) & (not is_floor)), quotient, whole)
    # The quotient -1 / 3, truncated, is -0: the sign is that of the quotient before.
    whole = np.where(whole == 0, np.copysign(whole, quotient), whole)
    remainder = np.copysign(0.0, whole)
    for at in np.argwhere((np.abs(whole) >= LARGE) & np.isfinite(whole)):
        place = tuple(at)
        whole[place], remainder[place] = _parts(float(a[place]), float(b[place]), is_floor)
    return whole, remainder


def _parts(a: float, b: float, is_floor: bool) -> tuple[float, float]:
    """The integer quotient of two numbers, and what float64 lacks of it."""
    # Few numbers come here: those from 2^51 on.
    exact = Fraction(a) / Fraction(b)
    whole = math.floor(exact) if is_floor else math.trunc(exact)
    high = float(whole)
    return high, float(whole - int(high)) or math.copysign(0.0, high)
