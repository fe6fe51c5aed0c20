"""1 / sqrt(x), decided by exact remainders."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import binade, fma, root, round_sum_to_odd
from simfloat.kernels.unrounded import split, two_product, two_sum


@scalar
def _remainder(x, q, d):
    """1 - x (q + d)^2 with its exact sign, where q is within an ulp of 1 / sqrt(x) and d is 0 or half an ulp of q."""
    p, e = two_product(q, q)
    high, low = two_product(x, p)
    g, f = two_product(x, e)
    c, c_low = two_product(x, q)
    # Terms near 2^-53, all multiples of 2^-107: where they cancel, their sum is one float64.
    s, e1 = two_sum(1.0 - high, -2.0 * d * c)
    s, e2 = two_sum(s, -low)
    s, e3 = two_sum(s, -g)
    large = s + (e1 + e2 + e3)
    # Terms near 2^-107, all multiples of 2^-161.
    t, t_low = two_sum(f, 2.0 * d * c_low)
    small, small_low = two_sum(t, d * d * x)
    s, s_low = two_sum(large, -small)
    return s + (s_low - (small_low + t_low))


@scalar
def _approximation(x):
    """1 / sqrt(x) within an ulp."""
    q = 1.0 / root(x)
    c, c_low = two_product(x, q)
    # One step of Newton's iteration.
    return fma(0.5 * q, fma(-c, q, 1.0) - c_low * q, q)


@scalar
def rsqrt_quick(x):
    """1 / sqrt(x) for 2^-300 <= x <= 2^300."""
    q = _approximation(x)
    return round_sum_to_odd(q, _remainder(x, q, 0.0))


@scalar
def rsqrt_wide(x):
    """1 / sqrt(x)."""
    if not 0.0 < x < np.inf:
        return 1.0 / x if x == 0.0 or x == np.inf else np.nan, 0.0, 0
    significand, exponent = split(x)
    if exponent % 2 != 0:
        significand, exponent = 2.0 * significand, exponent - 1
    high = _approximation(significand)
    # Move to the neighbour if the root lies beyond the midpoint.
    half = 2.0**-53 * binade(high)
    high += 2.0 * half if _remainder(significand, high, half) > 0.0 else 0.0
    high -= 2.0 * half if _remainder(significand, high, -half) < 0.0 else 0.0
    rest = _remainder(significand, high, 0.0)
    # 1 / sqrt(x) = high / sqrt(1 - rest)
    return high, high * (0.5 * rest + 0.375 * rest * rest), -(exponent // 2)
