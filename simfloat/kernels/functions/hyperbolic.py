"""Hyperbolic functions and their inverses: expm1, sinh and cosh, then asinh, acosh and atanh.

The first three use exp(x) = 2^k (1 + q), without cancellation; the inverses use logarithms of numbers of at least one.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.compile.intrinsics import round_sum_to_odd
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import (
    add_number,
    add_pairs,
    divide_pairs,
    multiply_pairs,
    power_of_two,
    quick_two_sum,
    root_of_pair,
    split,
    two_product,
    two_sum,
)
from simfloat.kernels.functions.constants import SPECK
from simfloat.kernels.functions.exponential import exp_less_one, exp_pair
from simfloat.kernels.functions.powers_and_logarithms import log1p_pair, log_pair

#: A number below 2^-TINY times another one only matters by its sign.
TINY = 200


@scalar
def _expm1(x):
    """Return (high, low, k) with exp(x) - 1 = (high + low) 2^k and k >= 0, for 2^-300 <= |x| <= 2000."""
    q, q_low, k = exp_less_one(x)
    scale = power_of_two(max(min(k, 0), -TINY))
    # 2^k (1 + q) - 1 for k <= 0, 1 + q - 2^-k for k > 0: the difference of the powers is exact, and 0 for k = 0.
    rest, rest_low = two_sum(scale, -power_of_two(-max(min(k, TINY), 0)))
    high, low = add_pairs(rest, rest_low, scale * q, scale * q_low)
    return high, low, max(k, 0)


@scalar
def expm1_quick(x):
    """Return exp(x) - 1 for zero and 2^-300 <= |x| <= 600."""
    inside = abs(x) <= 600.0
    high, low, k = _expm1(x if inside else 0.0)
    result = round_sum_to_odd(high, low) * power_of_two(k) if inside else np.nan
    return x if x == 0.0 else result


@scalar
def expm1_wide(x):
    """Return exp(x) - 1."""
    if not abs(x) < np.inf or x == 0.0:
        return -1.0 if x == -np.inf else x, 0.0, 0
    if abs(x) < 2.0**-60:
        # x + x^2 / 2, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, abs(significand) * max(0.5 * abs(x), SPECK), exponent
    return _expm1(min(max(x, -2000.0), 2000.0))


@scalar
def _sinh(x):
    """Return (high, low, k) with sinh(x) = (high + low) 2^k, for 2^-30 <= |x| <= 2000."""
    # With u = exp|x| - 1: sinh|x| = (u + u / (1 + u)) / 2
    u, u_low, k = _expm1(abs(x))
    scale = power_of_two(-min(k, TINY))
    d, d_low = add_number(u, u_low, scale)
    v, v_low = divide_pairs(u, u_low, d, d_low)
    high, low = add_pairs(u, u_low, scale * v, scale * v_low)
    return math.copysign(high, x), low if x > 0.0 else -low, k - 1


@scalar
def sinh_quick(x):
    """Return sinh(x) for zero and 2^-300 <= |x| <= 600."""
    small, inside = abs(x) < 2.0**-30, abs(x) <= 600.0
    high, low, k = _sinh(x if inside & (not small) else 1.0)
    result = round_sum_to_odd(high, low) * power_of_two(k)
    near = round_sum_to_odd(x, x * max(x * x / 6.0, SPECK))
    return (near if small else result) if inside else np.nan


@scalar
def sinh_wide(x):
    """Return sinh(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-30:
        # x + x^3 / 6, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, significand * max(x * x / 6.0, SPECK), exponent
    return _sinh(min(max(x, -2000.0), 2000.0))


@scalar
def _cosh(x):
    """Return (high, low, k) with cosh(x) = (high + low) 2^k, for 2^-30 <= |x| <= 2000."""
    high, low, k = exp_pair(abs(x))
    scale = power_of_two(-2 * min(k, TINY))
    v, v_low = divide_pairs(1.0, 0.0, high, low)
    high, low = add_pairs(high, low, scale * v, scale * v_low)
    return high, low, k - 1


@scalar
def cosh_quick(x):
    """Return cosh(x) for zero and 2^-300 <= |x| <= 600."""
    small, inside = abs(x) < 2.0**-30, abs(x) <= 600.0
    high, low, k = _cosh(x if inside & (not small) else 1.0)
    result = round_sum_to_odd(high, low) * power_of_two(k)
    near = round_sum_to_odd(1.0, max(0.5 * x * x, SPECK) if x != 0.0 else 0.0)
    return (near if small else result) if inside else np.nan


@scalar
def cosh_wide(x):
    """Return cosh(x)."""
    if not abs(x) < np.inf:
        return abs(x), 0.0, 0
    if abs(x) < 2.0**-30:
        high, low = quick_two_sum(1.0, max(0.5 * x * x, SPECK) if x != 0.0 else 0.0)
        return high, low, 0
    return _cosh(min(abs(x), 2000.0))


#: For larger x, asinh(x) and acosh(x) differ from log(2 x) by less than 2^-120.
LARGE = 2.0**60


@scalar
def _asinh(x):
    """Return asinh(x) as (high, low), for 2^-30 <= |x| < inf."""
    # With q = a^2 / (1 + sqrt(a^2 + 1)): asinh(a) = log(1 + a + q)
    a = abs(x) if abs(x) < LARGE else 1.0
    square, square_low = two_product(a, a)
    s, s_low = add_number(square, square_low, 1.0)
    s, s_low = root_of_pair(s, s_low)
    s, s_low = add_number(s, s_low, 1.0)
    q, q_low = divide_pairs(square, square_low, s, s_low)
    q, q_low = add_number(q, q_low, a)
    high, low = log1p_pair(q, q_low)
    far, far_low = log_pair(abs(x), 1.0)
    high, low = (high, low) if abs(x) < LARGE else (far, far_low)
    return math.copysign(high, x), low if x > 0.0 else -low


@scalar
def asinh_quick(x):
    """Return asinh(x) for zero and 2^-300 <= |x| < inf."""
    small, inside = abs(x) < 2.0**-30, abs(x) < np.inf
    high, low = _asinh(x if inside & (not small) else 1.0)
    result = round_sum_to_odd(x, -x * max(x * x / 6.0, SPECK)) if small else round_sum_to_odd(high, low)
    return result if inside else np.nan


@scalar
def asinh_wide(x):
    """Return asinh(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-30:
        # x - x^3 / 6, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, -significand * max(x * x / 6.0, SPECK), exponent
    high, low = _asinh(x)
    return high, low, 0


@scalar
def _acosh(x):
    """Return acosh(x) as (high, low), for 1 <= x < inf."""
    # With t = x - 1: acosh(x) = log(1 + t + sqrt(t (t + 2)))
    t, t_low = two_sum(x if x < LARGE else 1.0, -1.0)
    s, s_low = add_number(t, t_low, 2.0)
    s, s_low = multiply_pairs(s, s_low, t, t_low)
    s, s_low = root_of_pair(s, s_low)
    t, t_low = add_pairs(s, s_low, t, t_low)
    high, low = log1p_pair(t, t_low)
    far, far_low = log_pair(x, 1.0)
    return (high, low) if x < LARGE else (far, far_low)


@scalar
def acosh_quick(x):
    """Return acosh(x) for 1 <= x < inf."""
    inside = (x >= 1.0) & (x < np.inf)
    high, low = _acosh(x if inside else 1.0)
    return round_sum_to_odd(high, low) if inside else np.nan


@scalar
def acosh_wide(x):
    """Return acosh(x)."""
    if not (x >= 1.0 and x < np.inf):
        return x if x == np.inf else np.nan, 0.0, 0
    high, low = _acosh(x)
    return high, low, 0


@scalar
def _atanh(x):
    """Return atanh(x) as (high, low), for 2^-30 <= |x| < 1."""
    # atanh(a) = log(1 + 2 a / (1 - a)) / 2
    d, d_low = two_sum(1.0, -abs(x))
    q, q_low = divide_pairs(2.0 * abs(x), 0.0, d, d_low)
    high, low = log1p_pair(q, q_low)
    return math.copysign(0.5 * high, x), 0.5 * low if x > 0.0 else -0.5 * low


@scalar
def atanh_quick(x):
    """Return atanh(x) for zero and 2^-300 <= |x| < 1."""
    small, inside = abs(x) < 2.0**-30, abs(x) < 1.0
    high, low = _atanh(x if inside & (not small) else 0.5)
    result = round_sum_to_odd(x, x * max(x * x / 3.0, SPECK)) if small else round_sum_to_odd(high, low)
    return result if inside else np.nan


@scalar
def atanh_wide(x):
    """Return atanh(x)."""
    if not abs(x) < 1.0 or x == 0.0:
        return x if x == 0.0 else math.copysign(np.inf, x) if abs(x) == 1.0 else np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        # x + x^3 / 3, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, significand * max(x * x / 3.0, SPECK), exponent
    high, low = _atanh(x)
    return high, low, 0
