"""gelu(x) = x / 2 * (1 + erf(x / sqrt 2)): x times the probability that a normal variable lies below x.

D. Hendrycks and K. Gimpel, "Gaussian error linear units", arXiv 1606.08415. With Q(z), the probability of more than z,
it is max(x, 0) - |x| Q(|x|), where nothing cancels.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.bell_curve import bell_integral, bell_quotient, bell_table
from simfloat.kernels.functions.constants import SPECK, circle, pair, square_root
from simfloat.kernels.functions.exponential import exp_wide
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma, round_sum_to_odd
from simfloat.kernels.pairs import multiply_pairs, quick_two_sum
from simfloat.kernels.unrounded import split, two_product

#: From here on Q is less than 2^-83.
NORMAL_END = 10.5

#: Up to here the table and its series have the bits of Q itself, not only those of x - x Q.
NORMAL_TAIL = 7.5

#: Here gelu(-z) is out of every format's range, as it is beyond.
NORMAL_FAR = 60.0

NORMAL_SLOPE = square_root(1 / (2 * circle(200)), 200)  # of the probability at 0, 1 / sqrt(2 pi)
NORMAL_SLOPE_PAIR = pair(NORMAL_SLOPE)

NORMAL_RATE, NORMAL_PARTS = 1, 128
NORMAL_TABLE = bell_table(Fraction(1, 2), -NORMAL_SLOPE, NORMAL_RATE, NORMAL_PARTS, NORMAL_END)


@scalar
def _gelu(x):
    """gelu(x) as (high, low), for -TAIL <= x."""
    z = abs(x)
    q, q_low = bell_integral(NORMAL_TABLE, float(NORMAL_RATE), float(NORMAL_PARTS), z if z < NORMAL_END else NORMAL_END)
    p, p_low = multiply_pairs(q, q_low, z, 0.0)
    high, low = quick_two_sum(x if x > 0.0 else 0.0, -p)
    return quick_two_sum(high, low - p_low)


@scalar
def _tail(z):
    """gelu(-z) as (high, low, exponent), for TAIL <= z.

    Q(z) = exp(-z^2 / 2) / sqrt(2 pi) * bell_quotient(z).
    """
    z = min(z, NORMAL_FAR)
    t, t_low = bell_quotient(z, 1.0)
    t, t_low = multiply_pairs(t, t_low, z, 0.0)
    t, t_low = multiply_pairs(t, t_low, NORMAL_SLOPE_PAIR[0], NORMAL_SLOPE_PAIR[1])
    square, square_low = two_product(z, 0.5 * z)
    bell, bell_low, exponent = exp_wide(-square)
    high, low = multiply_pairs(t, t_low, bell, fma(-square_low, bell, bell_low))
    return -high, -low, exponent


@scalar
def gelu_quick(x):
    """gelu(x) for zero and -TAIL <= x, 2^-300 <= |x| <= 2^300."""
    inside = (x >= -NORMAL_TAIL) & (x < np.inf)
    high, low = _gelu(x if inside else 0.0)
    result = round_sum_to_odd(high, low) if inside else np.nan
    return x if x == 0.0 else result


@scalar
def gelu_wide(x):
    """gelu(x), with the limit -0 at -inf."""
    if not abs(x) < np.inf or x == 0.0:
        return -0.0 if x == -np.inf else x, 0.0, 0
    if x < -NORMAL_TAIL:
        return _tail(-x)
    significand, exponent = split(x)
    if x > NORMAL_END:
        return significand, -SPECK, exponent
    if abs(x) < 2.0**-30:
        # x / 2 + x^2 / sqrt(2 pi), on the significand so that nothing underflows
        high, low = quick_two_sum(0.5 * significand, max(abs(x) * NORMAL_SLOPE_PAIR[0], SPECK) * abs(significand))
        return high, low, exponent
    high, low = _gelu(x)
    return high, low, 0
