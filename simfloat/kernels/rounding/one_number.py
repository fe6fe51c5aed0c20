"""Rounding of one number: to a plain grid (see `grid.has_plain_grid`), at random, and to any grid in any mode.

**To a plain grid, in float32 or float64.** The last bit of an anchor is worth one spacing. Adding the anchor to a
magnitude and subtracting it again leaves the nearest multiple of the spacing, ties to even: the hardware rounds. The
part that was rounded off is then known exactly, and decides the other modes. Below the smallest normal number the
spacing and the anchor are constant, so gradual underflow needs no special case. An anchor is a power of two times
another, so one fused multiply-add computes and adds it.

**At random, to a plain grid.** Two methods give the same bits. `round_by_threshold` compares the part that would be
dropped with a threshold. It works for every number that can be rounded. `round_at_random` adds the draw to the bit
pattern of the number, as an integer: if the sum reaches the next number of the grid, it carries into the kept bits. It
takes half as many operations, but requires that numbers below the smallest normal number stay exact when this number is
added to them; they then have the spacing of the grid. A draw is the upper bits of a word. In variant C of P3109 the
distance must exceed an odd draw, not equal it, because a distance half a step below it counts as the even step below.

**To any grid, in float64, without attention to speed.** The steps are the same as for a plain grid. They also handle
significands of one bit, missing subnormal numbers, missing signs, and grids that reach the ends of the range of
float64: such numbers are first scaled towards one by a power of two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from simfloat.kernels.compile.intrinsics import binade, fma, round_sum_to_odd, shift_left, shift_right
from simfloat.kernels.compile.jit import out_of_line, overload, scalar
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
    # The comparisons are joined by `&`: `and` is a branch in Numba, and LLVM would not vectorise the loop. `rest > 0`
    # keeps numbers of the grid unchanged in modes that round any part up.
    spacing = power * grid.epsilon
    return _in_range(x, lower + spacing if (rest > 0.0) & (rest >= part * spacing) else lower, grid)


@scalar
def to_odd(x, grid):
    """Round to the neighbour with an odd significand."""
    magnitude = abs(x)
    power = power_below(magnitude, grid)
    lower = lower_neighbour(magnitude, power, grid)
    # The even one of two neighbours is the nearest multiple of two spacings.
    is_even = _nearest(magnitude, power + power, grid) == lower
    return _in_range(x, fma(power, grid.epsilon, lower) if (magnitude > lower) & is_even else lower, grid)


@scalar
def one_nan(x):
    """Return `x`, with every NaN replaced by the positive quiet NaN: processors differ in the NaN they produce."""
    return x if x == x else np.nan


@scalar
def power_below(magnitude, grid):
    """Return the power of two that scales spacing and anchor: the binade of the magnitude, limited to the grid."""
    return min(max(binade(magnitude), grid.min_normal), grid.top)


@scalar
def _nearest(magnitude, power, grid):
    """Return the nearest multiple of the spacing, ties to even."""
    # The product with `magic` is a power of two, so this adds the anchor and subtracts it, without separate products.
    # Every step of a sum waits for this chain of operations, so each instruction less shows in the rate.
    return fma(-power, grid.magic, fma(power, grid.magic, magnitude))


@scalar
def lower_neighbour(magnitude, power, grid):
    """Return the largest multiple of the spacing that is not above a magnitude."""
    near = _nearest(magnitude, power, grid)
    return fma(-power, grid.epsilon, near) if near > magnitude else near


@scalar
def _in_range(x, rounded, grid):
    """Return a rounded magnitude with the sign of `x`, or the result for values beyond the largest number."""
    beyond = grid.overflow_negative if x < 0.0 else grid.overflow_positive
    beyond = grid.infinite if abs(x) == np.inf else beyond
    rounded = beyond if rounded > grid.max else rounded
    return math.copysign(rounded, x) + grid.zero


@scalar
def in_range_quickly(x, rounded, grid):
    """Return a rounded magnitude with the sign of `x`, in modes in which both signs overflow to the same magnitude."""
    rounded = grid.overflow_positive if rounded > grid.max else rounded
    return math.copysign(rounded, x) + grid.zero


@scalar
def round_by_threshold(x, word, grid):
    """Round up or down at random; `word` contains 32 random bits, and the upper ones are used."""
    magnitude = abs(x)
    power = power_below(magnitude, grid)
    lower = lower_neighbour(magnitude, power, grid)
    rounded = fma(power, grid.epsilon, lower) if magnitude - lower >= threshold(word, grid) * power else lower
    return in_range_quickly(x, rounded, grid)


def _for_type(floating: Any, unsigned: Any, fraction: int) -> tuple[Any, Any]:
    """Return (threshold, round_at_random) for a type with `fraction` fraction bits and `unsigned` bit patterns."""
    word_type = np.uint32

    @scalar
    def threshold(word, grid):
        draw = shift_right(word_type(word), word_type(grid.random_shift))
        part = fma(-floating(draw), grid.random_step, grid.random_start)
        # A distance is a multiple of the last bit of the number, so it never equals a threshold with its last bit set.
        # An odd draw that equals the distance exactly therefore does not round up.
        last = unsigned(word_type(draw & word_type(grid.random_strict)))
        return unsigned(floating(part).view(unsigned) | last).view(floating)

    @scalar
    def round_at_random(x, word, grid):
        one = unsigned(1)
        drop = unsigned(unsigned(fraction) - unsigned(grid.mantissa_bits))
        step = unsigned(drop - unsigned(floating(32.0) - grid.random_shift))  # bits of the bit pattern below a draw
        mask = unsigned(~unsigned(shift_left(one, drop) - one))
        half = shift_right(shift_left(one, step), one) if grid.random_start < grid.epsilon else unsigned(0)
        draw = shift_right(word_type(word), word_type(grid.random_shift))
        strict = unsigned(word_type(draw & word_type(grid.random_strict)))
        # Half a step is added for variants B and C: their thresholds are in the middle between two steps. For an odd
        # draw of variant C, which the distance must exceed, one tiny bit is subtracted. The carry into the kept bits is
        # then the decision.
        added = unsigned(unsigned(shift_left(unsigned(draw), step) + half) - strict)
        magnitude = abs(x)
        # The grid has a constant spacing below the smallest normal number. With that number added, the bit pattern has
        # the same spacing. The sum is exact; otherwise this method is not used (see the module docstring).
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
    """Round a finite float64 number at random by its bit pattern, with a draw of any length.

    If a draw is longer than the dropped part, its lower bits decide nothing.
    """
    one, drop, bits = np.uint64(1), np.uint64(52.0 - grid.mantissa_bits), np.uint64(32.0 - grid.random_shift)
    mask = np.uint64(~np.uint64(shift_left(one, drop) - one))
    unread = np.uint64(drop - bits) if bits < drop else np.uint64(0)  # dropped bits below a draw
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
    """Return the part of its binade from which the distance to the lower neighbour is rounded away from zero.

    The larger the draw, the lower the threshold, in all three variants of P3109. A threshold has one bit more than the
    draw, so the last bit of the type is free: if it is set, no distance equals the threshold.
    """
    return (_threshold32 if isinstance(grid.epsilon, np.float32) else _threshold64)(word, grid)


def round_at_random(x, word, grid):
    """Round up or down at random, by the bit pattern."""
    return (_round_at_random32 if isinstance(x, np.float32) else _round_at_random64)(x, word, grid)


@overload(threshold)
def _overload_threshold(word, grid):
    chosen = _threshold32 if grid.types[0] == types.float32 else _threshold64
    return lambda word, grid: chosen(word, grid)


@overload(round_at_random)
def _overload_round_at_random(x, word, grid):
    chosen = _round_at_random32 if x == types.float32 else _round_at_random64
    return lambda x, word, grid: chosen(x, word, grid)


#: An even power, so that exponents keep their parity.
SHIFT = 2.0**128

#: All magnitudes at least this many binades below the smallest normal number are rounded alike: to zero or to the
#: smallest number.
DEEP = 300


@scalar
def round_to_any_grid(x, word, grid):
    """Round a float64 number; `word` contains 32 random bits."""
    # Only formats that reach the ends of float64 need the scale; otherwise it is 1. The shift is even, so that the
    # parity of exponents stays: codes of one significand bit depend on it.
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

    For results that need more digits than float64 has: a long draw reads them if p + bits + 2 > 53, and rounding to a
    format with numbers near 2^-1074 depends on digits below.
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
    """Return the magnitude of (high + low) * 2^exponent rounded in a deterministic mode."""
    # The exponent becomes even, so that codes keep their parity. Exponents far below the format are raised, because all
    # of their values are rounded alike.
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
    """Return the binade below which the spacing is constant: of the smallest normal number, or the next lower one."""
    return 0.5 * smallest if grid.min_normal < grid.least else smallest


@scalar
def _flush(rounded, smallest, grid):
    """Return a rounded magnitude, or zero if it is flushed; bits below the last one of float64 might round it up."""
    return 0.0 if grid.least != 0.0 and rounded < smallest else rounded


@scalar
def _round_magnitude(magnitude, negative, low, power, anchor, word, grid):
    """Return the magnitude rounded to multiples of power * epsilon; `low` if it is below the grid's first binade."""
    spacing = power * grid.epsilon
    single = grid.single_bit != 0.0
    odd_code = single and not low and _has_odd_code(magnitude, grid)
    if single and not low and not odd_code:
        # The significand is 1 on both sides of the tie; one more spacing swaps which side counts as even.
        anchor += spacing
    # float64 rounds the sum to the last bit of the anchor, which is worth one spacing: two additions give the nearest
    # multiple, ties to even. fastmath is off; otherwise the compiler would cancel them.
    near = (magnitude + anchor) - anchor
    if grid.nearest_even != 0.0:
        return near
    lower = near - spacing if near > magnitude else near
    rest = magnitude - lower
    if grid.random_step != 0.0:
        return lower + spacing if rest >= threshold(word, grid) * power else lower
    # The even one of two neighbours is the nearest multiple of two spacings.
    is_odd = odd_code if single else (magnitude + 2.0 * anchor) - 2.0 * anchor != lower
    part = grid.away_negative if negative else grid.away_positive
    part += grid.away_odd if is_odd else 0.0
    return lower + spacing if rest > 0.0 and rest >= part * spacing else lower


@scalar
def _round_pair_at_random(high, low, exponent, word, grid):
    """Return the magnitude of (high + low) * 2^exponent rounded at random."""
    magnitude, below = abs(high), low if high > 0.0 else -low
    # Far below the smallest number, no draw rounds up to it.
    smallest = power_of_two(min(max(np.int64(grid.emin) - exponent, -DEEP), DEEP))
    first = _first_binade(smallest, grid)
    if grid.cut != 0.0 and (magnitude < smallest or (magnitude == smallest and below < 0.0)):
        return 0.0
    power = max(binade(magnitude), first)
    spacing, anchor = power * grid.epsilon, power * grid.magic
    near = (magnitude + anchor) - anchor
    lower = near - spacing if near > magnitude else near
    if lower == magnitude and below < 0.0:
        # The exact result is just under a number of the grid. The spacing under a power of two is half as large.
        spacing = 0.5 * spacing if magnitude == power and magnitude > first else spacing
        lower = magnitude - spacing
    draw = np.uint32(word) >> np.uint32(grid.random_shift)
    # `below` is the part of the exact distance that float64 cannot represent. It is compared, not added: the sum would
    # be rounded, and if a distance equals the threshold exactly, its last bit decides.
    excess = (magnitude - lower) - (grid.random_start - draw * grid.random_step) * (spacing / grid.epsilon)
    meets = grid.random_strict == 0.0 or draw % np.uint32(2) == 0
    rounded = lower + spacing if excess > -below or (excess == -below and meets) else lower
    return scale_by_power(_flush(rounded, smallest, grid), exponent)


@scalar
def _power_toward_one(magnitude, grid):
    """Return the power of two that keeps anchors and spacings in the range of float64."""
    if grid.extended == 0.0:
        return 1.0
    if magnitude > 2.0**512:
        return 1.0 / SHIFT
    return SHIFT if magnitude < 2.0**-512 and grid.min_normal < 1.0 else 1.0


@scalar
def _has_odd_code(magnitude, grid):
    """Return True if the exponent field of the binade is odd in the format."""
    field = np.float64(magnitude).view(np.uint64) >> np.uint64(52)
    return np.float64(field & np.uint64(1)) != grid.code_parity


@scalar
def in_range(x, rounded, grid):
    """Return a rounded magnitude with the sign of `x`, or the result for values out of range."""
    beyond = grid.overflow_negative if x < 0.0 else grid.overflow_positive
    infinite = grid.infinite_negative if x < 0.0 else grid.infinite
    beyond = infinite if abs(x) == np.inf else beyond
    rounded = beyond if rounded > grid.max else rounded
    rounded = grid.small if rounded < grid.least else rounded
    rounded = grid.at_zero if x == 0.0 else rounded
    signed = math.copysign(rounded, x) + grid.zero
    return grid.below if signed < grid.lowest else signed
