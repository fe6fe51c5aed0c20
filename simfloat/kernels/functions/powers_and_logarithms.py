"""Powers and logarithms: 1 / sqrt(x), log, log2 and log10, x to the power y, and log1p.

**1 / sqrt(x)** is decided by exact remainders.

**Logarithms** use a table of logarithms and a short series: P. T. P. Tang, "Table-driven implementation of the
logarithm function in IEEE floating-point arithmetic", ACM TOMS 16(4), 1990, in double-word arithmetic. log1p is the
logarithm of 1 + x.

**Powers** are 2^(y log2 |x|), and exact results are recognised. Special cases follow IEEE 754-2019, section 9.2.1.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.compile.intrinsics import binade, floor, fma, root, round_sum_to_odd
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import (
    INTEGER,
    add_number,
    add_pairs,
    divide_pairs,
    horner,
    horner_start,
    multiply_pairs,
    nearest_integer,
    power_of_two,
    quick_two_sum,
    split,
    two_product,
    two_sum,
)
from simfloat.kernels.functions.constants import (
    EXACT_LN2,
    INTEGER_IMAGE,
    LN2,
    LN2_A,
    LN2_B,
    LN2_C,
    LOG2_E,
    SPECK,
    exponential,
    logarithm,
    pair,
)


@scalar
def _remainder(x, q, d):
    """Return 1 - x (q + d)^2 with its exact sign; q is within an ulp of 1 / sqrt(x), and d is 0 or half an ulp of q."""
    p, e = two_product(q, q)
    high, low = two_product(x, p)
    g, f = two_product(x, e)
    c, c_low = two_product(x, q)
    # Terms near 2^-53, all multiples of 2^-107: if they cancel, their sum is one float64.
    s, e1 = two_sum(1.0 - high, -2.0 * d * c)
    s, e2 = two_sum(s, -low)
    s, e3 = two_sum(s, -g)
    large = s + (e1 + e2 + e3)
    # Terms near 2^-107, all multiples of 2^-161.
    t, t_low = two_sum(f, 2.0 * d * c_low)
    small, small_low = two_sum(t, d * d * x)
    s, s_low = two_sum(large, -small)
    return s + (s_low - (small_low + t_low))


@scalar
def _approximation(x):
    """Return 1 / sqrt(x) within an ulp."""
    q = 1.0 / root(x)
    c, c_low = two_product(x, q)
    # One step of Newton's iteration.
    return fma(0.5 * q, fma(-c, q, 1.0) - c_low * q, q)


@scalar
def rsqrt_quick(x):
    """Return 1 / sqrt(x) for 2^-300 <= x <= 2^300."""
    q = _approximation(x)
    return round_sum_to_odd(q, _remainder(x, q, 0.0))


@scalar
def rsqrt_wide(x):
    """Return 1 / sqrt(x)."""
    if not 0.0 < x < np.inf:
        return 1.0 / x if x == 0.0 or x == np.inf else np.nan, 0.0, 0
    significand, exponent = split(x)
    if exponent % 2 != 0:
        significand, exponent = 2.0 * significand, exponent - 1
    high = _approximation(significand)
    # Move to the neighbour if the root is beyond the midpoint.
    half = 2.0**-53 * binade(high)
    high += 2.0 * half if _remainder(significand, high, half) > 0.0 else 0.0
    high -= 2.0 * half if _remainder(significand, high, -half) < 0.0 else 0.0
    rest = _remainder(significand, high, 0.0)
    # 1 / sqrt(x) = high / sqrt(1 - rest)
    return high, high * (0.5 * rest + 0.375 * rest * rest), -(exponent // 2)


#: Significands use the table entry of the nearest 1 + i / 256. From this index, near the root of two, they are halved.
MIDDLE = 106

FRACTION, ONE_IMAGE = np.uint64(0x000FFFFFFFFFFFFF), np.uint64(0x3FF0000000000000)

LOG10_E = pair(1 / logarithm(Fraction(10)))

#: The powers of ten that are float64 numbers.
TENS = np.array([10.0**n for n in range(23)])

THIRD = pair(Fraction(1, 3))
L5, L6, L7, L8, L9, L10 = ((-1) ** (n + 1) / n for n in range(5, 11))


def _table() -> np.ndarray:
    """Return rows (inverse of 1 + i / 256, and minus the logarithm of the inverse as a pair)."""
    rows = np.zeros((257, 3))
    for i in range(257):
        inverse = 256 / (256 + i)
        rows[i] = inverse, *pair(-logarithm(Fraction(inverse) * (2 if i >= MIDDLE else 1)))
    return rows


TABLE = _table()


@scalar
def _parts(x, e):
    """Return (e', t, t_low) with log(x 2^e) = e' ln 2 + t and |t| < 0.36, for positive normal x."""
    image = np.float64(x).view(np.uint64)
    m = np.uint64((image & FRACTION) | ONE_IMAGE).view(np.float64)
    i = ((image & FRACTION) + np.uint64(1 << 43)) >> np.uint64(44)
    # The exponent as the last bits of 2^52 + exponent: a conversion would not vectorise on every processor.
    e += np.uint64((image >> np.uint64(52)) | np.uint64(0x4330000000000000)).view(np.float64) - (2.0**52 + 1023.0)
    # Above the root of two the significand is halved, so that for x just below one no large part of t cancels e' ln 2.
    e = e + 1.0 if i >= np.uint64(MIDDLE) else e
    # log m = log c + log(1 + r) with |r| <= 2^-9; m / c - 1 is exact in two parts.
    product, error = two_product(m, TABLE[i, 0])
    r, r_low = quick_two_sum(product - 1.0, error)
    p = fma(fma(fma(fma(fma(L10, r, L9), r, L8), r, L7), r, L6), r, L5)
    s, s_low = horner_start(p, r, -0.25, 0.0)
    s, s_low = horner(s, s_low, r, r_low, THIRD[0], THIRD[1])
    s, s_low = horner(s, s_low, r, r_low, -0.5, 0.0)
    s, s_low = multiply_pairs(s, s_low, r, r_low)
    s, s_low = multiply_pairs(s, s_low, r, r_low)
    s, rest = quick_two_sum(r, s)
    high, low = quick_two_sum(TABLE[i, 1], s)
    return e, *quick_two_sum(high, low + (TABLE[i, 2] + (rest + (s_low + r_low))))


@scalar
def log_pair(x, e):
    """Return log(x 2^e) as (high, low), for positive normal x."""
    e, t, t_low = _parts(x, e)
    high, low = add_pairs(e * LN2_A, e * LN2_B, t, t_low)
    return quick_two_sum(high, low + e * LN2_C)


@scalar
def log2_pair(x, e):
    """Return log2(x 2^e) as (high, low), for positive normal x."""
    e, t, t_low = _parts(x, e)
    high, low = multiply_pairs(t, t_low, LOG2_E[0], LOG2_E[1])
    return add_number(high, low, e)


@scalar
def is_normal(x):
    """Return True if x is positive, normal and finite."""
    return (x >= 2.0**-1022) & (x < np.inf)


@scalar
def _log_of_special(x):
    """Return the logarithm of zero, infinity, NaN or a negative number."""
    return -np.inf if x == 0.0 else x if x == np.inf else np.nan


@scalar
def _normalize(x):
    """Return a positive number as a normal number times a power of two, with the exponent of the power."""
    return (x * 2.0**54, -54.0) if x < 2.0**-1022 else (x, 0.0)


@scalar
def log_quick(x):
    """Return log(x) for positive normal numbers."""
    high, low = log_pair(x if is_normal(x) else 1.0, 0.0)
    return round_sum_to_odd(high, low) if is_normal(x) else np.nan


@scalar
def log_wide(x):
    """Return log(x)."""
    if not x > 0.0 or x == np.inf:
        return _log_of_special(x), 0.0, 0
    normal, shift = _normalize(x)
    high, low = log_pair(normal, shift)
    return high, low, 0


@scalar
def log2_quick(x):
    """Return log2(x) for positive normal numbers."""
    high, low = log2_pair(x if is_normal(x) else 1.0, 0.0)
    return round_sum_to_odd(high, low) if is_normal(x) else np.nan


@scalar
def log2_wide(x):
    """Return log2(x)."""
    if not x > 0.0 or x == np.inf:
        return _log_of_special(x), 0.0, 0
    normal, shift = _normalize(x)
    high, low = log2_pair(normal, shift)
    return high, low, 0


@scalar
def _log10(x, e):
    """Return log10(x 2^e) as (high, low), for positive normal x."""
    high, low = log_pair(x, e)
    high, low = multiply_pairs(high, low, LOG10_E[0], LOG10_E[1])
    n = nearest_integer(min(max(high, 0.0), 22.0))
    is_exact = (e == 0.0) & (x == TENS[np.int64(n)])
    return n if is_exact else high, 0.0 if is_exact else low


@scalar
def log10_quick(x):
    """Return log10(x) for positive normal numbers."""
    high, low = _log10(x if is_normal(x) else 1.0, 0.0)
    return round_sum_to_odd(high, low) if is_normal(x) else np.nan


@scalar
def log10_wide(x):
    """Return log10(x)."""
    if not x > 0.0 or x == np.inf:
        return _log_of_special(x), 0.0, 0
    normal, shift = _normalize(x)
    high, low = _log10(normal, shift)
    return high, low, 0


#: Powers with a larger |log2| are out of the range of every format.
FAR_BEYOND = 4000.0

E3, E4, E5, E6, E7, E8 = (1 / math.factorial(n) for n in range(3, 9))

#: 2^(i / 128) as pairs.
LOGARITHM_TABLE = np.array([pair(exponential(Fraction(i, 128) * EXACT_LN2)) for i in range(128)])


@scalar
def _exp2(y, y_low):
    """Return (high, low, k) with 2^(y + y_low) = (high + low) 2^k, for |y| <= 4000."""
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
    """Return x^y for normal x and 2^-1000 <= |x^y| <= 2^1000; negative x only with integers y."""
    base = abs(x)
    a, a_low = log2_pair(base if is_normal(base) else 1.0, 0.0)
    z, z_low = two_product(a, y)
    z_low = fma(a_low, y, z_low)
    inside = is_normal(base) & (abs(z) <= 1000.0) & ((x > 0.0) | _is_integer(y))
    high, low, k = _exp2(z if inside else 0.0, z_low if inside else 0.0)
    # x^y can only be a number of 53 bits if y is a multiple of 1/32 with 0 < y < 34 (see `_exact`). If it is, the low
    # part of the approximation is only its error, which is below 2^-76.
    may_be_exact = _is_integer(32.0 * y) & (y > 0.0) & (y < 34.0)
    low = 0.0 if may_be_exact & (abs(low) < 2.0**-74) else low
    # Close to 1, the low part is small without being an error.
    inside = inside & ((abs(z) > (2.0**-30 if may_be_exact else 2.0**-200)) | (a == 0.0) | (y == 0.0))
    result = round_sum_to_odd(high, low) * power_of_two(k)
    return (-result if (x < 0.0) & _is_odd(y) else result) if inside else np.nan


@scalar
def _special(x, y):
    """Return x^y if x is 0, infinite or NaN, or y is infinite or NaN, or x < 0 and y is not an integer."""
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
    """Return (high, low, exponent) of x^y for x > 0 if it is found to be exact, otherwise high = 0.

    With an odd integer m, (m 2^e)^y is a short binary number only for m = 1 or 0 < y = n / 2^k, where m is a 2^k-th
    power and 2^k divides e: so k <= 5, since m < 2^53, and n is small (Lauter and Lefevre, "An efficient rounding
    boundary test for pow(x, y) in double precision", IEEE TC 58(2), 2009). m = 1 needs no special case: log2 is exact.
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
    # `round_pair_to_odd` and similar functions require a number near one.
    significand, shift = split(high)
    return significand, low * power_of_two(-shift), exponent * n + shift


@scalar
def _wide(x, y):
    """Return x^y for x > 0."""
    # 3^34 has 54 bits; larger exponents need more bits.
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
    """Return x^y."""
    ordinary = x != 0.0 and abs(x) < np.inf and abs(y) < np.inf and y != 0.0 and x != 1.0
    if not ordinary or (x < 0.0 and not _is_integer(y)):
        return _special(x, y), 0.0, 0
    high, low, exponent = _wide(abs(x), y)
    return (-high, -low, exponent) if x < 0.0 and _is_odd(y) else (high, low, exponent)


@scalar
def log1p_pair(x, x_low):
    """Return log(1 + x + x_low) as (high, low), for x > -1 and 2^-300 <= |x|."""
    # 1 + x = s + e, and log(s + e) = log(s) + z - z^2 / 2 with z = e / s, at most 2^-53.
    s, e = two_sum(1.0, x)
    e, e_low = two_sum(e, x_low)
    z, z_low = divide_pairs(e, e_low, s, 0.0)
    high, low = log_pair(s, 0.0)
    return add_pairs(high, low, z, z_low - 0.5 * z * z)


@scalar
def log1p_quick(x):
    """Return log(1 + x) for x > -1, zero and 2^-300 <= |x|."""
    inside = (x > -1.0) & (x < np.inf)
    high, low = log1p_pair(x if inside else 0.0, 0.0)
    result = round_sum_to_odd(high, low) if inside else np.nan
    return x if x == 0.0 else result


@scalar
def log1p_wide(x):
    """Return log(1 + x)."""
    if not (x > -1.0 and x < np.inf) or x == 0.0:
        return -np.inf if x == -1.0 else np.nan if x < -1.0 else x, 0.0, 0
    if abs(x) < 2.0**-60:
        # x - x^2 / 2, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, -abs(significand) * max(0.5 * abs(x), SPECK), exponent
    high, low = log1p_pair(x, 0.0)
    return high, low, 0


LOG2_OF_10 = pair(logarithm(Fraction(10)) / EXACT_LN2)


@scalar
def _round_power(y, y_low, may_be_exact):
    """Return 2^(y + y_low) rounded to odd, for 2^-300 <= |y| <= 1000."""
    high, low, k = _exp2(y, y_low)
    # If the power may be a number of 53 bits, a low part below 2^-74 is only the error of the approximation.
    return round_sum_to_odd(high, 0.0 if may_be_exact & (abs(low) < 2.0**-74) else low) * power_of_two(k)


@scalar
def exp2_quick(x):
    """Return 2^x for |x| <= 1000."""
    inside = abs(x) <= 1000.0
    result = _round_power(x if inside else 0.0, 0.0, False)
    return result if inside else np.nan


@scalar
def exp2_wide(x):
    """Return 2^x."""
    if not abs(x) < np.inf:
        return x if x > 0.0 else 0.0 if x < 0.0 else np.nan, 0.0, 0
    return _power_of_constant(x, x, 0.0)


@scalar
def exp10_quick(x):
    """Return 10^x for |x| <= 300."""
    inside = abs(x) <= 300.0
    z, z_low = multiply_pairs(LOG2_OF_10[0], LOG2_OF_10[1], x if inside else 0.0, 0.0)
    # 5^23 has 54 bits, and larger powers have more.
    result = _round_power(z, z_low, _is_integer(x) & (x >= 0.0) & (x < 23.0))
    return result if inside else np.nan


@scalar
def exp10_wide(x):
    """Return 10^x."""
    if not abs(x) < np.inf:
        return x if x > 0.0 else 0.0 if x < 0.0 else np.nan, 0.0, 0
    if _is_integer(x) and 0.0 < x < 24.0:
        return _exact(10.0, x)
    z = min(max(x, -2000.0), 2000.0)
    return _power_of_constant(x, *multiply_pairs(LOG2_OF_10[0], LOG2_OF_10[1], z, 0.0))


@scalar
def _power_of_constant(x, z, z_low):
    """Return 2^(z + z_low), the power of a constant above 1 to the exponent x."""
    if x != 0.0 and abs(x) < 2.0**-200:
        return 1.0, math.copysign(SPECK, x), 0
    if abs(z) > FAR_BEYOND:
        return 1.0, SPECK, 5000 if z > 0.0 else -5000
    return _exp2(z, z_low)
