"""expm1, sinh and cosh, by exp(x) = 2^k (1 + q), of which nothing cancels."""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.functions.constants import SPECK
from simfloat.kernels.functions.exponential import exp_less_one, exp_pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import round_sum_to_odd
from simfloat.kernels.pairs import add_number, add_pairs, divide_pairs, quick_two_sum
from simfloat.kernels.unrounded import power_of_two, split, two_sum

#: Numbers below 2^-TINY times another count by their sign alone.
TINY = 200


@scalar
def _expm1(x):
    """(high, low, k) with exp(x) - 1 = (high + low) 2^k and k >= 0, for 2^-300 <= |x| <= 2000."""
    q, q_low, k = exp_less_one(x)
    scale = power_of_two(max(min(k, 0), -TINY))
    # 2^k (1 + q) - 1 for k <= 0, 1 + q - 2^-k above: the difference of the powers is exact, and 0 for k = 0.
    rest, rest_low = two_sum(scale, -power_of_two(-max(min(k, TINY), 0)))
    high, low = add_pairs(rest, rest_low, scale * q, scale * q_low)
    return high, low, max(k, 0)


@scalar
def expm1_quick(x):
    """exp(x) - 1 for zero and 2^-300 <= |x| <= 600."""
    inside = abs(x) <= 600.0
    high, low, k = _expm1(x if inside else 0.0)
    result = round_sum_to_odd(high, low) * power_of_two(k) if inside else np.nan
    return x if x == 0.0 else result


@scalar
def expm1_wide(x):
    """exp(x) - 1."""
    if not abs(x) < np.inf or x == 0.0:
        return -1.0 if x == -np.inf else x, 0.0, 0
    if abs(x) < 2.0**-60:
        # x + x^2 / 2, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, abs(significand) * max(0.5 * abs(x), SPECK), exponent
    return _expm1(min(max(x, -2000.0), 2000.0))


@scalar
def _sinh(x):
    """(high, low, k) with sinh(x) = (high + low) 2^k, for 2^-30 <= |x| <= 2000."""
    # With u = exp|x| - 1: sinh|x| = (u + u / (1 + u)) / 2
    u, u_low, k = _expm1(abs(x))
    scale = power_of_two(-min(k, TINY))
    d, d_low = add_number(u, u_low, scale)
    v, v_low = divide_pairs(u, u_low, d, d_low)
    high, low = add_pairs(u, u_low, scale * v, scale * v_low)
    return math.copysign(high, x), low if x > 0.0 else -low, k - 1


@scalar
def sinh_quick(x):
    """sinh(x) for zero and 2^-300 <= |x| <= 600."""
    small, inside = abs(x) < 2.0**-30, abs(x) <= 600.0
    high, low, k = _sinh(x if inside & (not small) else 1.0)
    result = round_sum_to_odd(high, low) * power_of_two(k)
    near = round_sum_to_odd(x, x * max(x * x / 6.0, SPECK))
    return (near if small else result) if inside else np.nan


@scalar
def sinh_wide(x):
    """sinh(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-30:
        # x + x^3 / 6, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, significand * max(x * x / 6.0, SPECK), exponent
    return _sinh(min(max(x, -2000.0), 2000.0))


@scalar
def _cosh(x):
    """(high, low, k) with cosh(x) = (high + low) 2^k, for 2^-30 <= |x| <= 2000."""
    high, low, k = exp_pair(abs(x))
    scale = power_of_two(-2 * min(k, TINY))
    v, v_low = divide_pairs(1.0, 0.0, high, low)
    high, low = add_pairs(high, low, scale * v, scale * v_low)
    return high, low, k - 1


@scalar
def cosh_quick(x):
    """cosh(x) for zero and 2^-300 <= |x| <= 600."""
    small, inside = abs(x) < 2.0**-30, abs(x) <= 600.0
    high, low, k = _cosh(x if inside & (not small) else 1.0)
    result = round_sum_to_odd(high, low) * power_of_two(k)
    near = round_sum_to_odd(1.0, max(0.5 * x * x, SPECK) if x != 0.0 else 0.0)
    return (near if small else result) if inside else np.nan


@scalar
def cosh_wide(x):
    """cosh(x)."""
    if not abs(x) < np.inf:
        return abs(x), 0.0, 0
    if abs(x) < 2.0**-30:
        high, low = quick_two_sum(1.0, max(0.5 * x * x, SPECK) if x != 0.0 else 0.0)
        return high, low, 0
    return _cosh(min(abs(x), 2000.0))
