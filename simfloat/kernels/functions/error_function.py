"""erf."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.bell_curve import bell_integral, bell_table
from simfloat.kernels.functions.constants import circle, pair, root
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma, odd
from simfloat.kernels.pairs import quick_two_sum
from simfloat.kernels.unrounded import split, two_product

#: From here on erf is 1 but for less than 2^-82.
END = 7.5

SLOPE = root(4 / circle(200), 200)  # of erf at 0
SLOPE_PAIR = pair(SLOPE)

RATE, PARTS = 2, 32
TABLE = bell_table(Fraction(0), SLOPE, RATE, PARTS, END)


@scalar
def _erf(x):
    """erf(x) as (high, low), of END for larger x."""
    high, low = bell_integral(TABLE, float(RATE), float(PARTS), abs(x) if abs(x) < END else END)
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
