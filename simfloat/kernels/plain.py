"""The rounding of one number to a plain grid (see grid.plain), in float32 or float64.

Adding to a magnitude an anchor whose last bit is worth one spacing, and subtracting it again, leaves the nearest
multiple of the spacing, ties to even: the hardware rounds. What was cut off is then known exactly, and decides the
other modes. Below the smallest normal number the spacing, and with it the anchor, stops shrinking: underflow is
gradual without a special case. An anchor is a power of two times another, so a fused multiply-add makes and adds it
in one go.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import binade, fma


@scalar
def nearest(x, grid):
    """Round to nearest even."""
    magnitude = abs(x)
    return _in_range_quickly(x, _nearest(magnitude, _power(magnitude, grid), grid), grid)


@scalar
def directed(x, grid):
    """Round toward zero or an infinity, or to nearest with ties away."""
    magnitude = abs(x)
    power = _power(magnitude, grid)
    lower = _lower(magnitude, power, grid)
    rest = magnitude - lower
    part = grid.away_negative if x < 0.0 else grid.away_positive
    spacing = power * grid.epsilon
    return _in_range(x, lower + spacing if (rest > 0.0) & (rest >= part * spacing) else lower, grid)


@scalar
def to_odd(x, grid):
    """Round to the neighbour with an odd significand."""
    magnitude = abs(x)
    power = _power(magnitude, grid)
    lower = _lower(magnitude, power, grid)
    # Of two neighbours the even one is the nearest multiple of two spacings.
    is_even = _nearest(magnitude, power + power, grid) == lower
    return _in_range(x, fma(power, grid.epsilon, lower) if (magnitude > lower) & is_even else lower, grid)


@scalar
def stochastic(x, word, grid):
    """Round up or down at random; `word` holds 32 random bits, of which the upper ones are used."""
    return stochastic_from(x, threshold(word, grid), grid)


@scalar
def stochastic_from(x, part, grid):
    """Round away from zero what lies at least `part` of its binade above its lower neighbour."""
    magnitude = abs(x)
    power = _power(magnitude, grid)
    lower = _lower(magnitude, power, grid)
    rounded = fma(power, grid.epsilon, lower) if magnitude - lower >= part * power else lower
    return _in_range_quickly(x, rounded, grid)


@scalar
def threshold(word, grid):
    """The part of its binade from which on a number above its lower neighbour is rounded away from zero.

    The draw is the upper bits of `word`; the larger it is, the lower the threshold, in all three variants of P3109. A
    threshold has at most 33 bits, which float64 holds with room for one more: under variant C an odd draw must be
    exceeded, not met, because a distance that lies half a step below it counts as the even step below. With the last
    bit of float64 set no distance meets the threshold.
    """
    draw = (np.uint64(word) & np.uint64(0xFFFFFFFF)) >> np.uint64(grid.random_shift)
    part = fma(-np.float64(draw), grid.random_step, grid.random_start)
    return np.uint64(np.float64(part).view(np.uint64) | (draw & np.uint64(grid.random_strict))).view(np.float64)


@scalar
def one_nan(x):
    """`x`, with every NaN replaced by the positive quiet one: machines differ in the NaN they make."""
    return x if x == x else np.nan


@scalar
def _power(magnitude, grid):
    """The power of two that spacing and anchor are multiples of: the binade's, from the first to the last."""
    return min(max(binade(magnitude), grid.min_normal), grid.top)


@scalar
def _nearest(magnitude, power, grid):
    """The nearest multiple of the spacing, ties to even."""
    return fma(-power, grid.magic, fma(power, grid.magic, magnitude))


@scalar
def _lower(magnitude, power, grid):
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
def _in_range_quickly(x, rounded, grid):
    """The same for modes in which either sign overflows to what an infinity becomes."""
    rounded = grid.overflow_positive if rounded > grid.max else rounded
    return math.copysign(rounded, x) + grid.zero
