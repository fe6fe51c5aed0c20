"""The IEEE exceptions that an operation raises: their definition with fractions, and its thresholds for kernels.

The flags are those of IEEE 754-2019, section 7, with the bits of RISC-V's `fflags` and Berkeley SoftFloat. Signalling
NaN are not modelled: a NaN operand is quiet.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from simfloat.formats.definition import floor_log2, is_away, round_magnitude, round_value
from simfloat.formats.format import Format
from simfloat.formats.rounding import HALF, Rounding

INEXACT, UNDERFLOW, OVERFLOW, DIVISION_BY_ZERO, INVALID = 1, 2, 4, 8, 16

#: The value to which round-to-odd in float64 rounds larger values.
BEYOND = sys.float_info.max


def flags_of(
    x: float | Fraction,
    operands: Sequence[float],
    format: Format,
    rounding: Rounding,
    random: int = 0,
    is_fma: bool = False,
) -> int:
    """Return the flags of an operation on these operands with the exact result `x`, or of a rounding without operands.

    * invalid (16): the exact result is NaN and no operand is NaN; or an fma multiplies 0 and inf, also if the addend is
      NaN; or a value becomes NaN because an unsigned format, or one without zero, has no number for it.
    * division by zero (8): the exact result of finite operands is infinite.
    * overflow (4): the result, rounded as if the exponent had no bounds, is beyond the largest number; or it is
      infinite and becomes something else.
    * underflow (2): the result is tiny, as the tininess of the format defines it, and inexact.
    * inexact (1): the result differs from the exact one.
    """
    if isinstance(x, float) and math.isnan(x):
        return INVALID * _is_invalid(operands, is_fma)
    infinite = isinstance(x, float) and math.isinf(x)
    of_zero = DIVISION_BY_ZERO * (infinite and bool(operands) and all(map(math.isfinite, operands)))
    return of_zero | _flags_of_rounding(x, format, rounding, random)


def _is_invalid(operands: Sequence[float], is_fma: bool) -> bool:
    """Return True if an operation with a NaN result has created the NaN."""
    if is_fma and 0 in operands[:2] and math.inf in map(abs, operands[:2]):
        return True
    return bool(operands) and not any(map(math.isnan, operands))


def _flags_of_rounding(x: float | Fraction, format: Format, rounding: Rounding, random: int) -> int:
    """Return the flags of rounding a number or an infinity."""
    result = round_value(x, format, rounding, random)
    if math.isnan(result) and (x == 0 or (x < 0 and not format.signed)):
        return INVALID
    if result == x:
        return 0
    if isinstance(x, float) and math.isinf(x):
        return OVERFLOW | INEXACT
    magnitude, negative = abs(Fraction(x)), x < 0
    if round_magnitude(magnitude, negative, format, rounding, random) > largest_magnitude(format, negative):
        return OVERFLOW | INEXACT
    return INEXACT | UNDERFLOW * is_tiny(magnitude, negative, format, rounding, random)


def largest_magnitude(format: Format, negative: bool) -> Fraction:
    """Return the magnitude beyond which a rounded value of this sign overflows.

    Fixed-point formats may have another one below zero. In other formats without a sign, a negative value is invalid.
    """
    return Fraction(-format.min if negative and format.is_fixed else format.max)


def is_tiny(magnitude: Fraction, negative: bool, format: Format, rounding: Rounding, random: int = 0) -> bool:
    """Return True if a result is tiny (IEEE 754-2019, 7.5).

    It is tiny if it is below the smallest normal number before it is rounded, or if it were rounded with an exponent
    without bounds, as the format defines. In fixed point nothing is tiny.
    """
    if format.is_fixed:
        return False
    smallest = Fraction(format.smallest_normal)
    if magnitude == 0 or magnitude >= smallest or format.tininess == "before_rounding":
        return 0 < magnitude < smallest
    exponent = floor_log2(magnitude) - format.mantissa_bits
    whole, rest = divmod(magnitude / Fraction(2) ** exponent, 1)
    whole += is_away(rest, whole, exponent, negative, format, rounding, random)
    return whole * Fraction(2) ** exponent < smallest


class Thresholds(NamedTuple):
    """The float64 magnitudes at which exact results start to overflow, and stop being tiny, for either sign.

    Starting at a `may` threshold, a result overflows (or is normal) for some random draws; starting at `must`, for all.
    They are equal without draws. Thresholds are compared with the exact result, rounded to odd if float64 cannot
    represent it.
    """

    may_overflow: float
    must_overflow: float
    may_overflow_below: float  # of negative results
    must_overflow_below: float
    may_be_normal: float
    must_be_normal: float
    may_be_normal_below: float
    must_be_normal_below: float


@cache
def thresholds_of(format: Format, rounding: Rounding) -> Thresholds:
    """Return the thresholds of a format in a mode."""
    smallest = Fraction(format.smallest_normal)
    gap = Fraction(format.eps) if format.is_fixed else Fraction(2) ** (format.emax - format.mantissa_bits)
    # The number below the smallest normal one, if exponents had no bounds.
    last = Fraction(2) ** (format.emin - 1 - format.mantissa_bits)
    limits: list[float] = []
    for negative in (False, True):
        largest = largest_magnitude(format, negative)
        may, must = _threshold_pair(largest, largest + gap, negative, format, rounding)
        # The largest float64 value also represents all larger exact results.
        limits += [min(may, BEYOND) if format.max < BEYOND else may, must]
    for negative in (False, True):
        if format.is_fixed:
            limits += [math.ulp(0.0)] * 2  # every nonzero result is normal
        elif format.tininess == "before_rounding":
            limits += [format.smallest_normal, format.smallest_normal]
        else:
            limits += _threshold_pair(smallest - last, smallest, negative, format, rounding)
    return Thresholds(*limits)


def _threshold_pair(
    lower: Fraction, upper: Fraction, negative: bool, format: Format, rounding: Rounding
) -> tuple[float, float]:
    """Return (may, must): the least float64 magnitudes at which values between two neighbours become the upper one."""
    if rounding.is_stochastic:
        return _least_float64(lower, above=True), _least_float64(upper, above=False)
    exponent = floor_log2(upper - lower)
    whole = int(lower / (upper - lower))
    quarter, three_quarters = HALF / 2, HALF * 3 / 2

    def goes_up(rest: Fraction) -> bool:
        return is_away(rest, whole, exponent, negative, format, rounding, 0)

    middle = (lower + upper) / 2
    if goes_up(quarter):
        start = _least_float64(lower, above=True)
    elif goes_up(three_quarters):
        start = _least_float64(middle, above=not goes_up(HALF))
    else:
        start = _least_float64(upper, above=False)
    return start, start


def _least_float64(x: Fraction, above: bool) -> float:
    """Return the least float64 value at or above a number, or strictly above it; inf if it does not exist."""
    try:
        near = float(x)
    except OverflowError:
        return math.inf
    return near if Fraction(near) > x or (Fraction(near) == x and not above) else math.nextafter(near, math.inf)
