"""Rounding of an exact result to FP64 in any deterministic mode, from a pair of float64 and an exponent."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.compile.intrinsics import floor
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import scale_by_power
from simfloat.kernels.rounding.one_number import in_range


@scalar
def _goes_up(position, is_odd, negative, grid):
    """Return True if the mode chooses the upper neighbour.

    `position` is 0, or 0.25 below, 0.5 at and 0.75 above the midpoint of the neighbours.
    """
    start = (grid.away_negative if negative else grid.away_positive) + (grid.away_odd if is_odd else 0.0)
    return position > 0.0 and position >= start


@scalar
def _round_units(units, rest, negative, grid):
    """Round units + rest to an integer; `rest` is below the last bit of a units value that is not zero."""
    whole = floor(units)
    part = units - whole
    if part == 0.0 and rest < 0.0:
        whole, part = whole - 1.0, 1.0
    is_half = part == 0.5 and rest == 0.0
    is_below = part < 0.5 or (part == 0.5 and rest < 0.0)
    position = 0.0 if part == 0.0 and rest == 0.0 else 0.5 if is_half else 0.25 if is_below else 0.75
    return whole + 1.0 if _goes_up(position, whole % 2.0 == 1.0, negative, grid) else whole


@scalar
def _round_significand(magnitude, rest, negative, grid):
    """Round magnitude + rest to 53 bits, where the magnitude is the nearest float64 value."""
    image = np.uint64(np.float64(magnitude).view(np.uint64) - np.uint64(rest < 0.0))
    lower, upper = image.view(np.float64), np.uint64(image + np.uint64(1)).view(np.float64)
    # The distance from the magnitude, compared with half of the spacing.
    excess = 2.0 * abs(rest) - (upper - lower)
    position = 0.0 if rest == 0.0 else 0.5 if excess == 0.0 else 0.25 if (excess < 0.0) == (rest > 0.0) else 0.75
    return upper if _goes_up(position, (image & np.uint64(1)) != np.uint64(0), negative, grid) else lower


@scalar
def round_pair_to_double_in_mode(high, low, exponent, grid):
    """Round (high + low) * 2^exponent to FP64 in the mode of the grid, where high is the rounding of the sum."""
    if high == 0.0 or not abs(high) < np.inf:
        return in_range(high, abs(high), grid)
    negative = high < 0.0
    magnitude, rest = abs(high), -low if negative else low
    if scale_by_power(magnitude, exponent) < 2.0**-1021:
        # Gradual underflow: round in units of the smallest number. Values far below one unit are rounded alike.
        lifted = max(exponent + 1074, -200)
        units = _round_units(scale_by_power(magnitude, lifted), scale_by_power(rest, lifted), negative, grid)
        return in_range(high, units * 5e-324, grid)
    return in_range(high, scale_by_power(_round_significand(magnitude, rest, negative, grid), exponent), grid)
