"""The rounding of one number to a plain grid (see grid.has_plain_grid), in float32 or float64.

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
