"""The rounding of one number to any grid in any mode, in float64 and without haste.

The steps are those of the plain rounding, with care for significands of one bit, missing subnormals, missing signs,
and for grids that reach the ends of float64's range: numbers are brought nearer to one by a power of two first.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.drawn import threshold
from simfloat.kernels.jit import out_of_line, scalar
from simfloat.kernels.machine import binade, round_sum_to_odd
from simfloat.kernels.unrounded import power_of_two, scale_by_power

#: Even, so that exponents keep their parity.
SHIFT = 2.0**128

#: So many binades below the smallest normal number all magnitudes are rounded alike, to zero or to the smallest.
DEEP = 300


@scalar
def round_to_any_grid(x, word, grid):
    """Round a float64 number; `word` holds 32 random bits."""
    # Only formats that reach the ends of float64 need it, and for others it is 1. The shift is even, so that the parity
    # of exponents, on which codes of one significand bit depend, stays.
    scale = _power_toward_one(abs(x), grid)
    magnitude, first = abs(x) * scale, grid.min_normal * scale
    low = magnitude < first
    power = first if low else min(binade(magnitude), grid.top * scale)
    anchor = grid.low_anchor * scale if low else power * grid.magic
    rounded = _round_magnitude(magnitude, x < 0.0, low, power, anchor, word, grid) / scale
    return in_range(x, 0.0 if abs(x) < grid.cut else rounded, grid)


@scalar
def round_pair(high, low, exponent, word, grid):
    """Round (high + low) * 2^exponent to a grid of at most 50 bits, where high is near one.

    For results that need more than float64 shows: digits that a long draw reads, p + bits + 2 > 53, or those below
    2^-1074, on which the rounding to a format with numbers down to there depends.
    """
    if high == 0.0 or not abs(high) < np.inf:
        return in_range(high, abs(high), grid)
    draws = grid.random_step != 0.0
    rounded = (
        _round_pair_at_random(high, low, exponent, word, grid)
        if draws
        else _round_pair_by_mode(high, low, exponent, grid)
    )
    return in_range(high, rounded, grid)


@out_of_line
def _round_pair_by_mode(high, low, exponent, grid):
    """The magnitude of (high + low) * 2^exponent rounded in a deterministic mode."""
    # The exponent becomes even, so that codes keep their parity, and no lower than tells numbers apart.
    lifted = max(exponent, np.int64(grid.emin) - DEEP)
    lifted += lifted % 2
    magnitude = abs(round_sum_to_odd(high, low)) * power_of_two(max(exponent - lifted, -2 * DEEP))
    smallest = power_of_two(max(np.int64(grid.emin) - lifted, -DEEP))
    if grid.cut != 0.0 and magnitude < smallest:
        return 0.0
    first = _first_binade(smallest, grid)
    power = max(binade(magnitude), first)
    word = np.uint32(0)
    rounded = _round_magnitude(magnitude, high < 0.0, magnitude < first, power, power * grid.magic, word, grid)
    return scale_by_power(_flush(rounded, smallest, grid), lifted)


@scalar
def _first_binade(smallest, grid):
    """The binade below which the grid has one spacing: that of the smallest normal number, or the one before it."""
    return 0.5 * smallest if grid.min_normal < grid.least else smallest


@scalar
def _flush(rounded, smallest, grid):
    """A rounded magnitude, zero where it is flushed: it may have bits below float64's last, which would round it up."""
    return 0.0 if grid.least != 0.0 and rounded < smallest else rounded


@scalar
def _round_magnitude(magnitude, negative, low, power, anchor, word, grid):
    """The magnitude rounded to multiples of power * epsilon; `low` if it lies below the first binade of the grid."""
    spacing = power * grid.epsilon
    single = grid.single_bit != 0.0
    odd_code = single and not low and _has_odd_code(magnitude, grid)
    if single and not low and not odd_code:
        # The significand is 1 on both sides of the tie; one spacing more swaps which side counts as even.
        anchor += spacing
    # float64 rounds the sum to the anchor's last bit, which is worth one spacing: the nearest multiple, ties to even,
    # by two additions. fastmath is off, or the compiler would cancel them.
    near = (magnitude + anchor) - anchor
    if grid.nearest_even != 0.0:
        return near
    lower = near - spacing if near > magnitude else near
    rest = magnitude - lower
    if grid.random_step != 0.0:
        return lower + spacing if rest >= threshold(word, grid) * power else lower
    # Of two neighbours the even one is the nearest multiple of two spacings.
    is_odd = odd_code if single else (magnitude + 2.0 * anchor) - 2.0 * anchor != lower
    part = grid.away_negative if negative else grid.away_positive
    part += grid.away_odd if is_odd else 0.0
    return lower + spacing if rest > 0.0 and rest >= part * spacing else lower


@scalar
def _round_pair_at_random(high, low, exponent, word, grid):
    """The magnitude of (high + low) * 2^exponent rounded at random."""
    magnitude, below = abs(high), low if high > 0.0 else -low
    # Far below it no draw reaches the smallest number.
    smallest = power_of_two(min(max(np.int64(grid.emin) - exponent, -DEEP), DEEP))
    first = _first_binade(smallest, grid)
    if grid.cut != 0.0 and (magnitude < smallest or (magnitude == smallest and below < 0.0)):
        return 0.0
    power = max(binade(magnitude), first)
    spacing, anchor = power * grid.epsilon, power * grid.magic
    near = (magnitude + anchor) - anchor
    lower = near - spacing if near > magnitude else near
    if lower == magnitude and below < 0.0:
        # The exact result lies just under a number of the grid; under a power of two the spacing is half.
        spacing = 0.5 * spacing if magnitude == power and magnitude > first else spacing
        lower = magnitude - spacing
    draw = np.uint32(word) >> np.uint32(grid.random_shift)
    # `below` is what float64 does not show of the exact distance. It is compared, not added: the sum would be rounded,
    # and a distance that meets the threshold exactly is decided by its last bit.
    excess = (magnitude - lower) - (grid.random_start - draw * grid.random_step) * (spacing / grid.epsilon)
    meets = grid.random_strict == 0.0 or draw % np.uint32(2) == 0
    rounded = lower + spacing if excess > -below or (excess == -below and meets) else lower
    return scale_by_power(_flush(rounded, smallest, grid), exponent)


@scalar
def _power_toward_one(magnitude, grid):
    """The power of two that keeps anchors and spacings inside float64."""
    if grid.extended == 0.0:
        return 1.0
    if magnitude > 2.0**512:
        return 1.0 / SHIFT
    return SHIFT if magnitude < 2.0**-512 and grid.min_normal < 1.0 else 1.0


@scalar
def _has_odd_code(magnitude, grid):
    """Whether the exponent field of the binade is odd."""
    field = np.float64(magnitude).view(np.uint64) >> np.uint64(52)
    return np.float64(field & np.uint64(1)) != grid.code_parity


@scalar
def in_range(x, rounded, grid):
    """Give a rounded magnitude the sign of `x`, and what the format has where it lies out of range."""
    beyond = grid.overflow_negative if x < 0.0 else grid.overflow_positive
    infinite = grid.infinite_negative if x < 0.0 else grid.infinite
    beyond = infinite if abs(x) == np.inf else beyond
    rounded = beyond if rounded > grid.max else rounded
    rounded = grid.small if rounded < grid.least else rounded
    rounded = grid.at_zero if x == 0.0 else rounded
    signed = math.copysign(rounded, x) + grid.zero
    return grid.below if signed < grid.lowest else signed
