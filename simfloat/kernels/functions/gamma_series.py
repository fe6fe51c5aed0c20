"""Stirling's series, the Taylor series of log Gamma around 2, and the numbers of which they are made."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.constants import circle, logarithm, pair
from simfloat.kernels.functions.logarithm import log_pair
from simfloat.kernels.functions.trigonometric import sine_of
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma
from simfloat.kernels.pairs import add_number, add_pairs, divide_pairs, multiply_pairs, quick_two_sum

#: Euler's constant, to 70 digits: OEIS A001620.
EULER = Fraction("0.5772156649015328606065120900824024310421593359399235988057672348848677")

#: From here on Stirling's series has 95 bits.
STIRLING = 20.0

#: So many terms of it, and of the Taylor series, those from WHOLE on in float64.
TERMS, TAYLOR, WHOLE = 12, 56, 26


def bernoulli(count: int) -> list[Fraction]:
    """The Bernoulli numbers B(2), B(4), ... as many as asked for, by Akiyama's and Tanigawa's triangle."""
    row, numbers = [], []
    for m in range(2 * count + 1):
        row.append(Fraction(1, m + 1))
        for j in range(m, 0, -1):
            row[j - 1] = j * (row[j - 1] - row[j])
        if m and not m % 2:
            numbers.append(row[0])
    return numbers


BERNOULLI = bernoulli(25)


def zeta_less_one(s: int) -> Fraction:
    """zeta(s) - 1 for an integer s > 1, to 180 bits, by Euler's and Maclaurin's sum from 64 on."""
    one, a = 1 << 220, 64
    total = sum(one // n**s for n in range(2, a)) + one // ((s - 1) * a ** (s - 1)) + one // (2 * a**s)
    factor = Fraction(s, 2 * a ** (s + 1))
    for j, number in enumerate(BERNOULLI, 1):
        total += math.floor(one * number * factor)
        factor *= Fraction((s + 2 * j - 1) * (s + 2 * j), (2 * j + 1) * (2 * j + 2) * a * a)
    return Fraction(total, one)


ZETAS = [zeta_less_one(k) for k in range(2, TAYLOR)]

#: log Gamma(2 + t) = (1 - EULER) t + sum of (-1)^k (zeta(k) - 1) / k t^k: (high, low) from t^1 on; its derivative's.
LOG_GAMMA_ROWS = np.array([pair(1 - EULER), *(pair((-1) ** k * z / k) for k, z in enumerate(ZETAS, 2))])
DIGAMMA_ROWS = np.array([pair(1 - EULER), *(pair((-1) ** k * z) for k, z in enumerate(ZETAS, 2))])

#: Stirling's: B(2k) / (2k (2k - 1)), by x^(1 - 2k); its derivative's: B(2k) / 2k, by x^(-2k).
STIRLING_ROWS = np.array([pair(b / (2 * k * (2 * k - 1))) for k, b in enumerate(BERNOULLI[:TERMS], 1)])
STIRLING_SLOPES = np.array([pair(b / (2 * k)) for k, b in enumerate(BERNOULLI[:TERMS], 1)])

PI = pair(circle(200))
LOG_PI = pair(logarithm(circle(200)))
#: log(2 pi) / 2 - 1 / 2
STIRLING_START = pair(logarithm(2 * circle(200)) / 2 - Fraction(1, 2))


@scalar
def polynomial(rows, whole, x, x_low):
    """rows[0] + rows[1] x + ... as (high, low), the rows from `whole` on in float64."""
    p = 0.0
    for k in range(rows.shape[0] - 1, whole - 1, -1):
        p = fma(p, x, rows[k, 0])
    high, low = p, 0.0
    for k in range(whole - 1, -1, -1):
        product, product_low = multiply_pairs(high, low, x, x_low)
        high, low = add_pairs(rows[k, 0], rows[k, 1], product, product_low)
    return high, low


@scalar
def log_of_pair(x, x_low):
    """log(x + x_low), for positive normal x."""
    high, low = log_pair(x, 0.0)
    return add_number(high, low, x_low / x)


@scalar
def stirling(x, x_low):
    """log Gamma(x + x_low) as (high, low), for STIRLING <= x <= 2^500."""
    high, low = log_of_pair(x, x_low)
    high, low = add_number(high, low, -1.0)
    a, a_low = add_number(x, x_low, -0.5)
    high, low = multiply_pairs(high, low, a, a_low)
    high, low = add_pairs(high, low, STIRLING_START[0], STIRLING_START[1])
    y, y_low = divide_pairs(1.0, 0.0, x, x_low)
    square, square_low = multiply_pairs(y, y_low, y, y_low)
    p, p_low = polynomial(STIRLING_ROWS, 5, square, square_low)
    p, p_low = multiply_pairs(p, p_low, y, y_low)
    return add_pairs(high, low, p, p_low)


@scalar
def stirling_slope(x, x_low):
    """The derivative of log Gamma at x + x_low as (high, low), for STIRLING <= x."""
    high, low = log_of_pair(x, x_low)
    y, y_low = divide_pairs(1.0, 0.0, x, x_low)
    square, square_low = multiply_pairs(y, y_low, y, y_low)
    p, p_low = polynomial(STIRLING_SLOPES, 5, square, square_low)
    p, p_low = multiply_pairs(p, p_low, square, square_low)
    p, p_low = add_pairs(0.5 * y, 0.5 * y_low, p, p_low)
    return add_pairs(high, low, -p, -p_low)


@scalar
def sine_of_half_turns(r):
    """sin(pi r) as (high, low), for |r| <= 1/2."""
    near = abs(r) <= 0.25
    part = r if near else 0.5 - abs(r)
    y, y_low = multiply_pairs(PI[0], PI[1], part, 0.0)
    high, low = sine_of(y, y_low, np.uint64(0 if near else 1))
    negative = (not near) & (r < 0.0)
    return -high if negative else high, -low if negative else low


@scalar
def cosine_of_half_turns(r):
    """cos(pi r) as (high, low), for |r| <= 1/2."""
    return sine_of_half_turns(0.5 - abs(r))


@scalar
def shift_to_at_least(x, x_low, least):
    """(y, y_low, n) with y + y_low = x + x_low + n, the first that is not below `least`."""
    n = 0.0
    y, y_low = quick_two_sum(x, x_low)
    while y < least:
        n += 1.0
        y, y_low = add_number(x, x_low, n)
    return y, y_low, n
