"""Roots that exact remainders decide: the cube root, and the length of a vector of two coordinates."""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, root, round_sum_to_odd
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import power_of_two, quick_two_sum, split, two_product, two_sum
from simfloat.kernels.functions.constants import SPECK


@scalar
def _cube_remainder(m, y):
    """Return m - y^3 with its exact sign, for 1 <= m < 8 and y within a few ulps of the cube root of m."""
    square, square_low = two_product(y, y)
    cube, cube_low = two_product(square, y)
    middle, middle_low = two_product(square_low, y)
    # All terms are multiples of 2^-156, so the rounding errors of the last sum are below the remainder.
    s, e1 = two_sum(m - cube, -cube_low)
    s, e2 = two_sum(s, -middle)
    return s + (e1 + e2 - middle_low)


@scalar
def cbrt_wide(x):
    """Return the cube root of x."""
    if x == 0.0 or not abs(x) < np.inf:
        return x, 0.0, 0
    m, exponent = split(abs(x))
    third = exponent // 3
    m *= power_of_two(exponent - 3 * third)
    # A line that is within 9 % of the cube root from 1 to 8, and Halley's method, which cubes the error.
    y = fma(0.14, m, 0.93)
    for _ in range(4):
        cube = y * y * y
        y *= (cube + (m + m)) / (cube + cube + m)
    # A last step with the exact remainder: an exact root is found exactly.
    y += _cube_remainder(m, y) / (3.0 * y * y)
    high, low = quick_two_sum(y, _cube_remainder(m, y) / (3.0 * y * y))
    return math.copysign(high, x), low if x > 0.0 else -low, third


@scalar
def _length(a, b):
    """Return sqrt(a^2 + b^2) as (high, low), for a >= b >= 0; the low part is itself rounded to odd."""
    a_square, a_low = two_product(a, a)
    b_square, b_low = two_product(b, b)
    s, e = two_sum(a_square, b_square)
    high = root(s)
    # The remainder a^2 + b^2 - high^2 in parts that do not overlap, in ascending order (Shewchuk, Discrete and
    # Computational Geometry 18, 1997, theorem 10).
    p, p1 = two_sum(fma(-high, high, s), e)
    q, q1 = two_sum(p1, a_low)
    p, q2 = two_sum(p, q)
    r, r1 = two_sum(q1, b_low)
    r, r2 = two_sum(q2, r)
    p, r3 = two_sum(p, r)
    below = r3 + (r2 + r1)
    twice = 2.0 * high if high > 0.0 else 1.0
    low = (p + below) / twice
    # One more term of the expansion shows on which side of `low` the rest of the root is.
    product, error = two_product(twice, low)
    return quick_two_sum(high, round_sum_to_odd(low, ((p - product) - error + below) - low * low))


@scalar
def hypot_quick(x, y):
    """Return sqrt(x^2 + y^2) for zeros and 2^-300 <= |x|, |y| <= 2^300."""
    high, low = _length(max(abs(x), abs(y)), min(abs(x), abs(y)))
    # `max` and `min` return the other operand of a NaN.
    return round_sum_to_odd(high, low) if (x == x) & (y == y) else np.nan


@scalar
def hypot_wide(x, y):
    """Return sqrt(x^2 + y^2): infinite if x or y is, whatever the other one is."""
    if abs(x) == np.inf or abs(y) == np.inf:
        return np.inf, 0.0, 0
    if x != x or y != y:
        return np.nan, 0.0, 0
    a, exponent = split(max(abs(x), abs(y)))
    b, other = split(min(abs(x), abs(y)))
    if b == 0.0:
        return a, 0.0, exponent
    if exponent - other > 300:
        return a, SPECK, exponent
    high, low = _length(a, b * power_of_two(other - exponent))
    return high, low, exponent
