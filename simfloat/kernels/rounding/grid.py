"""A format and a rounding mode as plain numbers, the form in which kernels take them.

One compiled kernel serves every format and every mode: what differs between them is in these numbers.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.environment import in_usual_environment
from simfloat.formats import Format, Rounding, nearest_even
from simfloat.formats.rounding import NEVER
from simfloat.kernels.compile.jit import reader


class Grid(NamedTuple):
    """The numbers of a format, as the spacing of a grid in each binade, and the rule that picks among them."""

    min_normal: float  # 2^last_exponent; below it the spacing stays the same
    top: float  # 2^last_binade; above it too, since results there overflow anyway
    epsilon: float  # spacing / binade
    magic: float  # anchor / binade: adding and subtracting the anchor rounds to the grid
    low_anchor: float  # the anchor below min_normal
    max: float
    overflow_positive: float  # magnitude that a finite result beyond max becomes
    overflow_negative: float
    infinite: float  # magnitude that an infinite operand becomes
    infinite_negative: float  # the same below zero, where fixed point may have one number more
    zero: float  # added at the end: +0 turns -0 into +0 where there is no -0, and -0 changes nothing
    at_zero: float  # magnitude that zero becomes: zero, or NaN in a scale format
    least: float  # magnitudes below it ...
    small: float  # ... become this: flushed to zero, or raised to the smallest scale
    cut: float  # magnitudes that are tiny before they are rounded lie below it: they are flushed too
    lowest: float  # results below it become `below`: 0 in an unsigned format, else -inf
    below: float  # NaN, or 0 in unsigned fixed point
    uniform: float  # 1 if all numbers have one spacing (fixed point): then none is subnormal, and nothing underflows
    single_bit: float  # 1 if the significand has one bit, so that a tie goes to the even code
    code_parity: float  # 1 if float64's exponent field and the format's differ in parity
    extended: float  # 1 if anchors or spacings can leave float64's range
    nearest_even: float  # 1 in that mode
    away_positive: float  # from which part of a spacing on a magnitude is rounded up: see `Rounding.away`
    away_negative: float
    away_odd: float  # added to it when the lower neighbour is odd
    random_step: float  # 2^-bits of a spacing, as part of the binade
    random_start: float  # a spacing minus half a random step for variants B and C, a spacing for A
    random_shift: float  # 32 minus bits
    random_strict: float  # 1 if an odd draw that meets the distance exactly does not round up
    emin: float  # exponent of the smallest normal number
    mantissa_bits: float


#: The grid in an array, in the array's type: float64, or float32 for arithmetic in float32.
unpack_grid = reader(Grid)


def way_of(rounding: Rounding) -> str:
    """How kernels round in a mode: "nearest", "sticky" (to odd), "directed" (by the part of a spacing alone), "random",
    or "general" where that part depends on which neighbour is odd, and nothing quicker serves.
    """
    if rounding.is_stochastic:
        return "random"
    if rounding.steps in ("nearest", "sticky"):  # these have functions of their own in `kernels/rounding/one_number.py`
        return rounding.steps
    return "general" if rounding.reads_odd else "directed"


def _away_of(rounding: Rounding) -> tuple[float, float, float]:
    """The fields of a grid that say from which part on a magnitude is rounded up. The hardware's own addition goes to
    nearest even, and a draw decides by its threshold: neither reads them.
    """
    if way_of(rounding) in ("nearest", "random"):
        return NEVER, NEVER, 0.0
    away = rounding.away
    odd = away.odd_positive - away.positive
    if odd != away.odd_negative - away.negative:
        raise ValueError(f"Odd numbers must matter alike above and below zero; in {rounding} they do not: {away}.")
    return away.positive, away.negative, odd


def carries_in_images(rounding: Rounding) -> bool:
    """Whether a carry into the bits of an image that are kept, or the last one set, rounds so: a carry goes from the
    largest number to infinity, and does not see which neighbour is odd, but where the mode has steps that do.
    """
    stops = any(rounding.stops(negative) and not rounding.saturates for negative in (False, True))
    return bool(rounding.steps) or not (rounding.reads_odd or stops)


@cache
@in_usual_environment
def pack_grid(format: Format, rounding: Rounding = nearest_even) -> NDArray[np.float64]:
    """The fields of Grid, in order, as a float64 array; not to be written to."""
    mantissa_bits, bias = format.mantissa_bits, format.bias
    away_positive, away_negative, away_odd = _away_of(rounding)
    epsilon = 2.0**-mantissa_bits
    step = 2.0**-rounding.bits * epsilon if rounding.bits else 0.0
    scale, last = not format.has_zero, format.last_exponent
    grid = Grid(
        min_normal=math.ldexp(1.0, last),
        top=math.ldexp(1.0, format.last_binade),
        epsilon=epsilon,
        # With 52 bits normal numbers are float64's own: an anchor of zero leaves them alone.
        magic=2.0 ** (52 - mantissa_bits) if mantissa_bits < 52 else 0.0,
        low_anchor=math.ldexp(1.0, last + 52 - mantissa_bits),
        max=format.max,
        overflow_positive=_overflow_magnitude(format, rounding.stops(negative=False)),
        overflow_negative=_overflow_magnitude(format, rounding.stops(negative=True), negative=True),
        infinite=_overflow_magnitude(format, rounding.saturates),
        infinite_negative=_overflow_magnitude(format, rounding.saturates, negative=True),
        zero=-0.0 if format.has_negative_zero else 0.0,
        at_zero=math.nan if scale else 0.0,
        least=format.smallest_normal if format.flushes or scale else 0.0,
        small=format.smallest_normal if scale else 0.0,
        cut=format.smallest_normal if format.flushes and last == format.emin else 0.0,
        lowest=-math.inf if format.signed else 0.0,
        below=0.0 if format.is_fixed else math.nan,
        uniform=float(format.is_fixed),
        single_bit=float(format.precision == 1),
        code_parity=float((1023 - bias) % 2),
        extended=float(format.emax > 900 or format.emin - mantissa_bits < -900),
        nearest_even=float(way_of(rounding) == "nearest"),
        away_positive=away_positive,
        away_negative=away_negative,
        away_odd=away_odd,
        random_step=step,
        random_start=epsilon if rounding.variant == "A" else epsilon - step / 2,
        random_shift=32.0 - rounding.bits,
        random_strict=float(rounding.variant == "C"),
        emin=float(format.emin),
        mantissa_bits=float(mantissa_bits),
    )
    return np.array(grid, np.float64)


def _overflow_magnitude(format: Format, stops: bool, negative: bool = False) -> float:
    """The magnitude that one beyond max becomes, if it `stops` there or not."""
    if format.is_fixed and format.signed and negative:
        return -format.min
    return format.max if stops or format.clamps else math.inf if format.has_infinity else math.nan


@in_usual_environment
def pack_grid_in_type(format: Format, rounding: Rounding, carrier: type) -> NDArray[np.floating]:
    """The grid in another type: limits beyond its range are infinite, for sums that do not come near them."""
    with np.errstate(over="ignore"):
        return pack_grid(format, rounding).astype(carrier)


@cache
@in_usual_environment
def pack_grid_below(format: Format, rounding: Rounding, top: int, carrier: type) -> NDArray[np.floating]:
    """The grid for `nearest` and `directed` in arithmetic of `carrier`, for magnitudes below 2^(top + 1).

    Anchors grow with the largest binade: a lower top keeps them inside float32.
    """
    below = pack_grid(format, rounding).copy()
    below[Grid._fields.index("top")] = math.ldexp(1.0, max(min(top, format.emax), format.emin))
    if carrier is np.float32:
        # float64 has 52 fraction bits under its anchor, float32 has 23.
        below[Grid._fields.index("magic")] *= 2.0**-29
        below[Grid._fields.index("low_anchor")] *= 2.0**-29
    with np.errstate(over="ignore"):
        cast: NDArray[np.floating] = below.astype(carrier)
    for away in map(Grid._fields.index, ("away_positive", "away_negative")):
        if cast[away] < below[away]:  # what lies above a half must stay there
            cast[away] = np.nextafter(cast[away], carrier(1.0))
    return cast


#: The fields that are magnitudes, and not zero.
LIMITS = ("max", "overflow_positive", "overflow_negative", "infinite", "infinite_negative")


@in_usual_environment
def scale_limits(grid_numbers: NDArray[np.floating], factor: np.float32) -> NDArray[np.floating]:
    """The grid of magnitudes times a power of two, as far as steps that cut off bits of float32 read it."""
    scaled = grid_numbers.copy()
    scaled[[Grid._fields.index(name) for name in LIMITS]] *= factor
    return scaled


def has_exponents_of_float32(format: Format) -> bool:
    """Whether the format is float32 with a shorter fraction, as bfloat16 and TF32 are."""
    ieee = format.special == "ieee" and format.signed and format.subnormals
    return ieee and format.exponent_bits == 8 and format.emax == 127 and format.mantissa_bits < 23


#: The kind of rounding, for `float32.single_loop`, of formats and modes that the rules for few bits hold for.
FEW_BITS = 4


def has_few_bits(format: Format, rounding: Rounding) -> bool:
    """Whether those rules hold for a format with float32's exponents, and a mode: 3 p <= 24, and ties decide."""
    return format.precision <= 8 and rounding.steps in ("nearest", "away")


def holds_in_float32(format: Format) -> bool:
    """Whether the anchors of a plain grid stay in float32's range, as its spacings do, so that it serves there, too.

    Normal numbers must be normal in float32: the binade of a subnormal one does not show in its image. And a number of
    23 fraction bits has all of float32's, so that an anchor of its own binade would take the last one away.
    """
    return (
        format.fits_float32
        and format.mantissa_bits < 23
        and format.emin >= -126
        and format.emax + 23 - format.mantissa_bits < 127
    )


def has_plain_grid(format: Format, rounding: Rounding) -> bool:
    """Whether the short rounding functions serve: signed numbers of several bits with zero and gradual underflow, and
    with the same numbers on both sides of zero, in a mode that has one of them.

    Saturation and a missing -0 are no hindrance: they are in the overflow values and in `zero`.
    """
    spacings_stay_in_range = format.emin - format.mantissa_bits - rounding.bits > -1000
    return (
        1 < format.precision < 53
        and way_of(rounding) != "general"
        and format.min == -format.max
        and format.subnormals
        and format.emax + 52 - format.mantissa_bits < 1000
        and spacings_stay_in_range
    )
