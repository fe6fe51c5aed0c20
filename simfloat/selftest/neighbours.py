"""Rounding by looking up neighbours: a second definition, on arrays, that shares nothing with the kernels.

The magnitudes of a small format stand in a table. An exact result lies between two of them, and whether it equals the
lower one, or lies below, on or above their middle, is told by comparisons that are exact in float64, because all
numbers concerned have few bits. That makes every pair of 8-bit numbers, and every triple of some, affordable.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from simfloat.formats import Format, Rounding

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


def operate_on_arrays(operation: str, operands: tuple[Array, ...], format: Format, rounding: Rounding) -> Array:
    """add, subtract, multiply, divide or fma of numbers of a format of at most 8 bits.

    Sums and products of two such numbers, and for at most 4 exponent bits also a * b + c, are exact in float64, and
    float64's specials are IEEE's. A quotient is not: its numerator is compared with denominator times neighbour.
    """
    with np.errstate(all="ignore"):
        if operation == "fma":
            operation, operands = "add", (operands[0] * operands[1], operands[2])
        elif operation == "subtract":
            operation, operands = "add", (operands[0], -operands[1])
        a, b = operands
        plain = {"add": np.add, "multiply": np.multiply, "divide": np.divide}[operation](a, b)
    negative = np.signbit(plain)
    if operation == "add" and rounding.zero_sum < 0:
        # IEEE 754-2019, 6.3: under toward_negative an exact zero sum is -0, unless both addends are +0.
        negative = negative | ((plain == 0) & (np.signbit(a) | np.signbit(b)))
    finite = np.isfinite(plain)
    numerator, denominator = (np.abs(a), np.abs(b)) if operation == "divide" else (np.abs(plain), np.ones_like(plain))
    usable = finite & np.isfinite(denominator)  # x / inf is zero
    rounded = round_quotient(
        np.where(usable, numerator, 0.0), np.where(usable, denominator, 1.0), negative, format, rounding
    )
    infinite = np.where(negative, -1, 1) * _overflow(negative, format, rounding, infinite=True)
    return np.where(finite, rounded, np.where(np.isnan(plain), np.nan, infinite))


def round_quotient(numerator: Array, denominator: Array, negative: Flags, format: Format, rounding: Rounding) -> Array:
    """+-numerator / denominator rounded; the products of the denominator and a table entry must fit float64."""
    table = _magnitudes(format)
    # Division is monotone: its result may have been rounded up onto a number of the table, never beyond.
    low = np.searchsorted(table, numerator / denominator, side="right") - 1
    low = np.minimum(low, table.size - 2)
    low = low - (table[low] * denominator > numerator)
    middle = (table[low] + table[low + 1]) / 2
    inexact = numerator > table[low] * denominator
    side = np.sign(numerator - middle * denominator)
    chosen = low + _away(inexact, side, low % 2 == 1, negative, rounding)
    beyond = chosen > format.max_code
    magnitude = np.where(beyond, _overflow(negative, format, rounding), table[np.minimum(chosen, format.max_code)])
    keeps_sign = negative & ((magnitude != 0) | format.has_negative_zero)
    return np.where(keeps_sign, -magnitude, magnitude)


@cache
def _magnitudes(format: Format) -> Array:
    """All finite magnitudes, and two steps beyond: where overflow is decided, and where it is sure."""
    table = format.magnitudes(np.arange(format.max_code + 1))
    step = 2.0 ** (format.emax - format.mantissa_bits)
    return np.array([*table, format.max + step, format.max + 2 * step])


def _away(inexact: Flags, side: Array, odd: Flags, negative: Flags, rounding: Rounding) -> Flags:
    match rounding.mode:
        case "nearest_even":
            return (side > 0) | ((side == 0) & odd)
        case "nearest_away":
            return side >= 0
        case "toward_zero":
            return np.zeros_like(inexact)
        case "toward_positive":
            return inexact & ~negative
        case "toward_negative":
            return inexact & negative
        case "to_odd":
            return inexact & ~odd
        case _:
            raise ValueError(f"Neighbours decide deterministic modes, got {rounding!r}.")


def _overflow(negative: Flags, format: Format, rounding: Rounding, infinite: bool = False) -> Array:
    """The magnitude of a result beyond max: max itself, infinity, or NaN where there is no infinity."""
    stops = np.where(negative, rounding.stops(negative=True), rounding.stops(negative=False))
    if infinite:
        stops = np.full_like(negative, rounding.saturates)
    if format.clamps:
        stops = np.ones_like(negative)
    return np.where(stops, format.max, np.inf if format.has_infinity else np.nan)
