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
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma
from simfloat.kernels.pairs import add_number, add_pairs, divide_pairs, multiply_pairs
from simfloat.kernels.unrounded import nearest_integer, power_of_two, two_product, two_sum

#: So many terms of the remainder, from this q on.
TERMS, START = 14, 24.0

#: B(2j) / (2j)!
ROWS = np.array([pair(b / Fraction(math.factorial(2 * j))) for j, b in enumerate(BERNOULLI[:TERMS], 1)])

#: Terms below this share of a sum are left out.
LEAST = 2.0**-108

#: Beyond the range of any format.
FAR_BEYOND = 2000.0


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
    for j in range(TERMS):
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
    start = min(max(start, -FAR_BEYOND), FAR_BEYOND)
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
        if q < 2.0**-1022:
            q, s = 2.0**-1022, s
        start, start_low = _start(s, q)
        high, low = _positive(s, q, 0.0, start, start_low)
        return _result(high, low, start, start_low)
    # q = f - n: terms below zero are (-1)^s times those of zeta(s, 1 - f) up to 1 - q.
    n = -math.floor(q)
    f = q + n
    least = min(f, 1.0 - f)
    start, start_low = _start(s, least)
    high, low = _positive(s, f, 0.0, start, start_low)
    below, below_low = _positive(s, 1.0 - f, 0.0, start, start_low)
    y, y_low = two_sum(1.0, -q)
    rest, rest_low = _positive(s, y, y_low, start, start_low)
    below, below_low = add_pairs(below, below_low, -rest, -rest_low)
    is_even = nearest_integer(0.5 * s) == 0.5 * s
    high, low = add_pairs(high, low, below if is_even else -below, below_low if is_even else -below_low)
    return _result(high, low, start, start_low)
