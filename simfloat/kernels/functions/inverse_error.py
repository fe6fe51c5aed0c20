"""erfinv and ndtri, the inverses of the error function and of the normal distribution function.

Halley's method on a first guess in float64 (Abramowitz and Stegun, 26.2.23); its last step is added to a float64
number, so that the sum is known to the bits of erf or erfc there.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.constants import circle, pair, square_root
from simfloat.kernels.functions.error_function import SLOPE_PAIR, erf_wide, erfc_wide
from simfloat.kernels.functions.exponential import exp_wide
from simfloat.kernels.functions.logarithm import log_pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma
from simfloat.kernels.pairs import add_number, multiply_pairs, quick_two_sum
from simfloat.kernels.unrounded import power_of_two, split

ROOT_OF_TWO = pair(square_root(Fraction(2), 200))
INVERSE_SLOPE = pair(square_root(circle(200), 200) / 2)  # of erfinv at 0, sqrt(pi) / 2
TWELFTH = float(circle(100) / 12)

#: Steps of Halley's method: each makes three times as many digits right.
STEPS = 4


@scalar
def _erf_inverse(x):
    """erfinv(x) as (high, low), for 2^-28 <= |x| <= 1/2."""
    y = INVERSE_SLOPE[0] * x * (1.0 + TWELFTH * x * x)
    step = 0.0
    for _ in range(STEPS):
        y += step
        high, low, _ = erf_wide(y)
        missing, _ = add_number(-high, -low, x)
        bell, _, power = exp_wide(y * y)
        w = missing / SLOPE_PAIR[0] * bell * power_of_two(power)
        step = w / (1.0 - w * y)
    return quick_two_sum(y, step)


@scalar
def _erfc_inverse(c):
    """The y >= 0 with erfc(y) = c as (high, low), for 0 < c <= 1."""
    significand, exponent = split(c)
    # No library's logarithm or exponential, which other machines may round otherwise.
    logarithm, _ = log_pair(0.5 * significand, float(exponent))
    t = math.sqrt(-2.0 * logarithm)
    below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    y = max(t - (2.515517 + t * (0.802853 + t * 0.010328)) / below, 0.0) * math.sqrt(0.5)
    step = 0.0
    for _ in range(STEPS):
        y += step
        high, low, power = erfc_wide(y)
        scale = power_of_two(power - exponent)
        more, _ = add_number(high * scale, low * scale, -significand)
        # The curve's height, in units of 2^exponent.
        bell, _, power = exp_wide(-y * y)
        w = more / (SLOPE_PAIR[0] * bell * power_of_two(power - exponent))
        step = w / (1.0 - w * y)
    return quick_two_sum(y, step)


@scalar
def erfinv_wide(x):
    """The number whose error function is x."""
    if not abs(x) < 1.0:
        return math.copysign(np.inf, x) if abs(x) == 1.0 else np.nan, 0.0, 0
    if x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-28:
        # sqrt(pi) / 2 (x + pi / 12 x^3), on the significand so that nothing underflows
        significand, exponent = split(x)
        high, low = multiply_pairs(INVERSE_SLOPE[0], INVERSE_SLOPE[1], significand, 0.0)
        high, low = quick_two_sum(high, fma(high, TWELFTH * x * x, low))
        return high, low, exponent
    if abs(x) <= 0.5:
        high, low = _erf_inverse(x)
        return high, low, 0
    high, low = _erfc_inverse(1.0 - abs(x))
    return high if x > 0.0 else -high, low if x > 0.0 else -low, 0


@scalar
def ndtri_wide(p):
    """The number below which a normal variable lies with probability p."""
    if not 0.0 < p < 1.0:
        return -np.inf if p == 0.0 else np.inf if p == 1.0 else np.nan, 0.0, 0
    if p == 0.5:
        return 0.0, 0.0, 0
    if abs(p - 0.5) < 0.25:
        high, low, exponent = erfinv_wide(2.0 * p - 1.0)
    else:
        high, low = _erfc_inverse(2.0 * min(p, 1.0 - p))
        exponent = 0
        high, low = high if p > 0.5 else -high, low if p > 0.5 else -low
    high, low = multiply_pairs(high, low, ROOT_OF_TWO[0], ROOT_OF_TWO[1])
    return high, low, exponent
