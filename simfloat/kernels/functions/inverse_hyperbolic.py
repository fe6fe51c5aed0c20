"""asinh, acosh and atanh, by logarithms of one and more."""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.functions.constants import SPECK
from simfloat.kernels.functions.logarithm import log_pair
from simfloat.kernels.functions.shifted_logarithm import log1p_pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import round_sum_to_odd
from simfloat.kernels.pairs import add_number, add_pairs, divide_pairs, multiply_pairs, root_of_pair
from simfloat.kernels.unrounded import split, two_product, two_sum

#: From here on asinh(x) and acosh(x) are log(2 x) but for less than 2^-120.
LARGE = 2.0**60


@scalar
def _asinh(x):
    """asinh(x) as (high, low), for 2^-30 <= |x| < inf."""
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
    """asinh(x) for zero and 2^-300 <= |x| < inf."""
    small, inside = abs(x) < 2.0**-30, abs(x) < np.inf
    high, low = _asinh(x if inside & (not small) else 1.0)
    result = round_sum_to_odd(x, -x * max(x * x / 6.0, SPECK)) if small else round_sum_to_odd(high, low)
    return result if inside else np.nan


@scalar
def asinh_wide(x):
    """asinh(x)."""
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
    """acosh(x) as (high, low), for 1 <= x < inf."""
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
    """acosh(x) for 1 <= x < inf."""
    inside = (x >= 1.0) & (x < np.inf)
    high, low = _acosh(x if inside else 1.0)
    return round_sum_to_odd(high, low) if inside else np.nan


@scalar
def acosh_wide(x):
    """acosh(x)."""
    if not (x >= 1.0 and x < np.inf):
        return x if x == np.inf else np.nan, 0.0, 0
    high, low = _acosh(x)
    return high, low, 0


@scalar
def _atanh(x):
    """atanh(x) as (high, low), for 2^-30 <= |x| < 1."""
    # atanh(a) = log(1 + 2 a / (1 - a)) / 2
    d, d_low = two_sum(1.0, -abs(x))
    q, q_low = divide_pairs(2.0 * abs(x), 0.0, d, d_low)
    high, low = log1p_pair(q, q_low)
    return math.copysign(0.5 * high, x), 0.5 * low if x > 0.0 else -0.5 * low


@scalar
def atanh_quick(x):
    """atanh(x) for zero and 2^-300 <= |x| < 1."""
    small, inside = abs(x) < 2.0**-30, abs(x) < 1.0
    high, low = _atanh(x if inside & (not small) else 0.5)
    result = round_sum_to_odd(x, x * max(x * x / 3.0, SPECK)) if small else round_sum_to_odd(high, low)
    return result if inside else np.nan


@scalar
def atanh_wide(x):
    """atanh(x)."""
    if not abs(x) < 1.0 or x == 0.0:
        return x if x == 0.0 else math.copysign(np.inf, x) if abs(x) == 1.0 else np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        # x + x^3 / 3, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, significand * max(x * x / 3.0, SPECK), exponent
    high, low = _atanh(x)
    return high, low, 0
