"""x to the power y, as 2^(y log2 |x|), with exact results recognised.

Specials follow IEEE 754-2019, section 9.2.1.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.constants import EXACT_LN2, INTEGER_IMAGE, LN2, SPECK, exponential, pair
from simfloat.kernels.functions.logarithm import is_normal, log2_pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import floor, fma, round_sum_to_odd
from simfloat.kernels.pairs import multiply_pairs, quick_two_sum
from simfloat.kernels.unrounded import INTEGER, nearest_integer, power_of_two, split, two_product

#: Beyond the range of any format.
FAR_BEYOND = 4000.0

E3, E4, E5, E6, E7, E8 = (1 / math.factorial(n) for n in range(3, 9))

#: 2^(i / 128) as pairs.
LOGARITHM_TABLE = np.array([pair(exponential(Fraction(i, 128) * EXACT_LN2)) for i in range(128)])


@scalar
def _exp2(y, y_low):
    """(high, low, k) with 2^(y + y_low) = (high + low) 2^k, for |y| <= 4000."""
    shifted = fma(y, 128.0, INTEGER)
    image = np.float64(shifted).view(np.uint64)
    i = image & np.uint64(127)
    k = np.int64((image - np.uint64(INTEGER_IMAGE - 2**40)) >> np.uint64(7)) - 2**33
    u, u_low = quick_two_sum(fma(shifted - INTEGER, -0.0078125, y), y_low)
    u, u_low = multiply_pairs(u, u_low, LN2[0], LN2[1])
    # exp(u) - 1 with |u| <= 2^-8.5
    p = fma(fma(fma(fma(fma(E8, u, E7), u, E6), u, E5), u, E4), u, E3)
    square, square_low = multiply_pairs(u, u_low, 0.5 * u, 0.5 * u_low)
    s, rest = quick_two_sum(u, square)
    q, q_low = quick_two_sum(s, p * u * u * u + (rest + (square_low + u_low)))
    t, t_low = multiply_pairs(q, q_low, LOGARITHM_TABLE[i, 0], LOGARITHM_TABLE[i, 1])
    high, low = quick_two_sum(LOGARITHM_TABLE[i, 0], t)
    high, low = quick_two_sum(high, low + (LOGARITHM_TABLE[i, 1] + t_low))
    return high, low, k


@scalar
def _is_integer(y):
    return nearest_integer(y) == y


@scalar
def _is_odd(y):
    return _is_integer(y) & (nearest_integer(0.5 * y) != 0.5 * y)


@scalar
def power_quick(x, y):
    """x^y for normal x and 2^-1000 <= |x^y| <= 2^1000, negative x only with integers y."""
    base = abs(x)
    a, a_low = log2_pair(base if is_normal(base) else 1.0, 0.0)
    z, z_low = two_product(a, y)
    z_low = fma(a_low, y, z_low)
    inside = is_normal(base) & (abs(z) <= 1000.0) & ((x > 0.0) | _is_integer(y))
    high, low, k = _exp2(z if inside else 0.0, z_low if inside else 0.0)
    # Only where y is a multiple of 1/32 with 0 < y < 34 can x^y be a number of 53 bits (see `_exact`). If it is, what
    # the approximation left over is nothing but its error, which is below 2^-76.
    may_be_exact = _is_integer(32.0 * y) & (y > 0.0) & (y < 34.0)
    low = 0.0 if may_be_exact & (abs(low) < 2.0**-74) else low
    # Close to 1 what is left over is small without being an error.
    inside = inside & ((abs(z) > (2.0**-30 if may_be_exact else 2.0**-200)) | (a == 0.0) | (y == 0.0))
    result = round_sum_to_odd(high, low) * power_of_two(k)
    return (-result if (x < 0.0) & _is_odd(y) else result) if inside else np.nan


@scalar
def _special(x, y):
    """x^y where x is 0, infinite or NaN, or y is infinite or NaN, or x < 0 and y no integer."""
    if y == 0.0 or x == 1.0:
        return 1.0
    if x != x or y != y:
        return np.nan
    if abs(y) == np.inf:
        if abs(x) == 1.0:
            return 1.0
        return np.inf if (abs(x) > 1.0) == (y > 0.0) else 0.0
    if x == 0.0 or abs(x) == np.inf:
        magnitude = 0.0 if (x == 0.0) == (y > 0.0) else np.inf
        return math.copysign(magnitude, x) if _is_odd(y) else magnitude
    return np.nan


@scalar
def _exact(x, y):
    """(high, low, exponent) of x^y for x > 0 if it is found to be exact, else high = 0.

    With an odd integer m, (m 2^e)^y is a short binary number only for m = 1 or 0 < y = n / 2^k, where m is a 2^k-th
    power and 2^k divides e: so k <= 5, since m < 2^53, and n is small (Lauter and Lefevre, "An efficient rounding
    boundary test for pow(x, y) in double precision", IEEE TC 58(2), 2009). m = 1 needs no help: log2 is exact.
    """
    m, exponent = split(x)
    m, exponent = m * 2.0**52, exponent - 52
    while m == 2.0 * floor(0.5 * m):
        m, exponent = 0.5 * m, exponent + 1
    while not _is_integer(y):
        root = nearest_integer(math.sqrt(m))
        if root * root != m or exponent % 2 != 0:
            return 0.0, 0.0, 0
        m, exponent, y = root, exponent // 2, 2.0 * y
    n = np.int64(y)
    power = 1.0
    for _ in range(n - 1):
        power *= m
        if power > 2.0**53:
            return 0.0, 0.0, 0
    high, low = two_product(power, m)
    # `round_sum_to_odd_of` and its like want a number near one.
    significand, shift = split(high)
    return significand, low * power_of_two(-shift), exponent * n + shift


@scalar
def _wide(x, y):
    """x^y for x > 0."""
    # 3^34 has 54 bits, and no exponent above has so few.
    if _is_integer(32.0 * y) and 0.0 < y <= 34.0:
        high, low, exponent = _exact(x, y)
        if high != 0.0:
            return high, low, exponent
    a, a_low = log2_pair(x * 2.0**54, -54.0) if x < 2.0**-1022 else log2_pair(x, 0.0)
    z = a * y
    if a != 0.0 and abs(z) < 2.0**-200:
        return 1.0, SPECK if (a > 0.0) == (y > 0.0) else -SPECK, 0
    if abs(z) > FAR_BEYOND:
        return 1.0, SPECK, 5000 if z > 0.0 else -5000
    z, z_low = two_product(a, y)
    return _exp2(z, fma(a_low, y, z_low))


@scalar
def power_wide(x, y):
    """x^y."""
    ordinary = x != 0.0 and abs(x) < np.inf and abs(y) < np.inf and y != 0.0 and x != 1.0
    if not ordinary or (x < 0.0 and not _is_integer(y)):
        return _special(x, y), 0.0, 0
    high, low, exponent = _wide(abs(x), y)
    return (-high, -low, exponent) if x < 0.0 and _is_odd(y) else (high, low, exponent)
