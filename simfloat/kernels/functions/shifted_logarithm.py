"""log1p, the logarithm of 1 + x."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.functions.constants import SPECK
from simfloat.kernels.functions.logarithm import log_pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import round_sum_to_odd
from simfloat.kernels.pairs import add_pairs, divide_pairs
from simfloat.kernels.unrounded import split, two_sum


@scalar
def log1p_pair(x, x_low):
    """log(1 + x + x_low) as (high, low), for x > -1 and 2^-300 <= |x|."""
    # 1 + x = s + e, and log(s + e) = log(s) + z - z^2 / 2 with z = e / s, at most 2^-53.
    s, e = two_sum(1.0, x)
    e, e_low = two_sum(e, x_low)
    z, z_low = divide_pairs(e, e_low, s, 0.0)
    high, low = log_pair(s, 0.0)
    return add_pairs(high, low, z, z_low - 0.5 * z * z)


@scalar
def log1p_quick(x):
    """log(1 + x) for x > -1, zero and 2^-300 <= |x|."""
    inside = (x > -1.0) & (x < np.inf)
    high, low = log1p_pair(x if inside else 0.0, 0.0)
    result = round_sum_to_odd(high, low) if inside else np.nan
    return x if x == 0.0 else result


@scalar
def log1p_wide(x):
    """log(1 + x)."""
    if not (x > -1.0 and x < np.inf) or x == 0.0:
        return -np.inf if x == -1.0 else np.nan if x < -1.0 else x, 0.0, 0
    if abs(x) < 2.0**-60:
        # x - x^2 / 2, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, -abs(significand) * max(0.5 * abs(x), SPECK), exponent
    high, low = log1p_pair(x, 0.0)
    return high, low, 0
