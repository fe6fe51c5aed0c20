"""zeta(s, q), the sum of (q + k)^-s over k = 0, 1, ..., by Euler's and Maclaurin's formula from a term on.

Abramowitz and Stegun, 23.2; for negative q, where s is an integer, terms below zero are those of another such sum.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.constants import SPECK, pair
from simfloat.kernels.functions.exponential import exp_pair
from simfloat.kernels.functions.gamma_series import BERNOULLI, log_of_pair
from simfloat.kernels.functions.power import power_wide
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma
from simfloat.kernels.pairs import add_number, add_pairs, divide_pairs, multiply_pairs
from simfloat.kernels.unrounded import nearest_integer, power_of_two, two_product, two_sum

#: So many terms of the remainder, from this q on.
ZETA_TERMS, START = 14, 24.0

#: B(2j) / (2j)!
ROWS = np.array([pair(b / Fraction(math.factorial(2 * j))) for j, b in enumerate(BERNOULLI[:ZETA_TERMS], 1)])

#: Terms below this share of a sum are left out.
LEAST = 2.0**-108

#: Beyond the range of any format.
FAR_BEYOND = 2000.0

#: From this q on the integral of the terms, and half the first one, are the sum to 170 bits.
LARGE = 2.0**90


@scalar
def _power(q, q_low, s, start, start_low):
    """((q + q_low)^-s as a share of exp(start)) as (high, low), 0 where it is below 2^-700."""
    y, y_low = log_of_pair(q, q_low)
    p, p_low = two_product(y, -s)
    p, p_low = add_pairs(p, fma(y_low, -s, p_low), -start, -start_low)
    if p < -500.0:
        return 0.0, 0.0
    high, low, exponent = exp_pair(p)
    high, low = multiply_pairs(high, low, 1.0, p_low)
    return high * power_of_two(exponent), low * power_of_two(exponent)


@scalar
def _remainder(s, a, a_low, t, t_low):
    """The sum from a on, where t = a^-s: t a / (s - 1) + t / 2 + the derivatives at a."""
    d, d_low = two_sum(s, -1.0)
    high, low = divide_pairs(a, a_low, d, d_low)
    high, low = add_number(high, low, 0.5)
    f, f_low = divide_pairs(s, 0.0, a, a_low)
    square, square_low = multiply_pairs(a, a_low, a, a_low)
    for j in range(ZETA_TERMS):
        p, p_low = multiply_pairs(f, f_low, ROWS[j, 0], ROWS[j, 1])
        high, low = add_pairs(high, low, p, p_low)
        first, first_low = two_sum(s, 2.0 * j + 1.0)
        second, second_low = two_sum(s, 2.0 * j + 2.0)
        p, p_low = multiply_pairs(first, first_low, second, second_low)
        f, f_low = multiply_pairs(f, f_low, p, p_low)
        f, f_low = divide_pairs(f, f_low, square, square_low)
    return multiply_pairs(high, low, t, t_low)


@scalar
def _positive(s, q, q_low, start, start_low):
    """zeta(s, q + q_low) as a share of exp(start), for s > 1 and q > 0."""
    high, low, k = 0.0, 0.0, 0.0
    a, a_low = q, q_low
    t, t_low = _power(a, a_low, s, start, start_low)
    # The remainder's terms fall while a is large beside s; else those of the sum do.
    while a < START + 0.5 * s and (t > LEAST * high or k == 0.0):
        high, low = add_pairs(high, low, t, t_low)
        k += 1.0
        a, a_low = add_number(q, q_low, k)
        t, t_low = _power(a, a_low, s, start, start_low)
    if a < START + 0.5 * s:
        return high, low + max(t, SPECK)
    rest, rest_low = _remainder(s, a, a_low, t, t_low)
    return add_pairs(high, low, rest, rest_low)


@scalar
def _result(high, low, start, start_low):
    """(high + low) exp(start + start_low)."""
    bell, bell_low, exponent = exp_pair(start)
    bell, bell_low = multiply_pairs(bell, bell_low, 1.0, start_low)
    high, low = multiply_pairs(high, low, bell, bell_low)
    return high, low, exponent


@scalar
def _start(s, q):
    """-s log(q) as (high, low)."""
    y, y_low = log_of_pair(q, 0.0)
    p, p_low = two_product(y, -s)
    return p, fma(y_low, -s, p_low)


@scalar
def _largest_term_alone(sign, start):
    """A sum whose largest term, of this sign, is beyond every format: no other term changes what that rounds to.

    Such terms are not summed: beside a large s, or of a large q, they may not be told apart.
    """
    return _result(sign, 0.0, math.copysign(FAR_BEYOND, start), 0.0)


@scalar
def _above_zero(s, q):
    """zeta(s, q) for s > 1 and q > 0."""
    start, start_low = _start(s, q)
    if abs(start) > FAR_BEYOND:
        return _largest_term_alone(1.0, start)
    if q >= LARGE:
        return _integral(s, q)
    high, low = _positive(s, q, 0.0, start, start_low)
    return _result(high, low, start, start_low)


@scalar
def _integral(s, q):
    """q^(1 - s) / (s - 1) + q^-s / 2, where the second is a small share of the first: powers of two are exact."""
    d = s - 1.0
    high, low, exponent = power_wide(q, -d)
    high, low = divide_pairs(high, low, d, 0.0)
    return high, low + high * max(0.5 * d / q, SPECK), exponent


@scalar
def zeta_wide(s, q):
    """zeta(s, q): infinite at s = 1 and at the integers q <= 0, NaN for s < 1, and for q < 0 unless s is an integer."""
    if s != s or q != q or s < 1.0 or q == -np.inf:
        return np.nan, 0.0, 0
    if s == 1.0 or (q <= 0.0 and nearest_integer(q) == q) or q < -(2.0**51):
        return np.inf, 0.0, 0
    if q < 0.0 and nearest_integer(s) != s:
        return np.nan, 0.0, 0
    if q == np.inf or s == np.inf:
        return 0.0 if q > 1.0 else 1.0 if q == 1.0 else np.inf, 0.0, 0
    if q > 0.0:
        return _above_zero(s, max(q, 2.0**-1022))
    # q = f - n: terms below zero are (-1)^s times those of zeta(s, 1 - f) up to 1 - q.
    n = -math.floor(q)
    f = q + n
    is_even = nearest_integer(0.5 * s) == 0.5 * s
    if f == 0.5 and not is_even:  # they take away the first terms above zero
        return _above_zero(s, 1.0 - q)
    start, start_low = _start(s, min(f, 1.0 - f))
    if start > FAR_BEYOND:
        return _largest_term_alone(1.0 if is_even or f < 0.5 else -1.0, start)
    high, low = _positive(s, f, 0.0, start, start_low)
    below, below_low = _positive(s, 1.0 - f, 0.0, start, start_low)
    y, y_low = two_sum(1.0, -q)
    rest, rest_low = _positive(s, y, y_low, start, start_low)
    below, below_low = add_pairs(below, below_low, -rest, -rest_low)
    high, low = add_pairs(high, low, below if is_even else -below, below_low if is_even else -below_low)
    return _result(high, low, start, start_low)
