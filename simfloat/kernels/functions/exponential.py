"""exp, and the functions that are computed from it: tanh and sigmoid."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, round_sum_to_odd
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import (
    add_number,
    add_pairs,
    divide_pairs,
    horner,
    horner_start,
    multiply_pairs,
    nearest_integer,
    power_of_two,
    quick_two_sum,
    split,
    two_sum,
)
from simfloat.kernels.functions.constants import LN2_A, LN2_B, LN2_C, LOG2_E, SPECK, pair

E2, E3, E4, E5, E6, E7 = (pair(Fraction(1, math.factorial(n))) for n in range(2, 8))
E8, E9, E10, E11, E12, E13, E14, E15, E16, E17, E18 = (1 / math.factorial(n) for n in range(8, 19))


@scalar
def exp_less_one(x):
    """Return (q, q_low, k) with exp(x) = 2^k (1 + q) and |x - k ln 2| <= ln 2 / 2, for |x| <= 2000."""
    # ln 2 in three pieces: k times the first two is exact, so subtracting them leaves the remainder with all its bits,
    # although most of x cancels.
    k = nearest_integer(x * LOG2_E[0])
    r, r_low = two_sum(fma(-k, LN2_A, x), -k * LN2_B)
    r, r_low = quick_two_sum(r, r_low - k * LN2_C)
    # The Taylor series; terms with 1/8! and later ones are below 2^-27 of the sum, so float64 is enough for them.
    p = fma(fma(fma(fma(fma(E18, r, E17), r, E16), r, E15), r, E14), r, E13)
    p = fma(fma(fma(fma(fma(p, r, E12), r, E11), r, E10), r, E9), r, E8)
    s, s_low = horner_start(p, r, E7[0], E7[1])
    s, s_low = horner(s, s_low, r, r_low, E6[0], E6[1])
    s, s_low = horner(s, s_low, r, r_low, E5[0], E5[1])
    s, s_low = horner(s, s_low, r, r_low, E4[0], E4[1])
    s, s_low = horner(s, s_low, r, r_low, E3[0], E3[1])
    s, s_low = horner(s, s_low, r, r_low, E2[0], E2[1])
    t, t_low = multiply_pairs(s, s_low, r, r_low)
    t, t_low = multiply_pairs(t, t_low, r, r_low)
    q, q_low = quick_two_sum(r, t)
    return q, q_low + (t_low + r_low), np.int64(k)


@scalar
def exp_pair(x):
    """Return (high, low, k) with exp(x) = (high + low) 2^k, for |x| <= 2000."""
    q, q_low, k = exp_less_one(x)
    high, low = quick_two_sum(1.0, q)
    high, low = quick_two_sum(high, low + q_low)
    return high, low, k


@scalar
def exp_quick(x):
    """Return exp(x) for |x| <= 600."""
    high, low, k = exp_pair(x if abs(x) <= 600.0 else 0.0)
    return round_sum_to_odd(high, low) * power_of_two(k) if abs(x) <= 600.0 else np.nan


@scalar
def exp_wide(x):
    """Return exp(x)."""
    if not abs(x) < np.inf:
        return x if x > 0.0 else 0.0 if x < 0.0 else np.nan, 0.0, 0
    # At 2000 and beyond, the result is out of the range of every format.
    return exp_pair(min(max(x, -2000.0), 2000.0))


@scalar
def _tanh(x):
    """Return tanh(x) as (high, low), for 2^-30 <= |x| <= 80."""
    # With u = exp(-2|x|) - 1 = 2^k q + (2^k - 1): tanh|x| = -u / (2 + u)
    q, q_low, k = exp_less_one(-2.0 * abs(x))
    scale = power_of_two(k)
    rest, rest_low = two_sum(scale, -1.0)
    u, u_low = add_pairs(scale * q, scale * q_low, rest, rest_low)
    d, d_low = add_number(u, u_low, 2.0)
    high, low = divide_pairs(-u, -u_low, d, d_low)
    return math.copysign(high, x), low if x > 0.0 else -low


@scalar
def tanh_quick(x):
    """Return tanh(x) for zero and 2^-300 < |x| <= 80."""
    small = abs(x) < 2.0**-30
    high, low = _tanh(x if (abs(x) <= 80.0) & (not small) else 1.0)
    high = x if small else high
    low = -x * max(x * x / 3.0, SPECK) if small else low
    return round_sum_to_odd(high, low) if abs(x) <= 80.0 else np.nan


@scalar
def tanh_wide(x):
    """Return tanh(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return math.copysign(1.0, x) if abs(x) == np.inf else x, 0.0, 0
    if abs(x) < 2.0**-30:
        # x - x^3 / 3, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, -significand * max(x * x / 3.0, SPECK), exponent
    if abs(x) > 80.0:
        return math.copysign(1.0, x), -math.copysign(SPECK, x), 0
    high, low = _tanh(x)
    return high, low, 0


@scalar
def _sigmoid(x):
    """Return (high, low, k) with 1 / (1 + exp(-x)) = (high + low) 2^k, for |x| <= 2000."""
    # With t = exp(-|x|) = 2^k (1 + q): 1 / (1 + t) for positive x, t / (1 + t) otherwise
    t, t_low, k = exp_pair(-abs(x))
    # Only the sign of a tiny t matters.
    scale = power_of_two(max(k, -200))
    d, d_low = quick_two_sum(1.0, scale * t)
    numerator = 1.0 if x > 0.0 else t
    high, low = divide_pairs(numerator, 0.0 if x > 0.0 else t_low, d, d_low + scale * t_low)
    return high, low, np.int64(0) if x > 0.0 else k


@scalar
def sigmoid_quick(x):
    """Return 1 / (1 + exp(-x)) for |x| <= 600."""
    high, low, k = _sigmoid(x if abs(x) <= 600.0 else 0.0)
    return round_sum_to_odd(high, low) * power_of_two(k) if abs(x) <= 600.0 else np.nan


@scalar
def sigmoid_wide(x):
    """Return 1 / (1 + exp(-x))."""
    if not abs(x) < np.inf:
        return 1.0 if x > 0.0 else 0.0 if x < 0.0 else np.nan, 0.0, 0
    if abs(x) < 2.0**-300:
        # 1 / 2 + x / 4; the sign of x / 4 is enough
        return 0.5, math.copysign(SPECK, x) if x != 0.0 else 0.0, 0
    return _sigmoid(min(max(x, -2000.0), 2000.0))
