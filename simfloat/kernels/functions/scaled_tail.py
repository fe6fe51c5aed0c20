"""exp(x^2) erfc(x), and the logarithm of the normal distribution function: tails without underflow."""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.functions.bell_curve import bell_integral, bell_quotient
from simfloat.kernels.functions.constants import SPECK
from simfloat.kernels.functions.error_function import SLOPE_PAIR, TAIL, erfc_wide
from simfloat.kernels.functions.exponential import exp_wide
from simfloat.kernels.functions.gamma_series import log_of_pair
from simfloat.kernels.functions.gelu import NORMAL_PARTS, NORMAL_RATE, NORMAL_SLOPE_PAIR, NORMAL_TABLE, NORMAL_TAIL
from simfloat.kernels.functions.shifted_logarithm import log1p_pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma
from simfloat.kernels.pairs import add_pairs, divide_pairs, multiply_pairs
from simfloat.kernels.unrounded import power_of_two, split, two_product, two_sum

#: Here exp(x^2) is out of every format's range, as it is beyond.
FAR_TAIL = 44.0


@scalar
def erfcx_wide(x):
    """exp(x^2) erfc(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return 1.0 if x == 0.0 else 0.0 if x > 0.0 else np.inf if x < 0.0 else x, 0.0, 0
    if abs(x) < 2.0**-60:
        # 1 - 2 / sqrt(pi) x
        return 1.0, -SLOPE_PAIR[0] * x if abs(x) > 2.0**-300 else -math.copysign(SPECK, x), 0
    if x >= 2.0**30:
        # 1 / (sqrt(pi) x) (1 - 1 / (2 x^2))
        significand, exponent = split(x)
        high, low = divide_pairs(0.5 * SLOPE_PAIR[0], 0.5 * SLOPE_PAIR[1], significand, 0.0)
        return high, low - high * max(0.5 / x / x, SPECK), -exponent
    if x >= TAIL:
        high, low = bell_quotient(x, 0.5)
        high, low = multiply_pairs(high, low, 0.5 * SLOPE_PAIR[0], 0.5 * SLOPE_PAIR[1])
        return high, low, 0
    x = max(x, -FAR_TAIL)
    square, square_low = two_product(x, x)
    bell, bell_low, exponent = exp_wide(square)
    high, low, more = erfc_wide(x)
    high, low = multiply_pairs(high, low, bell, fma(square_low, bell, bell_low))
    return high, low, exponent + more


@scalar
def _beyond(z):
    """The probability of more than z as (high, low), for 0 <= z <= NORMAL_TAIL."""
    return bell_integral(NORMAL_TABLE, float(NORMAL_RATE), float(NORMAL_PARTS), z)


@scalar
def log_ndtr_wide(x):
    """The logarithm of the probability that a normal variable lies below x."""
    if x != x or abs(x) == np.inf:
        return -0.0 if x > 0.0 else x, 0.0, 0
    if x <= 0.0:
        z = -x
        if z <= NORMAL_TAIL:
            q, q_low = _beyond(z)
            high, low = log_of_pair(q, q_low)
            return high, low, 0
        significand, exponent = split(z)
        if z > 2.0**60:
            # -z^2 / 2, less a logarithm
            high, low = two_product(significand, 0.5 * significand)
            return -high, -low - SPECK, 2 * exponent
        t, t_low = bell_quotient(z, 1.0)
        t, t_low = multiply_pairs(t, t_low, NORMAL_SLOPE_PAIR[0], NORMAL_SLOPE_PAIR[1])
        high, low = log_of_pair(t, t_low)
        square, square_low = two_product(z, 0.5 * z)
        high, low = add_pairs(-square, -square_low, high, low)
        return high, low, 0
    if x <= NORMAL_TAIL:
        q, q_low = _beyond(x)
        high, low = log1p_pair(-q, -q_low)
        return high, low, 0
    # log(1 - q) = -q - q^2 / 2 - q^3 / 3
    t, t_low = bell_quotient(min(x, 60.0), 1.0)
    t, t_low = multiply_pairs(t, t_low, NORMAL_SLOPE_PAIR[0], NORMAL_SLOPE_PAIR[1])
    z = min(x, 60.0)
    square, square_low = two_product(z, 0.5 * z)
    bell, bell_low, exponent = exp_wide(-square)
    high, low = multiply_pairs(t, t_low, bell, fma(-square_low, bell, bell_low))
    q = high * power_of_two(max(exponent, -200))
    high, low = two_sum(-high, -low - high * max(q * (0.5 + q / 3.0), SPECK))
    return high, low, exponent
