"""The rounding of one number with exact fractions: the definition that everything else is tested against.

It follows RoundToPrecision of IEEE P3109 (interim report 4.0, section 4.7.4), which agrees with IEEE 754-2019 where
both define a result: round as if the exponent had no upper bound, then check if the result is in range. It is slow and
simple on purpose; tests compare the compiled kernels with it bit for bit.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from simfloat.formats.format import Format
from simfloat.formats.rounding import MODES, Rounding


def round_value(x: float | Fraction, format: Format, rounding: Rounding, random: int = 0) -> float:
    """Round `x` to a number of `format`.

    `random` is the integer R of a stochastic mode, 0 <= R < 2^bits. A Fraction is an exact result; its zero is +0.
    """
    if rounding.overflows:
        rounding.check_overflow(format)
    if isinstance(x, float):
        if math.isnan(x):
            return _nan(format)
        if math.isinf(x):
            return _overflow(x < 0, format, rounding, infinite=True)
    negative = x < 0 or (isinstance(x, float) and math.copysign(1.0, x) < 0)
    magnitude = abs(Fraction(x))
    if format.flushes and format.tininess == "before_rounding" and magnitude < _exact(format.smallest_normal):
        magnitude = Fraction(0)
    magnitude = round_magnitude(magnitude, negative, format, rounding, random)
    return _in_range(magnitude, negative, x == 0, format, rounding)


def round_magnitude(
    magnitude: Fraction, negative: bool, format: Format, rounding: Rounding, random: int = 0
) -> Fraction:
    """Round a magnitude as if the exponent had no upper bound, and no lower bound if tiny results are flushed."""
    if magnitude == 0:
        return magnitude
    binade = floor_log2(magnitude) if format.flushes else max(floor_log2(magnitude), format.emin)
    if format.is_fixed:
        binade = format.emin
    exponent = binade - format.mantissa_bits
    numerator, denominator = _scaled(*magnitude.as_integer_ratio(), -exponent)
    whole, rest = divmod(numerator, denominator)
    if is_away(Fraction(rest, denominator), whole, exponent, negative, format, rounding, random):
        whole += 1
    return Fraction(*_scaled(whole, 1, exponent))


def is_away(
    rest: Fraction, whole: int, exponent: int, negative: bool, format: Format, rounding: Rounding, random: int
) -> bool:
    """Return True if (whole + rest) * 2^exponent is rounded away from zero; `rest` is a fraction of the spacing."""
    if rounding.is_stochastic:
        return _stochastic_away(rest, rounding, random)
    return MODES[rounding.mode].away(rest, _is_odd(whole, exponent, format), negative)


def floor_log2(x: Fraction) -> int:
    """Return the exponent of a positive number."""
    numerator, denominator = x.as_integer_ratio()
    guess = numerator.bit_length() - denominator.bit_length()
    numerator, denominator = _scaled(numerator, denominator, -guess)
    return guess if numerator >= denominator else guess - 1


def _scaled(numerator: int, denominator: int, exponent: int) -> tuple[int, int]:
    """Return a fraction multiplied by 2^exponent."""
    return (numerator << exponent, denominator) if exponent >= 0 else (numerator, denominator << -exponent)


@cache
def _exact(x: float) -> Fraction:
    """Return a number of a format as a Fraction, cached because it is compared with many values."""
    return Fraction(x)


def _is_odd(whole: int, exponent: int, format: Format) -> bool:
    if format.precision > 1:
        return whole % 2 == 1
    # A single significand bit is always 1. The last bit of the code, which belongs to the exponent field, decides.
    return whole > 0 and (exponent + format.bias) % 2 == 1


def _stochastic_away(rest: Fraction, rounding: Rounding, random: int) -> bool:
    count = 2**rounding.bits
    match rounding.variant:
        case "A":
            return math.floor(rest * count) + random >= count
        case "B":
            return math.floor(rest * 2 * count) + 2 * random + 1 >= 2 * count
        case _:
            return round(rest * count) + random >= count  # Python rounds a Fraction to nearest even


def _in_range(magnitude: Fraction, negative: bool, was_zero: bool, format: Format, rounding: Rounding) -> float:
    if format.flushes and magnitude < _exact(format.smallest_normal):
        magnitude = Fraction(0)
    if not format.signed and negative and magnitude > 0:
        return _overflow(negative, format, rounding, infinite=False)
    if magnitude > _exact(-format.min if negative and format.signed else format.max):
        return _overflow(negative, format, rounding, infinite=False)
    if not format.has_zero:
        if was_zero or negative:
            return _nan(format)
        return float(max(magnitude, _exact(format.smallest_normal)))
    if magnitude == 0:
        return -0.0 if negative and format.has_negative_zero else 0.0
    return -float(magnitude) if negative else float(magnitude)


def _overflow(negative: bool, format: Format, rounding: Rounding, infinite: bool) -> float:
    """Return the result for a value beyond the largest number: IEEE 754-2019 section 7.4, and facts of the format."""
    if format.is_fixed:
        return format.min if negative else format.max
    if negative and not format.signed:
        return _nan(format)
    stops = format.clamps or rounding.saturates or (not infinite and rounding.stops(negative))
    if not stops and not format.has_infinity:
        return _nan(format)
    value = format.max if stops else math.inf
    return -value if negative else value


def _nan(format: Format) -> float:
    if not format.has_nan:
        raise ValueError(f"{format} has no NaN, but the result is NaN (or negative, in an unsigned format).")
    return math.nan
