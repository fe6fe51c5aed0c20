"""atan, asin, acos and atan2: the angle of a point, by a table of arctangents and a short series."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.constants import SPECK, circle, pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma, round_sum_to_odd
from simfloat.kernels.pairs import (
    add_pairs,
    divide_pairs,
    horner,
    horner_start,
    multiply_pairs,
    quick_two_sum,
    root_of_pair,
)
from simfloat.kernels.unrounded import INTEGER, divide_wide, power_of_two, split, two_product, two_sum

_SHORT_PI = circle(200)
PI, ARC_HALF_PI = pair(_SHORT_PI), pair(_SHORT_PI / 2)

#: Quotients are taken by the nearest i / PARTS.
PARTS = 64

#: Taylor coefficients in d^2 of atan(d) / d, from the second on.
A1, A2 = pair(Fraction(-1, 3)), pair(Fraction(1, 5))
A3, A4, A5, A6 = (-1 / 7, 1 / 9, -1 / 11, 1 / 13)


def _arctangents() -> np.ndarray:
    """atan(i / PARTS) as pairs, by Euler's series of positive terms."""
    rows = np.zeros((PARTS + 1, 2))
    for i in range(1, PARTS + 1):
        square = Fraction(i * i, PARTS * PARTS + i * i)
        one = 1 << 160
        term = total = math.floor(square * Fraction(PARTS, i) * one)
        n = 0
        while term:
            n += 1
            term = term * (2 * n) * square.numerator // ((2 * n + 1) * square.denominator)
            total += term
        rows[i] = pair(Fraction(total, one))
    return rows


TABLE = _arctangents()


@scalar
def _arctangent(y, y_low, x, x_low):
    """atan(y / x) as (high, low) for 0 <= y <= x as pairs, x > 0."""
    # The table's place and the quotient that it stands for come of one addition. The quotient need not be right to the
    # last bit: d is computed from y and x themselves.
    shifted = fma(y / x, float(PARTS), INTEGER)
    i = np.float64(shifted).view(np.uint64) & np.uint64(127)
    c = (shifted - INTEGER) / PARTS
    # atan(y / x) = atan(c) + atan(d) with d = (y - c x) / (x + c y)
    p, p_low = two_product(c, x)
    n, n_low = add_pairs(y, y_low, -p, -fma(c, x_low, p_low))
    p, p_low = two_product(c, y)
    m, m_low = add_pairs(x, x_low, p, fma(c, y_low, p_low))
    d, d_low = divide_pairs(n, n_low, m, m_low)
    z, z_low = multiply_pairs(d, d_low, d, d_low)
    s = fma(fma(fma(A6, z, A5), z, A4), z, A3)
    s, s_low = horner_start(s, z, A2[0], A2[1])
    s, s_low = horner(s, s_low, z, z_low, A1[0], A1[1])
    s, s_low = multiply_pairs(s, s_low, z, z_low)
    s, s_low = multiply_pairs(s, s_low, d, d_low)
    first, first_low = quick_two_sum(d, s)
    high, low = quick_two_sum(TABLE[i, 0], first)
    return quick_two_sum(high, low + (TABLE[i, 1] + (first_low + (s_low + d_low))))


@scalar
def _angle(y, y_low, x, x_low):
    """The angle of a point (x, y) of the upper half plane as (high, low), for y >= 0, not both zero."""
    steep = y > abs(x)
    a, a_low = abs(x), x_low if x >= 0.0 else -x_low
    high, low = _arctangent(a if steep else y, a_low if steep else y_low, y if steep else a, y_low if steep else a_low)
    # pi / 2 - atan(x / y), where steep; else the arc itself, or pi less it on the left.
    minus = steep ^ (x < 0.0)
    high, low = -high if minus else high, -low if minus else low
    start, start_low = ARC_HALF_PI[0] if steep else PI[0], ARC_HALF_PI[1] if steep else PI[1]
    plain = (not steep) & (x >= 0.0)
    sum_high, sum_low = add_pairs(start, start_low, high, low)
    return high if plain else sum_high, low if plain else sum_low


@scalar
def atan_quick(x):
    """atan(x) for zero and 2^-300 <= |x| <= 2^300."""
    inside = abs(x) < np.inf
    high, low = _angle(abs(x) if inside else 0.0, 0.0, 1.0, 0.0)
    result = math.copysign(round_sum_to_odd(high, low), x) if inside else np.nan
    return x if x == 0.0 else result


@scalar
def atan_wide(x):
    """atan(x)."""
    if x != x or x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-30:
        # x - x^3 / 3, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, -significand * max(x * x / 3.0, SPECK), exponent
    high, low = ARC_HALF_PI
    if abs(x) < 2.0**200:
        high, low = _angle(abs(x), 0.0, 1.0, 0.0)
    return math.copysign(high, x), low if x > 0.0 else -low, 0


@scalar
def _adjacent(x):
    """The square root of 1 - x^2 as (high, low), for |x| <= 1."""
    a, a_low = two_sum(1.0, -x)
    b, b_low = two_sum(1.0, x)
    square, square_low = multiply_pairs(a, a_low, b, b_low)
    return root_of_pair(square, square_low)


@scalar
def _asin(x):
    """asin(x) as (high, low), for 2^-30 <= |x| <= 1."""
    other, other_low = _adjacent(x)
    high, low = _angle(abs(x), 0.0, other, other_low)
    return math.copysign(high, x), low if x > 0.0 else -low


@scalar
def asin_quick(x):
    """asin(x) for zero and 2^-300 <= |x| <= 1."""
    small, inside = abs(x) < 2.0**-30, abs(x) <= 1.0
    high, low = _asin(x if inside & (not small) else 1.0)
    result = round_sum_to_odd(x, x * max(x * x / 6.0, SPECK)) if small else round_sum_to_odd(high, low)
    return result if inside else np.nan


@scalar
def asin_wide(x):
    """asin(x)."""
    if not abs(x) <= 1.0 or x == 0.0:
        return x if x == 0.0 else np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        # x + x^3 / 6, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, significand * max(x * x / 6.0, SPECK), exponent
    high, low = _asin(x)
    return high, low, 0


@scalar
def _acos(x):
    """acos(x) as (high, low), for |x| <= 1."""
    other, other_low = _adjacent(x)
    return _angle(other, other_low, x, 0.0)


@scalar
def acos_quick(x):
    """acos(x) for |x| <= 1."""
    inside = abs(x) <= 1.0
    high, low = _acos(x if inside else 0.0)
    return round_sum_to_odd(high, low) if inside else np.nan


@scalar
def acos_wide(x):
    """acos(x)."""
    if not abs(x) <= 1.0:
        return np.nan, 0.0, 0
    high, low = _acos(x)
    return high, low, 0


@scalar
def atan2_quick(y, x):
    """The angle of (x, y), for 2^-200 <= |y / x| <= 2^200."""
    q = abs(y / (x if x != 0.0 else 1.0))
    inside = (q >= 2.0**-200) & (q <= 2.0**200) & (x != 0.0)
    high, low = _angle(abs(y) if inside else 1.0, 0.0, x if inside else 1.0, 0.0)
    return math.copysign(round_sum_to_odd(high, low), y) if inside else np.nan


@scalar
def _on_an_axis(y, x):
    """The angle as (high, low) where one is 0 or infinite; both infinite stand for (1, 1)."""
    if abs(x) == np.inf or y == 0.0:
        if abs(y) == np.inf:
            return _angle(1.0, 0.0, math.copysign(1.0, x), 0.0)
        return PI if math.copysign(1.0, x) < 0.0 else (0.0, 0.0)
    return ARC_HALF_PI


@scalar
def atan2_wide(y, x):
    """The angle of (x, y)."""
    if x != x or y != y:
        return np.nan, 0.0, 0
    exponent = 0
    if x == 0.0 or y == 0.0 or abs(x) == np.inf or abs(y) == np.inf:
        high, low = _on_an_axis(y, x)
    else:
        a, a_exponent = split(abs(y))
        b, b_exponent = split(x)
        distance = a_exponent - b_exponent
        if x > 0.0 and distance < -60:
            # The quotient less a third of its cube, of which the sign is enough
            high, low, exponent = divide_wide(abs(y), x)
            low -= SPECK if low == 0.0 else 0.0
        else:
            high, low = _angle(a * power_of_two(min(max(distance, -200), 200)), 0.0, b, 0.0)
    return math.copysign(high, y), low if math.copysign(1.0, y) > 0.0 else -low, exponent
