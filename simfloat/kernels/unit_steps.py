"""What a fused sum does with its terms and its totals: they are aligned to the largest exponent, added, and rounded.

See `fused_loops.py` for what it is and where it is defined. The functions are those of the CPU's loops and of a GPU's.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.drawn import round_by_threshold
from simfloat.kernels.general import round_to_any_grid
from simfloat.kernels.jit import reader, scalar
from simfloat.kernels.machine import binade, truncate
from simfloat.kernels.plain import nearest, round_in_direction, to_odd

#: The power that stands for no exponent at all: it lies below that of every product.
NOTHING = 2.0**-900

#: Added to a number of units and subtracted again it leaves the nearest integer, ties to even.
ANCHOR = 1.5 * 2.0**52


class Unit(NamedTuple):
    """The numbers of a fused sum."""

    terms: float
    unit: float  # 2^fraction_bits
    least: float  # smallest power that a sum's exponent reads as: 2^emin of its format
    zero: float  # the power of a zero; NOTHING if it has none
    align: float  # how terms are aligned, a number of ALIGNMENTS
    rounding: float  # how totals are rounded, a number of ROUNDINGS


#: The unit in an array.
unpack_unit = reader(Unit)


@scalar
def power_at_or_below(x, least):
    """The power of two at or below |x|, at least `least`; 0 for zero."""
    return max(binade(abs(x)), least) if x != 0.0 else 0.0


@scalar
def first_power(so_far, unit):
    """The power of the sum so far, from which on a chunk looks for its largest."""
    return power_at_or_below(so_far, unit.least) if so_far != 0.0 else unit.zero


@scalar
def cut(x, scale):
    """A term in units of 1 / scale, without what lies below one: scale is 2^fraction_bits over the largest power."""
    return truncate(x * scale)


@scalar
def cut_to_nearest(x, scale):
    """Round a term to the nearest unit of 1 / scale, ties to the even one. A term has at most 2^42 units."""
    return (x * scale + ANCHOR) - ANCHOR


@scalar
def cut_to_odd(x, scale):
    """Cut a term to units of 1 / scale, and set the last bit if anything was cut off: a sticky bit."""
    units = x * scale
    whole = truncate(units)
    # By floats, as the rest: a conversion to integers and back would not vectorise everywhere. The sign is that of the
    # term, since `whole` may be 0.
    is_even = truncate(0.5 * whole) == 0.5 * whole
    # Units far below one may be zero.
    is_cut = (whole != units) | ((units == 0.0) & (x != 0.0))
    return whole + math.copysign(1.0, x) if is_even & is_cut else whole


@scalar
def unless_special(rounded, plain):
    """The chunk's result: the plain sum is NaN or infinite just where the unit's is."""
    return rounded if abs(plain) < np.inf else plain


@scalar
def truncate_to_format(x, grid):
    """Round toward zero to a format with float32's exponents; what is too large becomes infinite; zeros are +0."""
    magnitude = abs(x)
    drop = np.uint64(52.0 - grid.mantissa_bits)
    # Toward zero is a mask on the image. Below the smallest normal number the spacing stays, so there the number of
    # spacings is truncated instead. Shifts by `drop` bits and back need no mask that depends on the format.
    normal = np.uint64(np.uint64(np.float64(magnitude).view(np.uint64) >> drop) << drop).view(np.float64)
    spacing = grid.min_normal * grid.epsilon
    rounded = normal if magnitude >= grid.min_normal else truncate(magnitude * (1.0 / spacing)) * spacing
    rounded = rounded if magnitude < 2.0 * grid.top else np.inf
    return math.copysign(rounded, x) + 0.0


class TotalRounding(NamedTuple):
    """How a chunk's total becomes the sum so far: (total, scale, plain, word, grid) -> number; whether `word` is drawn,
    or (None) the grid says so.

    `plain` is the sum by float64's own additions, where infinities and NaN come from.
    """

    finish: Any
    draws: bool | None = False


def round_finite_total(convert: Any) -> TotalRounding:
    """Of real units: infinite sums and NaN stay as they are."""

    @scalar
    def finish(total, scale, plain, word, grid):
        # `scale` is a power of two, so the division is exact as long as the quotient is a normal number; on a GPU it is
        # 1, since there the total is multiplied by the inverse before.
        return unless_special(convert(total / scale, grid), plain)

    return TotalRounding(finish)


def round_any_total(convert: Any) -> TotalRounding:
    """Infinite sums and NaN are rounded, too: to what the format and the mode have for them."""

    @scalar
    def finish(total, scale, plain, word, grid):
        return convert(unless_special(total / scale, plain), grid) + 0.0

    return TotalRounding(finish)


def round_total_by_word(convert: Any, draws: bool | None = True) -> TotalRounding:
    """Round totals, infinite sums and NaN among them, by a random word."""

    @scalar
    def finish(total, scale, plain, word, grid):
        return convert(unless_special(total / scale, plain), word, grid) + 0.0

    return TotalRounding(finish, draws)


#: How terms are aligned, by the mode's steps.
ALIGNMENTS = {"truncated": cut, "nearest": cut_to_nearest, "sticky": cut_to_odd}

#: How totals are rounded: as real units do it, and in the ways of `grid.way_of`.
ROUNDINGS = {
    "truncated": round_finite_total(truncate_to_format),
    "nearest": round_any_total(nearest),
    "directed": round_any_total(round_in_direction),
    "sticky": round_any_total(to_odd),
    "random": round_total_by_word(round_by_threshold),
    "general": round_total_by_word(round_to_any_grid, None),
}


def codes_of_unit(align: str, rounding: str) -> tuple[int, int]:
    """The numbers by which a unit names how it aligns terms and rounds totals."""
    return list(ALIGNMENTS).index(align), list(ROUNDINGS).index(rounding)
