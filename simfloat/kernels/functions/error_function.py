"""erf, from its values at multiples of 1 / 32 and the Taylor series around the nearest one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.exact import INTEGER, split, two_product
from simfloat.kernels.functions.constants import INTEGER_IMAGE, circle, exponential, pair, root
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma, odd
from simfloat.kernels.pairs import add_pairs, multiply_pairs, quick_two_sum

#: From here on erf is 1 but for less than 2^-82.
END = 7.5

SLOPE = root(4 / circle(200), 200)  # of erf at 0
SLOPE_PAIR = pair(SLOPE)
THIRD = pair(Fraction(1, 3))


def _table() -> np.ndarray:
    """Rows (erf(c) as a pair, erf'(c) as a pair) for c = i / 32, each from the row before, in units of 2^-160."""
    one = 1 << 160
    slope, value = math.floor(SLOPE * one), 0
    # exp(-c^2) to the next c falls by exp(-(2i + 1) / 1024), a factor that itself falls by exp(-2 / 1024).
    fall, fall_of_fall = (math.floor(exponential(Fraction(-n, 1024)) * one) for n in (1, 2))
    rows = np.zeros((int(32 * END) + 1, 4))
    for i in range(len(rows)):
        rows[i] = *pair(Fraction(value, one)), *pair(Fraction(slope, one))
        # The integral of exp(-2 c t - t^2) from 0 to 1 / 32, by the recurrence of the Taylor coefficients.
        before, last = 0, slope >> 5
        for n in range(1, 31):
            value += last // n
            before, last = last, -((i * last + before) >> 9) // n
        slope, fall = slope * fall >> 160, fall * fall_of_fall >> 160
    return rows


TABLE = _table()

#: b(n + 1) = -2 c FIRST[n] b(n) - SECOND[n] b(n - 1) for the Taylor coefficients b of the integral.
F2, F3, F4, F5, F6, F7, F8, F9, F10 = (1 / (n + 2) for n in range(2, 11))
G2, G3, G4, G5, G6, G7, G8, G9, G10 = (2 * n / ((n + 1) * (n + 2)) for n in range(2, 11))


@scalar
def _erf(x):
    """erf(x) as (high, low), of END for larger x."""
    magnitude = abs(x) if abs(x) < END else END
    shifted = fma(magnitude, 32.0, INTEGER)
    i = np.float64(shifted).view(np.uint64) - np.uint64(INTEGER_IMAGE)
    c = (shifted - INTEGER) * 0.03125
    d = magnitude - c
    # erf(c + d) = erf(c) + erf'(c) d (1 + b1 d + b2 d^2 + ...) with b1 = -c, b2 = (2 c^2 - 1) / 3
    v = -2.0 * c
    w = 2.0 * c * c - 1.0
    b1 = -c
    b2, b2_low = two_product(w, THIRD[0])
    b2_low = fma(w, THIRD[1], b2_low)
    b3 = fma(v * F2, b2, -G2 * b1)
    b4 = fma(v * F3, b3, -G3 * b2)
    b5 = fma(v * F4, b4, -G4 * b3)
    b6 = fma(v * F5, b5, -G5 * b4)
    b7 = fma(v * F6, b6, -G6 * b5)
    b8 = fma(v * F7, b7, -G7 * b6)
    b9 = fma(v * F8, b8, -G8 * b7)
    b10 = fma(v * F9, b9, -G9 * b8)
    b11 = fma(v * F10, b10, -G10 * b9)
    p = fma(fma(fma(fma(b11, d, b10), d, b9), d, b8), d, b7)
    p = fma(fma(fma(fma(p, d, b6), d, b5), d, b4), d, b3)
    square, square_low = two_product(d, d)
    t, t_low = multiply_pairs(b2, b2_low, square, square_low)
    s, s_low = two_product(d, b1)
    s, s_low = add_pairs(s, s_low, t, t_low)
    s_low += p * d * square
    first, first_low = quick_two_sum(1.0, s)
    first, first_low = quick_two_sum(first, first_low + s_low)
    slope, slope_low = two_product(d, TABLE[i, 2])
    s, s_low = multiply_pairs(slope, fma(d, TABLE[i, 3], slope_low), first, first_low)
    high, low = quick_two_sum(TABLE[i, 0], s)
    high, low = quick_two_sum(high, low + (TABLE[i, 1] + s_low))
    return math.copysign(high, x), low if x > 0.0 else -low


@scalar
def erf_quick(x):
    """erf(x) for zero and 2^-300 <= |x|."""
    high, low = _erf(x)
    return odd(high, low) if abs(x) < np.inf else np.nan


@scalar
def erf_wide(x):
    """erf(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return math.copysign(1.0, x) if abs(x) == np.inf else x, 0.0, 0
    if abs(x) < 2.0**-30:
        # 2 / sqrt(pi) (x - x^3 / 3), on the significand so that nothing underflows
        significand, exponent = split(x)
        high, low = two_product(significand, SLOPE_PAIR[0])
        high, low = quick_two_sum(high, fma(significand, SLOPE_PAIR[1], low) - high * (x * x / 3.0))
        return high, low, exponent
    high, low = _erf(x)
    return high, low, 0
