"""Format and rounding mode as a vector of plain numbers, which is the form that kernels take.

One compiled kernel serves every format and every mode, because they differ only in these numbers.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.environment import in_usual_environment
from simfloat.formats import Format, Rounding, nearest_even
from simfloat.formats.rounding import ABOVE_HALF, NEVER
from simfloat.kernels.compile.jit import reader


class Grid(NamedTuple):
    """A format, as the spacing of a grid in each binade, and the rule that selects one of its numbers."""

    min_normal: float  # 2^last_exponent; below it the spacing is constant
    top: float  # 2^last_binade; also used above it, since those results overflow anyway
    epsilon: float  # spacing / binade
    magic: float  # anchor / binade: adding and subtracting the anchor rounds to the grid
    low_anchor: float  # the anchor below min_normal
    max: float
    overflow_positive: float  # result magnitude for a finite result beyond max
    overflow_negative: float
    infinite: float  # result magnitude for an infinite operand
    infinite_negative: float  # the same below zero, where fixed point may have one more number
    zero: float  # added at the end: +0 turns -0 into +0 if the format has no -0; -0 changes nothing
    at_zero: float  # result magnitude for zero: zero, or NaN in a scale format
    least: float  # magnitudes below it ...
    small: float  # ... become this: flushed to zero, or raised to the smallest scale
    cut: float  # unrounded magnitudes below it are tiny before rounding and are also flushed
    lowest: float  # results below it become `below`: 0 in an unsigned format, otherwise -inf
    below: float  # NaN, or 0 in unsigned fixed point
    uniform: float  # 1 if all numbers have one spacing (fixed point): no subnormal numbers, no underflow
    single_bit: float  # 1 if the significand has one bit, so that a tie goes to the even code
    code_parity: float  # 1 if the exponent fields of float64 and of the format differ in parity
    extended: float  # 1 if anchors or spacings can leave the range of float64
    nearest_even: float  # 1 in the mode to nearest even
    away_positive: float  # the part of a spacing from which a magnitude is rounded up: see `Rounding.away`
    away_negative: float
    away_odd: float  # added to it if the lower neighbour is odd
    random_step: float  # 2^-bits of a spacing, as part of the binade
    random_start: float  # a spacing minus half a random step for variants B and C, a spacing for A
    random_shift: float  # 32 minus bits
    random_strict: float  # 1 if an odd draw that equals the distance exactly does not round up
    emin: float  # exponent of the smallest normal number
    mantissa_bits: float


#: Reads a grid from an array, in the type of the array: float64, or float32 for arithmetic in float32.
unpack_grid = reader(Grid)


def way_of(rounding: Rounding) -> str:
    """Return the kind of rounding function for a mode.

    "nearest", "sticky" (to odd), "directed" (only the part of a spacing decides), "random", or "general" if the part
    also depends on which neighbour is odd, and no faster function exists.
    """
    if rounding.is_stochastic:
        return "random"
    if rounding.steps in ("nearest", "sticky"):  # these have separate functions in `kernels/rounding/one_number.py`
        return rounding.steps
    return "general" if rounding.reads_odd else "directed"


def _away_of(rounding: Rounding) -> tuple[float, float, float]:
    """Return (away_positive, away_negative, away_odd) of a grid.

    Two kinds of rounding do not read them: nearest even, which the hardware addition does, and stochastic rounding,
    where the threshold of a draw decides.
    """
    if way_of(rounding) in ("nearest", "random"):
        return NEVER, NEVER, 0.0
    away = rounding.away
    odd = away.odd_positive - away.positive
    if odd != away.odd_negative - away.negative:
        raise ValueError(f"Odd numbers must matter alike above and below zero; in {rounding} they do not: {away}.")
    return away.positive, away.negative, odd


def carries_in_images(rounding: Rounding) -> bool:
    """Return True if a carry or a sticky bit in the bit pattern rounds correctly in this mode.

    A carry goes from the largest number to infinity, and does not depend on which neighbour is odd, except in modes
    with special steps for that.
    """
    stops = any(rounding.stops(negative) and not rounding.saturates for negative in (False, True))
    return bool(rounding.steps) or not (rounding.reads_odd or stops)


@cache
@in_usual_environment
def pack_grid(format: Format, rounding: Rounding = nearest_even) -> NDArray[np.float64]:
    """Return the fields of Grid, in order, as a float64 array; callers must not modify it."""
    mantissa_bits, bias = format.mantissa_bits, format.bias
    away_positive, away_negative, away_odd = _away_of(rounding)
    epsilon = 2.0**-mantissa_bits
    step = 2.0**-rounding.bits * epsilon if rounding.bits else 0.0
    scale, last = not format.has_zero, format.last_exponent
    grid = Grid(
        min_normal=math.ldexp(1.0, last),
        top=math.ldexp(1.0, format.last_binade),
        epsilon=epsilon,
        # With 52 bits the normal numbers are all float64 numbers: an anchor of zero leaves them unchanged.
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
    """Return the magnitude of a result beyond max; `stops` if the mode stops at max."""
    if format.is_fixed and format.signed and negative:
        return -format.min
    return format.max if stops or format.clamps else math.inf if format.has_infinity else math.nan


@in_usual_environment
def pack_grid_in_type(format: Format, rounding: Rounding, carrier: type) -> NDArray[np.floating]:
    """Return the grid in another type; limits beyond its range become infinite, for sums that stay far below them."""
    with np.errstate(over="ignore"):
        return pack_grid(format, rounding).astype(carrier)


@cache
@in_usual_environment
def pack_grid_below(format: Format, rounding: Rounding, top: int, carrier: type) -> NDArray[np.floating]:
    """Return the grid for `nearest` and `directed` in arithmetic of `carrier`, for magnitudes below 2^(top + 1).

    Anchors grow with the largest binade: a lower top keeps them in the range of float32.
    """
    below = pack_grid(format, rounding).copy()
    below[Grid._fields.index("top")] = math.ldexp(1.0, max(min(top, format.emax), format.emin))
    if carrier is np.float32:
        # float64 has 52 fraction bits, float32 has 23: anchors are 2^29 times smaller.
        below[Grid._fields.index("magic")] *= 2.0**-29
        below[Grid._fields.index("low_anchor")] *= 2.0**-29
    with np.errstate(over="ignore"):
        cast: NDArray[np.floating] = below.astype(carrier)
    if carrier is np.float32:
        # Kernels multiply a part by the spacing, and a part above a half must stay above it: the products of the next
        # number are rounded back to a half where they are subnormal. Any larger rest exceeds this part as well.
        above_half = 0.5 + max(2.0**-24, 2.0**-149 / math.ldexp(1.0, format.last_exponent - format.mantissa_bits))
        for away in map(Grid._fields.index, ("away_positive", "away_negative")):
            cast[away] = above_half if below[away] == ABOVE_HALF else cast[away]
    return cast


#: The fields that are magnitudes, and not zero.
LIMITS = ("max", "overflow_positive", "overflow_negative", "infinite", "infinite_negative")


@in_usual_environment
def scale_limits(grid_numbers: NDArray[np.floating], factor: np.float32) -> NDArray[np.floating]:
    """Return the grid with its limits times a power of two.

    The other fields are not scaled, because steps that truncate float32 bits do not read them.
    """
    scaled = grid_numbers.copy()
    scaled[[Grid._fields.index(name) for name in LIMITS]] *= factor
    return scaled


def has_exponents_of_float32(format: Format) -> bool:
    """Return True if the format is float32 with a shorter fraction, as bfloat16 and TF32 are."""
    ieee = format.special == "ieee" and format.signed and format.subnormals
    return ieee and format.exponent_bits == 8 and format.emax == 127 and format.mantissa_bits < 23


#: The kind of rounding in `float32.single_loop` for formats and modes to which the rules for few bits apply.
FEW_BITS = 4


def has_few_bits(format: Format, rounding: Rounding) -> bool:
    """Return True if those rules apply to a format with the exponents of float32, and a mode: 3 p <= 24, to nearest."""
    return format.precision <= 8 and rounding.steps in ("nearest", "away")


def holds_in_float32(format: Format) -> bool:
    """Return True if anchors and spacings of a plain grid stay in the range of float32, so that float32 can use the
    grid.

    Normal numbers of the format must be normal in float32, because the bit pattern of a subnormal number does not show
    its binade. A format with 23 fraction bits is also excluded: an anchor in the binade of the number itself would take
    away the last bit.
    """
    return (
        format.fits_float32
        and format.mantissa_bits < 23
        and format.emin >= -126
        and format.emax + 23 - format.mantissa_bits < 127
    )


def has_plain_grid(format: Format, rounding: Rounding) -> bool:
    """Return True if the short rounding functions can be used.

    They serve signed formats with several bits of precision, zero, gradual underflow and the same magnitudes on both
    sides of zero, in every mode except the general ones. Saturation and a missing -0 are handled by the overflow values
    and by `zero`.
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
