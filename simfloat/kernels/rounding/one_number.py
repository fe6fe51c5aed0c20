"""The rounding of one number: to a plain grid (see `grid.has_plain_grid`), at random, and to any grid in any mode.

**To a plain grid, in float32 or float64.** Adding to a magnitude an anchor whose last bit is worth one spacing, and
subtracting it again, leaves the nearest multiple of the spacing, ties to even: the hardware rounds. What was cut off is
then known exactly, and decides the other modes. Below the smallest normal number the spacing, and with it the anchor,
stops shrinking: underflow is gradual without a special case. An anchor is a power of two times another, so a fused
multiply-add makes and adds it in one go.

**At random, to a plain grid.** Two ways lead to the same bits. `round_by_threshold` compares what was cut off with a
threshold, for any number that can be rounded at all. `round_at_random` adds the draw to the number's integer image: a
sum that reaches the next number of the grid carries into the bits that are kept. That takes half as many operations,
but needs numbers that stay exact when the smallest normal number is added to those below it: then they have its
spacing, as the grid does there. A draw is the upper bits of a word. Under variant C of P3109 an odd draw must be
exceeded, not met, because a distance that lies half a step below it counts as the even step below.

**To any grid, in float64 and without haste.** The steps are those of the plain rounding, with care for significands of
one bit, missing subnormals, missing signs, and for grids that reach the ends of float64's range: numbers are brought
nearer to one by a power of two first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from simfloat.kernels.compile.intrinsics import binade, fma, round_sum_to_odd, shift_left, shift_right
from simfloat.kernels.compile.jit import out_of_line, scalar
from simfloat.kernels.elementwise.exact import power_of_two, scale_by_power


@scalar
def nearest(x, grid):
    """Round to nearest even."""
    magnitude = abs(x)
    return in_range_quickly(x, _nearest(magnitude, power_below(magnitude, grid), grid), grid)


@scalar
def round_in_direction(x, grid):
    """Round toward zero or an infinity, or to nearest with ties away."""
    magnitude = abs(x)
    power = power_below(magnitude, grid)
    lower = lower_neighbour(magnitude, power, grid)
    rest = magnitude - lower
    part = grid.away_negative if x < 0.0 else grid.away_positive
    # Whole comparisons, joined by `&`: `and` is a branch to Numba, and LLVM would not vectorise the loop. `rest > 0`
    # keeps numbers of the grid where they are in modes that round any part up.
    spacing = power * grid.epsilon
    return _in_range(x, lower + spacing if (rest > 0.0) & (rest >= part * spacing) else lower, grid)


@scalar
def to_odd(x, grid):
    """Round to the neighbour with an odd significand."""
    magnitude = abs(x)
    power = power_below(magnitude, grid)
    lower = lower_neighbour(magnitude, power, grid)
    # Of two neighbours the even one is the nearest multiple of two spacings.
    is_even = _nearest(magnitude, power + power, grid) == lower
    return _in_range(x, fma(power, grid.epsilon, lower) if (magnitude > lower) & is_even else lower, grid)


@scalar
def one_nan(x):
    """`x`, with every NaN replaced by the positive quiet one: machines differ in the NaN they make."""
    return x if x == x else np.nan


@scalar
def power_below(magnitude, grid):
    """The power of two that spacing and anchor are multiples of: the binade's, from the first to the last."""
    return min(max(binade(magnitude), grid.min_normal), grid.top)


@scalar
def _nearest(magnitude, power, grid):
    """The nearest multiple of the spacing, ties to even."""
    # The product with `magic` is a power of two, so this is the sum with the anchor and back, without two products.
    # Steps of a sum wait for exactly this chain, so each instruction less shows in the rate.
    return fma(-power, grid.magic, fma(power, grid.magic, magnitude))


@scalar
def lower_neighbour(magnitude, power, grid):
    """The multiple of the spacing at or below a magnitude."""
    near = _nearest(magnitude, power, grid)
    return fma(-power, grid.epsilon, near) if near > magnitude else near


@scalar
def _in_range(x, rounded, grid):
    """Give a rounded magnitude the sign of `x`, and what the format has beyond its largest number."""
    beyond = grid.overflow_negative if x < 0.0 else grid.overflow_positive
    beyond = grid.infinite if abs(x) == np.inf else beyond
    rounded = beyond if rounded > grid.max else rounded
    return math.copysign(rounded, x) + grid.zero


@scalar
def in_range_quickly(x, rounded, grid):
    """Give a rounded magnitude the sign of `x`, in modes in which both signs overflow to what an infinity becomes."""
    rounded = grid.overflow_positive if rounded > grid.max else rounded
    return math.copysign(rounded, x) + grid.zero


@scalar
def round_by_threshold(x, word, grid):
    """Round up or down at random; `word` holds 32 random bits, of which the upper ones are used."""
    magnitude = abs(x)
    power = power_below(magnitude, grid)
    lower = lower_neighbour(magnitude, power, grid)
    rounded = fma(power, grid.epsilon, lower) if magnitude - lower >= threshold(word, grid) * power else lower
    return in_range_quickly(x, rounded, grid)


def _for_type(floating: Any, unsigned: Any, fraction: int) -> tuple[Any, Any]:
    """(threshold, drawn) in the arithmetic of a type with so many bits of fraction and its images."""
    word_type = np.uint32

    @scalar
    def threshold(word, grid):
        draw = shift_right(word_type(word), word_type(grid.random_shift))
        part = fma(-floating(draw), grid.random_step, grid.random_start)
        # A distance is a multiple of the number's own last bit, which a threshold with its last bit set never equals:
        # met exactly, an odd draw then does not round up.
        last = unsigned(word_type(draw & word_type(grid.random_strict)))
        return unsigned(floating(part).view(unsigned) | last).view(floating)

    @scalar
    def round_at_random(x, word, grid):
        one = unsigned(1)
        drop = unsigned(unsigned(fraction) - unsigned(grid.mantissa_bits))
        step = unsigned(drop - unsigned(floating(32.0) - grid.random_shift))  # bits of the image below a draw's
        mask = unsigned(~unsigned(shift_left(one, drop) - one))
        half = shift_right(shift_left(one, step), one) if grid.random_start < grid.epsilon else unsigned(0)
        draw = shift_right(word_type(word), word_type(grid.random_shift))
        strict = unsigned(word_type(draw & word_type(grid.random_strict)))
        # Half a step for variants B and C, whose thresholds lie in the middle of two steps; one tiny bit less for an
        # odd draw of variant C, which must be exceeded. What the sum carries into the kept bits is then the decision
        # itself.
        added = unsigned(unsigned(shift_left(unsigned(draw), step) + half) - strict)
        magnitude = abs(x)
        # Below the smallest normal number the grid's spacing stays: with that number added, the image has it too. The
        # sum is exact, or this way is not taken (see the first lines).
        base = grid.min_normal if magnitude < grid.min_normal else floating(0.0)
        image = floating(magnitude + base).view(unsigned)
        rounded = unsigned(unsigned(image + added) & mask).view(floating) - base
        # The bits of a NaN might carry into its sign.
        return in_range_quickly(x, rounded if x == x else x, grid)

    return threshold, round_at_random


_threshold32, _round_at_random32 = _for_type(np.float32, np.uint32, 23)
_threshold64, _round_at_random64 = _for_type(np.float64, np.uint64, 52)


@scalar
def round_total_at_random(x, word, grid):
    """Round a finite number in float64 at random in its image, by a draw of any length.

    Of a draw that is longer than what is cut off, the bits below decide nothing.
    """
    one, drop, bits = np.uint64(1), np.uint64(52.0 - grid.mantissa_bits), np.uint64(32.0 - grid.random_shift)
    mask = np.uint64(~np.uint64(shift_left(one, drop) - one))
    unread = np.uint64(drop - bits) if bits < drop else np.uint64(0)  # bits that are cut off, below those of a draw
    read = np.uint64(shift_left(one, drop) - shift_left(one, unread))
    half = shift_right(shift_left(one, unread), one) if grid.random_start < grid.epsilon else np.uint64(0)
    strict = np.uint64(grid.random_strict) if bits < drop else np.uint64(0)
    draw = np.uint64(shift_right(shift_left(np.uint64(word), np.uint64(32)), np.uint64(np.uint64(64) - drop)) & read)
    added = np.uint64(np.uint64(draw + half) - np.uint64(shift_right(draw, unread) & strict))
    magnitude = abs(x)
    base = grid.min_normal if magnitude < grid.min_normal else 0.0
    image = np.uint64(np.float64(magnitude + base).view(np.uint64) + added)
    return in_range_quickly(x, np.uint64(image & mask).view(np.float64) - base, grid)


def threshold(word, grid):
    """The part of its binade from which on a number above its lower neighbour is rounded away from zero.

    The larger the draw, the lower the threshold, in all three variants of P3109. A threshold has one bit more than the
    draw, which leaves the last one of the type free: where it is set, no distance meets the threshold.
    """
    return (_threshold32 if isinstance(grid.epsilon, np.float32) else _threshold64)(word, grid)


def round_at_random(x, word, grid):
    """Round up or down at random, in the image."""
    return (_round_at_random32 if isinstance(x, np.float32) else _round_at_random64)(x, word, grid)


@overload(threshold, jit_options={"forceinline": True})
def _overload_threshold(word, grid):
    chosen = _threshold32 if grid.types[0] == types.float32 else _threshold64
    return lambda word, grid: chosen(word, grid)


@overload(round_at_random, jit_options={"forceinline": True})
def _overload_round_at_random(x, word, grid):
    chosen = _round_at_random32 if x == types.float32 else _round_at_random64
    return lambda x, word, grid: chosen(x, word, grid)


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
