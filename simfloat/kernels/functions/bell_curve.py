"""Integrals of the bell curve exp(-rate t^2 / 2), from their values at even steps and the series around the nearest.

The error function has rate 2, the normal distribution rate 1; both are `start + slope * integral from 0 to x`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.constants import INTEGER_IMAGE, exponential, pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma
from simfloat.kernels.pairs import add_pairs, divide_pairs, horner, multiply_pairs, quick_two_sum
from simfloat.kernels.unrounded import INTEGER, two_product

THIRD = pair(Fraction(1, 3))

#: b(n + 1) = -rate (c F[n] b(n) + G[n] b(n - 1)) for the Taylor coefficients b of the integral.
F2, F3, F4, F5, F6, F7, F8, F9, F10 = (1 / (n + 2) for n in range(2, 11))
G2, G3, G4, G5, G6, G7, G8, G9, G10 = (n / ((n + 1) * (n + 2)) for n in range(2, 11))

#: Of the continued fraction at z this many levels matter beyond float64, and LEVELS / z more to 80 bits.
PAIRS, LEVELS = 6, 180.0


def bell_table(start: Fraction, slope: Fraction, rate: int, parts: int, end: float) -> np.ndarray:
    """Rows (the value at c as a pair, its derivative as a pair) for c = i / parts up to `end`.

    Each row comes from the row before, in units of 2^-160.
    """
    one = 1 << 160
    terms = 160 // (parts.bit_length() - 1)  # parts^-terms is 2^-160
    value, derivative = math.floor(start * one), math.floor(slope * one)
    # The curve falls to the next c by exp(-(2i + 1) u), a factor that itself falls by exp(-2u).
    fall, fall_of_fall = (math.floor(exponential(Fraction(-n * rate, 2 * parts**2)) * one) for n in (1, 2))
    rows = np.zeros((int(parts * end) + 1, 4))
    for i in range(len(rows)):
        rows[i] = *pair(Fraction(value, one)), *pair(Fraction(derivative, one))
        # The integral of exp(-rate (c t + t^2 / 2)) from 0 to 1 / parts, by the recurrence of the Taylor coefficients.
        before, last = 0, derivative // parts
        for n in range(1, terms + 1):
            value += last // n
            before, last = last, -(rate * (i * last + before) // parts**2) // n
        derivative, fall = derivative * fall >> 160, fall * fall_of_fall >> 160
    return rows


@scalar
def bell_quotient(z, step):
    """1 / (z + step / (z + 2 step / (z + 3 step / ...))) as (high, low), for z >= 5: Laplace's continued fraction.

    It is what lies beyond z below the curve exp(-t^2 / (2 step)), divided by the curve's value at z and by step.
    """
    # What stands below a level, as a quotient: from z + n / (a / b) = (z a + n b) / a without a division.
    a, a_low, b, b_low = z, 0.0, 1.0, 0.0
    for n in range(PAIRS + np.int64(LEVELS / z), PAIRS, -1):
        a, b = fma(z, a, n * step * b), a
    for n in range(PAIRS, 0, -1):
        c, c_low = multiply_pairs(a, a_low, z, 0.0)
        c, c_low = horner(b, b_low, n * step, 0.0, c, c_low)
        a, a_low, b, b_low = c, c_low, a, a_low
    return divide_pairs(b, b_low, a, a_low)


@scalar
def bell_integral(table, rate, parts, x):
    """The value at x as (high, low), by a table of rate and parts, for 0 <= x up to its end."""
    shifted = fma(x, parts, INTEGER)
    i = np.float64(shifted).view(np.uint64) - np.uint64(INTEGER_IMAGE)
    c = (shifted - INTEGER) / parts
    d = x - c
    # From c to c + d the value grows by derivative * d (1 + b1 d + b2 d^2 + ...).
    v = -rate * c
    w = 0.5 * rate * (rate * c * c - 1.0)
    b1 = 0.5 * v
    b2, b2_low = two_product(w, THIRD[0])
    b2_low = fma(w, THIRD[1], b2_low)
    b3 = fma(v * F2, b2, -rate * G2 * b1)
    b4 = fma(v * F3, b3, -rate * G3 * b2)
    b5 = fma(v * F4, b4, -rate * G4 * b3)
    b6 = fma(v * F5, b5, -rate * G5 * b4)
    b7 = fma(v * F6, b6, -rate * G6 * b5)
    b8 = fma(v * F7, b7, -rate * G7 * b6)
    b9 = fma(v * F8, b8, -rate * G8 * b7)
    b10 = fma(v * F9, b9, -rate * G9 * b8)
    b11 = fma(v * F10, b10, -rate * G10 * b9)
    p = fma(fma(fma(fma(b11, d, b10), d, b9), d, b8), d, b7)
    p = fma(fma(fma(fma(p, d, b6), d, b5), d, b4), d, b3)
    square, square_low = two_product(d, d)
    t, t_low = multiply_pairs(b2, b2_low, square, square_low)
    s, s_low = two_product(d, b1)
    s, s_low = add_pairs(s, s_low, t, t_low)
    s_low += p * d * square
    first, first_low = quick_two_sum(1.0, s)
    first, first_low = quick_two_sum(first, first_low + s_low)
    slope, slope_low = two_product(d, table[i, 2])
    s, s_low = multiply_pairs(slope, fma(d, table[i, 3], slope_low), first, first_low)
    high, low = quick_two_sum(table[i, 0], s)
    return quick_two_sum(high, low + (table[i, 1] + s_low))
