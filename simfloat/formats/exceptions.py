"""The IEEE exceptions that an operation raises: their definition, with fractions, and the numbers kernels take of it.

The flags are those of IEEE 754-2019, section 7, with the bits of RISC-V's `fflags` and Berkeley SoftFloat. Signalling
NaN are not modelled: a NaN operand is a quiet one.
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

#: What round-to-odd in float64 makes of larger numbers.
BEYOND = sys.float_info.max


def flags_of(
    x: float | Fraction,
    operands: Sequence[float],
    format: Format,
    rounding: Rounding,
    random: int = 0,
    is_fma: bool = False,
) -> int:
    """The flags of an operation on these operands with the exact result `x`; of a rounding, without operands.

    * invalid (16): the exact result is NaN and no operand is; fma of 0 and inf, also where the addend is NaN; or a
      number has no place in an unsigned format or one without zero, and becomes NaN.
    * division by zero (8): the exact result of finite operands is infinite.
    * overflow (4): the result lies beyond the format's max, rounded as if the exponent had no bounds, or is infinite
      and becomes something else.
    * underflow (2): the result is tiny, as the format's tininess has it, and inexact.
    * inexact (1): the result is another one than the exact one.
    """
    if isinstance(x, float) and math.isnan(x):
        return INVALID * _is_invalid(operands, is_fma)
    infinite = isinstance(x, float) and math.isinf(x)
    of_zero = DIVISION_BY_ZERO * (infinite and bool(operands) and all(map(math.isfinite, operands)))
    return of_zero | _flags_of_rounding(x, format, rounding, random)


def _is_invalid(operands: Sequence[float], is_fma: bool) -> bool:
    """Whether an operation whose result is NaN has made it."""
    if is_fma and 0 in operands[:2] and math.inf in map(abs, operands[:2]):
        return True
    return bool(operands) and not any(map(math.isnan, operands))


def _flags_of_rounding(x: float | Fraction, format: Format, rounding: Rounding, random: int) -> int:
    """The flags of rounding a number or an infinity."""
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
    """The magnitude beyond which a rounded number of this sign overflows.

    Fixed point may have another one below zero. In other formats without a sign a negative number is invalid.
    """
    return Fraction(-format.min if negative and format.is_fixed else format.max)


def is_tiny(magnitude: Fraction, negative: bool, format: Format, rounding: Rounding, random: int = 0) -> bool:
    """Whether a result is tiny (IEEE 754-2019, 7.5): below the smallest normal number, before it is rounded, or if it
    were rounded with an exponent without bounds. No fixed-point number is tiny.
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
    """The float64 magnitudes from which exact results overflow and are not tiny, for either sign.

    From `may` on a result may be beyond, if a random draw says so, and from `must` on it is; without draws both are
    equal. Every number is compared with the exact result, rounded to odd where float64 cannot hold it.
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
    """The thresholds of a format in a mode."""
    smallest = Fraction(format.smallest_normal)
    gap = Fraction(format.eps) if format.is_fixed else Fraction(2) ** (format.emax - format.mantissa_bits)
    # The last number below the smallest normal one, if exponents had no bounds.
    last = Fraction(2) ** (format.emin - 1 - format.mantissa_bits)
    limits: list[float] = []
    for negative in (False, True):
        largest = largest_magnitude(format, negative)
        may, must = _threshold_pair(largest, largest + gap, negative, format, rounding)
        # The largest float64 stands for all exact results beyond it, too.
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
    """(may, must): from which magnitudes on, as float64, a number between these neighbours becomes the upper one."""
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
    """The least float64 at or above a number, or above it; inf where there is none."""
    try:
        near = float(x)
    except OverflowError:
        return math.inf
    return near if Fraction(near) > x or (Fraction(near) == x and not above) else math.nextafter(near, math.inf)
