"""Elementary functions to about 80 bits, from float64 additions, multiplications and divisions alone.

The C library's last bit differs between machines; these are the same everywhere. The relative error is below 2^-75,
far below half a unit of any format, and where a result is not exact the low part has the right sign, so that every
mode rounds as it should. Each function comes twice: `*_quick` gives round-to-odd in one float64 without a branch,
and NaN where it does not apply; `*_wide` gives (high, low, exponent) = (high + low) * 2^exponent for any operand.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.exact import power_of_two, split, two_sum
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import binade, fma, odd
from simfloat.kernels.pairs import add_number, add_pairs, divide_pairs, horner, multiply_pairs, quick_two_sum

#: ln 2 in pieces of 42, 42 and 53 bits: multiples of the first two by an exponent are exact.
LN2_A, LN2_B, LN2_C = 0.6931471805598903, 5.4979230187085024e-14, -1.3124698417785255e-27
LOG2_E = 1.4426950408889634

#: Less than this part of a result changes no rounding, but its sign does.
SPECK = 2.0**-200


def _pair(x: Fraction) -> tuple[float, float]:
    return float(x), float(x - Fraction(float(x)))


E2, E3, E4, E5, E6, E7 = (_pair(Fraction(1, math.factorial(n))) for n in range(2, 8))
E8, E9, E10, E11, E12, E13, E14, E15, E16, E17, E18 = (1 / math.factorial(n) for n in range(8, 19))
L1, L2, L3, L4 = (_pair(Fraction(2, 2 * n + 1)) for n in range(1, 5))
L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, L15 = (2 / (2 * n + 1) for n in range(5, 16))


@scalar
def _exp_less_one(x):
    """(q, q_low, k) with exp(x) = 2^k (1 + q) and |x - k ln 2| <= ln 2 / 2, for |x| <= 2000."""
    k = np.rint(x * LOG2_E)
    r, r_low = two_sum(fma(-k, LN2_A, x), -k * LN2_B)
    r, r_low = quick_two_sum(r, r_low - k * LN2_C)
    # The Taylor series; from 1/8! on a term is below 2^-27 of the sum, and float64 is enough for it.
    p = fma(fma(fma(fma(fma(E18, r, E17), r, E16), r, E15), r, E14), r, E13)
    p = fma(fma(fma(fma(fma(p, r, E12), r, E11), r, E10), r, E9), r, E8)
    s, s_low = horner(p, 0.0, r, r_low, E7[0], E7[1])
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
def _exp(x):
    """(high, low, k) with exp(x) = (high + low) 2^k, for |x| <= 2000."""
    q, q_low, k = _exp_less_one(x)
    high, low = quick_two_sum(1.0, q)
    high, low = quick_two_sum(high, low + q_low)
    return high, low, k


@scalar
def exp_quick(x):
    """exp(x) for |x| <= 600."""
    high, low, k = _exp(x if abs(x) <= 600.0 else 0.0)
    return odd(high, low) * power_of_two(k) if abs(x) <= 600.0 else np.nan


@scalar
def exp_wide(x):
    """exp(x)."""
    if not abs(x) < np.inf:
        return x if x > 0.0 else 0.0 if x < 0.0 else np.nan, 0.0, 0
    # At 2000 the result is out of every format's range, as it is beyond.
    return _exp(min(max(x, -2000.0), 2000.0))


@scalar
def _log(significand, exponent):
    """log(significand * 2^exponent) as (high, low), for 1 <= significand < 2."""
    above = significand > 1.4142135623730951
    m, e = 0.5 * significand if above else significand, exponent + 1.0 if above else exponent + 0.0
    # log m = 2 artanh s with s = (m - 1) / (m + 1), |s| < 0.172
    d, d_low = two_sum(m, 1.0)
    s, s_low = divide_pairs(m - 1.0, 0.0, d, d_low)
    z, z_low = multiply_pairs(s, s_low, s, s_low)
    p = fma(fma(fma(fma(fma(L15, z, L14), z, L13), z, L12), z, L11), z, L10)
    p = fma(fma(fma(fma(fma(p, z, L9), z, L8), z, L7), z, L6), z, L5)
    t, t_low = horner(p, 0.0, z, z_low, L4[0], L4[1])
    t, t_low = horner(t, t_low, z, z_low, L3[0], L3[1])
    t, t_low = horner(t, t_low, z, z_low, L2[0], L2[1])
    t, t_low = horner(t, t_low, z, z_low, L1[0], L1[1])
    t, t_low = multiply_pairs(t, t_low, z, z_low)
    t, t_low = multiply_pairs(t, t_low, s, s_low)
    t, t_low = add_pairs(2.0 * s, 2.0 * s_low, t, t_low)
    high, low = add_pairs(e * LN2_A, e * LN2_B, t, t_low)
    return quick_two_sum(high, low + e * LN2_C)


@scalar
def log_quick(x):
    """log(x) for positive normal numbers."""
    normal = (x >= 2.0**-1022) & (x < np.inf)
    safe = x if normal else 1.0
    power = binade(safe)
    exponent = np.int64(np.float64(power).view(np.uint64) >> np.uint64(52)) - 1023
    high, low = _log(safe / power, exponent)
    return odd(high, low) if normal else np.nan


@scalar
def log_wide(x):
    """log(x)."""
    if not x > 0.0 or x == np.inf:
        return -np.inf if x == 0.0 else x if x == np.inf else np.nan, 0.0, 0
    significand, exponent = split(x)
    high, low = _log(significand, exponent)
    return high, low, 0


@scalar
def _tanh(x):
    """tanh(x) as (high, low), for 2^-30 <= |x| <= 80."""
    # With u = exp(-2|x|) - 1 = 2^k q + (2^k - 1): tanh|x| = -u / (2 + u)
    q, q_low, k = _exp_less_one(-2.0 * abs(x))
    scale = power_of_two(k)
    rest, rest_low = two_sum(scale, -1.0)
    u, u_low = add_pairs(scale * q, scale * q_low, rest, rest_low)
    d, d_low = add_number(u, u_low, 2.0)
    high, low = divide_pairs(-u, -u_low, d, d_low)
    return math.copysign(high, x), low if x > 0.0 else -low


@scalar
def tanh_quick(x):
    """tanh(x) for zero and 2^-300 < |x| <= 80."""
    small = abs(x) < 2.0**-30
    high, low = _tanh(x if (abs(x) <= 80.0) & (not small) else 1.0)
    high = x if small else high
    low = -x * max(x * x / 3.0, SPECK) if small else low
    return odd(high, low) if abs(x) <= 80.0 else np.nan


@scalar
def tanh_wide(x):
    """tanh(x)."""
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
    """(high, low, k) with 1 / (1 + exp(-x)) = (high + low) 2^k, for |x| <= 2000."""
    # With t = exp(-|x|) = 2^k (1 + q): 1 / (1 + t) above zero, t / (1 + t) below
    t, t_low, k = _exp(-abs(x))
    # A tiny t counts by its sign alone.
    scale = power_of_two(max(k, -200))
    d, d_low = quick_two_sum(1.0, scale * t)
    numerator = 1.0 if x > 0.0 else t
    high, low = divide_pairs(numerator, 0.0 if x > 0.0 else t_low, d, d_low + scale * t_low)
    return high, low, np.int64(0) if x > 0.0 else k


@scalar
def sigmoid_quick(x):
    """1 / (1 + exp(-x)) for |x| <= 600."""
    high, low, k = _sigmoid(x if abs(x) <= 600.0 else 0.0)
    return odd(high, low) * power_of_two(k) if abs(x) <= 600.0 else np.nan


@scalar
def sigmoid_wide(x):
    """1 / (1 + exp(-x))."""
    if not abs(x) < np.inf:
        return 1.0 if x > 0.0 else 0.0 if x < 0.0 else np.nan, 0.0, 0
    return _sigmoid(min(max(x, -2000.0), 2000.0))
