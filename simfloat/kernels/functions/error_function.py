"""erf and erfc."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.bell_curve import bell_integral, bell_quotient, bell_table
from simfloat.kernels.functions.constants import SPECK, circle, pair, square_root
from simfloat.kernels.functions.exponential import exp_wide
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma, round_sum_to_odd
from simfloat.kernels.pairs import add_number, multiply_pairs, quick_two_sum
from simfloat.kernels.unrounded import power_of_two, split, two_product

#: From here on erf is 1 but for less than 2^-82.
END = 7.5

SLOPE = square_root(4 / circle(200), 200)  # of erf at 0
SLOPE_PAIR = pair(SLOPE)

RATE, PARTS = 2, 32
TABLE = bell_table(Fraction(0), SLOPE, RATE, PARTS, END)

#: Up to TAIL a table of erfc, with finer steps, and its series have the bits of erfc itself.
TAIL, FINE_PARTS = 5.25, 128
FINE_TABLE = bell_table(Fraction(1), -SLOPE, RATE, FINE_PARTS, TAIL)

#: Here erfc is out of every format's range, as it is beyond.
FAR = 40.0


@scalar
def _erf(x):
    """erf(x) as (high, low), of END for larger x."""
    high, low = bell_integral(TABLE, float(RATE), float(PARTS), abs(x) if abs(x) < END else END)
    return math.copysign(high, x), low if x > 0.0 else -low


@scalar
def erf_quick(x):
    """erf(x) for zero and 2^-300 <= |x|."""
    high, low = _erf(x)
    return round_sum_to_odd(high, low) if abs(x) < np.inf else np.nan


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


@scalar
def _erfc_beyond(z):
    """erfc(z) as (high, low, exponent), for TAIL <= z."""
    z = min(z, FAR)
    t, t_low = bell_quotient(z, 0.5)
    t, t_low = multiply_pairs(t, t_low, 0.5 * SLOPE_PAIR[0], 0.5 * SLOPE_PAIR[1])
    square, square_low = two_product(z, z)
    bell, bell_low, exponent = exp_wide(-square)
    high, low = multiply_pairs(t, t_low, bell, fma(-square_low, bell, bell_low))
    return high, low, exponent


@scalar
def _erfc(x):
    """erfc(x) as (high, low), for 2^-60 <= |x| <= TAIL."""
    high, low = bell_integral(FINE_TABLE, float(RATE), float(FINE_PARTS), abs(x))
    other, other_low = add_number(-high, -low, 2.0)
    return high if x > 0.0 else other, low if x > 0.0 else other_low


@scalar
def erfc_quick(x):
    """erfc(x) for |x| <= TAIL."""
    small, inside = abs(x) < 2.0**-60, abs(x) <= TAIL
    high, low = _erfc(x if inside else 0.0)
    result = round_sum_to_odd(1.0, -x) if small else round_sum_to_odd(high, low)
    return result if inside else np.nan


@scalar
def erfc_wide(x):
    """erfc(x) = 1 - erf(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return x if x != x else 1.0 - math.copysign(1.0 if x != 0.0 else 0.0, x), 0.0, 0
    if abs(x) < 2.0**-60:
        return 1.0, -math.copysign(max(abs(x) * SLOPE_PAIR[0], SPECK), x), 0
    if abs(x) <= TAIL:
        high, low = _erfc(x)
        return high, low, 0
    high, low, exponent = _erfc_beyond(abs(x))
    if x > 0.0:
        return high, low, exponent
    high, low = quick_two_sum(2.0, -high * power_of_two(max(exponent, -200)))
    return high, low, 0
