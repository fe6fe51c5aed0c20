"""The modified Bessel functions I0 and I1, as they are and times exp(-|x|).

By their power series, whose terms are all positive, or, from FAR on, by Hankel's expansion: Abramowitz and Stegun,
9.6.10 and 9.7.1.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.functions.constants import SPECK
from simfloat.kernels.functions.exponential import exp_wide
from simfloat.kernels.functions.gamma_series import PI
from simfloat.kernels.jit import scalar
from simfloat.kernels.pairs import add_pairs, divide_pairs, multiply_pairs, root_of_pair
from simfloat.kernels.unrounded import split, two_product

#: Terms below this share of a sum are left out.
LEAST = 2.0**-108

#: From here on the expansion's smallest term, exp(-2 x), is below that.
FAR = 40.0


@scalar
def _series(x, order):
    """I0(x), or I1(x) / (x / 2), as (high, low), for 0 < x < FAR: the sum of (x / 2)^(2 k) / (k! (k + order)!)."""
    q, q_low = two_product(0.5 * x, 0.5 * x)
    high, low, term, term_low, k = 1.0, 0.0, 1.0, 0.0, 0.0
    while term > LEAST * high:
        k += 1.0
        term, term_low = multiply_pairs(term, term_low, q, q_low)
        term, term_low = divide_pairs(term, term_low, k * (k + order), 0.0)
        high, low = add_pairs(high, low, term, term_low)
    return high, low


@scalar
def _expansion(x, order):
    """sqrt(2 pi x) exp(-x) times I0(x) or I1(x), as (high, low), for FAR <= x."""
    high, low, term, term_low, k = 1.0, 0.0, 1.0, 0.0, 0.0
    while abs(term) > LEAST:
        k += 1.0
        odd = 2.0 * k - 1.0
        term, term_low = multiply_pairs(term, term_low, odd * odd - 4.0 * order, 0.0)
        term, term_low = divide_pairs(term, term_low, k, 0.0)
        term, term_low = divide_pairs(0.125 * term, 0.125 * term_low, x, 0.0)
        high, low = add_pairs(high, low, term, term_low)
    return high, low


@scalar
def _scaled_bessel(x, order):
    """exp(-x) times I0(x) or I1(x), as (high, low, exponent), for 2^-60 <= x < infinity."""
    if x < FAR:
        high, low = _series(x, order)
        if order > 0.0:
            high, low = multiply_pairs(high, low, 0.5 * x, 0.0)
        bell, bell_low, exponent = exp_wide(-x)
        high, low = multiply_pairs(high, low, bell, bell_low)
        return high, low, exponent
    high, low = _expansion(x, order)
    # The root of an even power of two comes out.
    significand, exponent = split(x)
    half = exponent >> 1
    significand = 2.0 * significand if exponent & 1 else significand
    r, r_low = multiply_pairs(2.0 * PI[0], 2.0 * PI[1], significand, 0.0)
    r, r_low = root_of_pair(r, r_low)
    high, low = divide_pairs(high, low, r, r_low)
    return high, low, -half


@scalar
def _plain_bessel(x, order):
    """I0(x) or I1(x), as (high, low, exponent), for 2^-60 <= x < infinity."""
    if x < FAR:
        high, low = _series(x, order)
        if order > 0.0:
            high, low = multiply_pairs(high, low, 0.5 * x, 0.0)
        return high, low, 0
    x = min(x, 2000.0)  # out of every format's range, as it is beyond
    high, low, exponent = _scaled_bessel(x, order)
    bell, bell_low, more = exp_wide(x)
    high, low = multiply_pairs(high, low, bell, bell_low)
    return high, low, exponent + more


@scalar
def i0_wide(x):
    """I0(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return 1.0 if x == 0.0 else abs(x), 0.0, 0
    if abs(x) < 2.0**-60:
        return 1.0, SPECK, 0
    return _plain_bessel(abs(x), 0.0)


@scalar
def i0e_wide(x):
    """exp(-|x|) I0(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return 1.0 if x == 0.0 else 0.0 if abs(x) == np.inf else x, 0.0, 0
    if abs(x) < 2.0**-60:
        return 1.0, -max(abs(x), SPECK), 0
    return _scaled_bessel(abs(x), 0.0)


@scalar
def i1_wide(x):
    """I1(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-60:
        significand, exponent = split(x)
        return significand, significand * SPECK, exponent - 1
    high, low, exponent = _plain_bessel(abs(x), 1.0)
    return high if x > 0.0 else -high, low if x > 0.0 else -low, exponent


@scalar
def i1e_wide(x):
    """exp(-|x|) I1(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return math.copysign(0.0, x) if abs(x) == np.inf else x, 0.0, 0
    if abs(x) < 2.0**-60:
        significand, exponent = split(x)
        return significand, -significand * max(abs(x), SPECK), exponent - 1
    high, low, exponent = _scaled_bessel(abs(x), 1.0)
    return high if x > 0.0 else -high, low if x > 0.0 else -low, exponent
