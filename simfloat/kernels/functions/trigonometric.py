"""Trigonometric functions and their inverses: sin, cos, tan, sinpi and cospi, then atan, asin, acos and atan2.

The first five reduce x to an eighth of a turn and sum a Taylor series. The others compute the angle of a point, by a
table of arctangents and a short series.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, round_sum_to_odd
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import (
    INTEGER,
    add_number,
    add_pairs,
    divide_pairs,
    divide_wide,
    horner,
    horner_start,
    multiply_pairs,
    nearest_integer,
    power_of_two,
    quick_two_sum,
    root_of_pair,
    split,
    two_product,
    two_sum,
)
from simfloat.kernels.functions.constants import SPECK, circle, pair, truncate_below

_PI = circle(1300)
HALF_PI = pair(_PI / 2)
TWO_OVER_PI = float(2 / _PI)

_SHORT_PI = circle(200)
PI, ARC_HALF_PI = pair(_SHORT_PI), pair(_SHORT_PI / 2)

#: pi / 2 in pieces of 33, 33 and 53 bits: multiples of the first two by an integer below 2^20 are exact.
HALF_PI_A, HALF_PI_B = (
    float(truncate_below(_PI / 2, 32)),
    float(truncate_below(_PI / 2, 65) - truncate_below(_PI / 2, 32)),
)
HALF_PI_C = float(_PI / 2 - truncate_below(_PI / 2, 65))

#: Above this the pieces do not suffice.
MODERATE = 2.0**20

#: 64 bits of 2 / pi for every 32nd bit position, after 96 zeros before the binary point.
_BITS = math.floor(2 / _PI * 2**1280)
WORDS = np.array([(_BITS >> (1280 + 96 - 32 * i - 64)) & (2**64 - 1) for i in range(41)], np.uint64)

DIGIT = 27  # bits
DIGITS = 9
LAST_DIGIT = np.uint64(2**DIGIT - 1)

#: Taylor coefficients in r^2, of sin(r) / r and of cos(r), without the first one.
_SINE = [Fraction((-1) ** n, math.factorial(2 * n + 1)) for n in range(1, 12)]
_COSINE = [Fraction((-1) ** n, math.factorial(2 * n)) for n in range(1, 12)]
S1, S2, S3, S4 = (pair(c) for c in _SINE[:4])
C1, C2, C3, C4 = (pair(c) for c in _COSINE[:4])
S5, S6, S7, S8, S9, S10, S11 = (float(c) for c in _SINE[4:])
C5, C6, C7, C8, C9, C10, C11 = (float(c) for c in _COSINE[4:])


@scalar
def _reduce(x):
    """Return (r, r_low, n) with x = n pi / 2 + r and |r| <= pi / 4, for |x| <= 2^20.

    n is in the last bits of a bit pattern.
    """
    # The last bit of INTEGER is worth one, so adding it rounds the quotient to an integer, which is then in the last
    # bits of the bit pattern: n modulo 4 without a conversion, which would not vectorise on every processor.
    shifted = fma(x, TWO_OVER_PI, INTEGER)
    n = shifted - INTEGER
    r, r_low = two_sum(fma(-n, HALF_PI_A, x), -n * HALF_PI_B)
    r, r_low = quick_two_sum(r, r_low - n * HALF_PI_C)
    return r, r_low, np.float64(shifted).view(np.uint64)


@scalar
def _is_reduced(x, r):
    """Return True if the remainder has 75 correct bits: the pieces of pi / 2 end at 2^-118."""
    return (abs(x) <= MODERATE) & ((abs(r) >= 2.0**-22) | (abs(x) < 0.5))


@scalar
def _reduce_far(x):
    """Return (r, r_low, n) with x = n pi / 2 + r and |r| <= pi / 4, for any x above 2^-1.

    x = m 2^q with an integer m. The bits of 2 / pi before the window contribute whole turns, and the bits after it less
    than 2^-160 (Payne and Hanek, ACM SIGNUM Newsletter 18(1), 1983).
    """
    significand, exponent = split(abs(x))
    q = exponent - 52
    m = np.int64(significand * 2.0**52)
    m_high, m_low = np.uint64(m >> DIGIT), np.uint64(m & np.int64(2**DIGIT - 1))
    above, carry, balance = np.uint64(0), np.uint64(0), np.int64(0)
    r, r_low, n = 0.0, 0.0, np.int64(0)
    for i in range(DIGITS):
        position = q - DIGIT + DIGIT * (DIGITS - 1 - i) + 96
        word = WORDS[position >> 5] << np.uint64(position & 31)
        digit = word >> np.uint64(64 - DIGIT)
        carry = digit * m_low + above * m_high + carry
        above = digit
        n = np.int64(carry & LAST_DIGIT) + balance
        carry = carry >> np.uint64(DIGIT)
        if i < DIGITS - 1:
            # Digits from -2^26 to 2^26: the first nonzero digit has the sign of the whole rest.
            balance = np.int64(n >= 2 ** (DIGIT - 1))
            r, r_low = add_number(r, r_low, np.float64(n - (balance << DIGIT)))
            r, r_low = r * 2.0**-DIGIT, r_low * 2.0**-DIGIT
    r, r_low = multiply_pairs(r, r_low, HALF_PI[0], HALF_PI[1])
    return (r, r_low, np.uint64(n & 3)) if x > 0.0 else (-r, -r_low, np.uint64(-n & 3))


@scalar
def sine_of(r, r_low, n):
    """Return sin(r + n pi / 2) as (high, low), for |r| <= pi / 4."""
    sine = (n & np.uint64(1)) == np.uint64(0)
    z, z_low = multiply_pairs(r, r_low, r, r_low)
    # One evaluation serves both series; float64 is enough for the fifth term and later ones.
    p = fma(S11 if sine else C11, z, S10 if sine else C10)
    p = fma(fma(p, z, S9 if sine else C9), z, S8 if sine else C8)
    p = fma(fma(p, z, S7 if sine else C7), z, S6 if sine else C6)
    p = fma(p, z, S5 if sine else C5)
    s, s_low = horner_start(p, z, S4[0] if sine else C4[0], S4[1] if sine else C4[1])
    s, s_low = horner(s, s_low, z, z_low, S3[0] if sine else C3[0], S3[1] if sine else C3[1])
    s, s_low = horner(s, s_low, z, z_low, S2[0] if sine else C2[0], S2[1] if sine else C2[1])
    s, s_low = horner(s, s_low, z, z_low, S1[0] if sine else C1[0], S1[1] if sine else C1[1])
    s, s_low = multiply_pairs(s, s_low, z, z_low)
    first, first_low = r if sine else 1.0, r_low if sine else 0.0
    s, s_low = multiply_pairs(s, s_low, first, first_low)
    high, low = quick_two_sum(first, s)
    high, low = quick_two_sum(high, low + (s_low + first_low))
    negative = (n & np.uint64(2)) != np.uint64(0)
    return -high if negative else high, -low if negative else low


@scalar
def _quick(x, turn):
    """Return sin(x + turn pi / 2) if the reduction by pieces suffices, otherwise NaN."""
    inside = abs(x) <= MODERATE
    r, r_low, n = _reduce(x if inside else 0.0)
    high, low = sine_of(r, r_low, n + np.uint64(turn))
    return round_sum_to_odd(high, low) if inside & _is_reduced(x, r) else np.nan


@scalar
def _wide(x, turn):
    """Return sin(x + turn pi / 2), for finite x above 2^-30."""
    r, r_low, n = _reduce(x if abs(x) <= MODERATE else 0.0)
    if not _is_reduced(x, r):
        r, r_low, n = _reduce_far(x)
    high, low = sine_of(r, r_low, n + np.uint64(turn))
    return high, low, 0


@scalar
def sin_quick(x):
    """Return sin(x) for |x| <= 2^20."""
    y = _quick(x, 0)
    return x if x == 0.0 else y


@scalar
def cos_quick(x):
    """Return cos(x) for |x| <= 2^20."""
    return _quick(x, 1)


@scalar
def sin_wide(x):
    """Return sin(x)."""
    if not abs(x) < np.inf:
        return np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        # x - x^3 / 6, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, -significand * max(x * x / 6.0, SPECK), exponent
    return _wide(x, 0)


@scalar
def cos_wide(x):
    """Return cos(x)."""
    if not abs(x) < np.inf:
        return np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        return 1.0, -max(0.5 * x * x, SPECK) if x != 0.0 else 0.0, 0
    return _wide(x, 1)


@scalar
def _tangent_of(r, r_low, n):
    """Return tan(r + n pi / 2) as (high, low), for |r| <= pi / 4."""
    sine, sine_low = sine_of(r, r_low, n)
    cosine, cosine_low = sine_of(r, r_low, n + np.uint64(1))
    return divide_pairs(sine, sine_low, cosine, cosine_low)


@scalar
def tan_quick(x):
    """Return tan(x) for |x| <= 2^20."""
    inside = abs(x) <= MODERATE
    r, r_low, n = _reduce(x if inside else 0.0)
    high, low = _tangent_of(r, r_low, n)
    y = round_sum_to_odd(high, low) if inside & _is_reduced(x, r) else np.nan
    return x if x == 0.0 else y


@scalar
def tan_wide(x):
    """Return tan(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return x if x == 0.0 else np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        # x + x^3 / 3, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, significand * max(x * x / 3.0, SPECK), exponent
    r, r_low, n = _reduce(x if abs(x) <= MODERATE else 0.0)
    if not _is_reduced(x, r):
        r, r_low, n = _reduce_far(x)
    high, low = _tangent_of(r, r_low, n)
    return high, low, 0


@scalar
def _reduce_half_turns(x):
    """Return (r, r_low, n) with pi x = n pi / 2 + r + 2 pi m and |r| <= pi / 4, for a finite x and an integer m."""
    # Both differences are exact.
    part = x - 2.0 * nearest_integer(0.5 * x)
    n = nearest_integer(2.0 * part)
    r, r_low = multiply_pairs(PI[0], PI[1], part - 0.5 * n, 0.0)
    return r, r_low, np.float64(n + INTEGER).view(np.uint64)


@scalar
def _half_turns_quick(x, turn):
    """Return sin(pi x + turn pi / 2)."""
    inside = abs(x) < np.inf
    r, r_low, n = _reduce_half_turns(x if inside else 0.0)
    high, low = sine_of(r, r_low, n + np.uint64(turn))
    return round_sum_to_odd(high, low) if inside else np.nan


@scalar
def sinpi_quick(x):
    """Return sin(pi x) for zero and 2^-300 <= |x|."""
    y = _half_turns_quick(x, 0)
    return math.copysign(0.0, x) if y == 0.0 else y


@scalar
def cospi_quick(x):
    """Return cos(pi x)."""
    y = _half_turns_quick(x, 1)
    return 0.0 if y == 0.0 else y


@scalar
def sinpi_wide(x):
    """Return sin(pi x): zeros have the sign of x."""
    if not abs(x) < np.inf:
        return np.nan, 0.0, 0
    if abs(x) < 2.0**-60:
        # pi x, on the significand so that nothing underflows; the next term is below 2^-116 of it
        significand, exponent = split(x)
        high, low = multiply_pairs(PI[0], PI[1], significand, 0.0)
        return high if x != 0.0 else x, low, exponent
    r, r_low, n = _reduce_half_turns(x)
    high, low = sine_of(r, r_low, n)
    return high if high != 0.0 else math.copysign(0.0, x), low, 0


@scalar
def cospi_wide(x):
    """Return cos(pi x): zeros are +0."""
    if not abs(x) < np.inf:
        return np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        # 1 - (pi x)^2 / 2
        return 1.0, -max(0.5 * (PI[0] * x) * (PI[0] * x), SPECK) if x != 0.0 else 0.0, 0
    r, r_low, n = _reduce_half_turns(x)
    high, low = sine_of(r, r_low, n + np.uint64(1))
    return high if high != 0.0 else 0.0, low, 0


#: The table has the quotients i / PARTS, of which the nearest is used.
PARTS = 64

#: Taylor coefficients in d^2 of atan(d) / d, without the first one.
A1, A2 = pair(Fraction(-1, 3)), pair(Fraction(1, 5))
A3, A4, A5, A6 = (-1 / 7, 1 / 9, -1 / 11, 1 / 13)


def _arctangents() -> np.ndarray:
    """Return atan(i / PARTS) as pairs, by Euler's series of positive terms."""
    rows = np.zeros((PARTS + 1, 2))
    for i in range(1, PARTS + 1):
        square = Fraction(i * i, PARTS * PARTS + i * i)
        one = 1 << 160
        term = total = math.floor(square * Fraction(PARTS, i) * one)
        n = 0
        while term:
            n += 1
            term = term * (2 * n) * square.numerator // ((2 * n + 1) * square.denominator)
            total += term
        rows[i] = pair(Fraction(total, one))
    return rows


TABLE = _arctangents()


@scalar
def _arctangent(y, y_low, x, x_low):
    """Return atan(y / x) as (high, low) for 0 <= y <= x as pairs, x > 0."""
    # One addition gives both the table index and the quotient of this entry. The quotient y / x need not be correct to
    # the last bit, because d is computed from y and x.
    shifted = fma(y / x, float(PARTS), INTEGER)
    i = np.float64(shifted).view(np.uint64) & np.uint64(127)
    c = (shifted - INTEGER) / PARTS
    # atan(y / x) = atan(c) + atan(d) with d = (y - c x) / (x + c y)
    p, p_low = two_product(c, x)
    n, n_low = add_pairs(y, y_low, -p, -fma(c, x_low, p_low))
    p, p_low = two_product(c, y)
    m, m_low = add_pairs(x, x_low, p, fma(c, y_low, p_low))
    d, d_low = divide_pairs(n, n_low, m, m_low)
    z, z_low = multiply_pairs(d, d_low, d, d_low)
    s = fma(fma(fma(A6, z, A5), z, A4), z, A3)
    s, s_low = horner_start(s, z, A2[0], A2[1])
    s, s_low = horner(s, s_low, z, z_low, A1[0], A1[1])
    s, s_low = multiply_pairs(s, s_low, z, z_low)
    s, s_low = multiply_pairs(s, s_low, d, d_low)
    first, first_low = quick_two_sum(d, s)
    high, low = quick_two_sum(TABLE[i, 0], first)
    return quick_two_sum(high, low + (TABLE[i, 1] + (first_low + (s_low + d_low))))


@scalar
def _angle(y, y_low, x, x_low):
    """Return the angle of a point (x, y) of the upper half plane as (high, low), for y >= 0, not both zero."""
    steep = y > abs(x)
    a, a_low = abs(x), x_low if x >= 0.0 else -x_low
    high, low = _arctangent(a if steep else y, a_low if steep else y_low, y if steep else a, y_low if steep else a_low)
    # pi / 2 - atan(x / y) if steep; otherwise the arc itself, or pi minus the arc on the left.
    minus = steep ^ (x < 0.0)
    high, low = -high if minus else high, -low if minus else low
    start, start_low = ARC_HALF_PI[0] if steep else PI[0], ARC_HALF_PI[1] if steep else PI[1]
    plain = (not steep) & (x >= 0.0)
    sum_high, sum_low = add_pairs(start, start_low, high, low)
    return high if plain else sum_high, low if plain else sum_low


@scalar
def atan_quick(x):
    """Return atan(x) for zero and 2^-300 <= |x| <= 2^300."""
    inside = abs(x) < np.inf
    high, low = _angle(abs(x) if inside else 0.0, 0.0, 1.0, 0.0)
    result = math.copysign(round_sum_to_odd(high, low), x) if inside else np.nan
    return x if x == 0.0 else result


@scalar
def atan_wide(x):
    """Return atan(x)."""
    if x != x or x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-30:
        # x - x^3 / 3, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, -significand * max(x * x / 3.0, SPECK), exponent
    high, low = ARC_HALF_PI
    if abs(x) < 2.0**200:
        high, low = _angle(abs(x), 0.0, 1.0, 0.0)
    return math.copysign(high, x), low if x > 0.0 else -low, 0


@scalar
def _adjacent(x):
    """Return the square root of 1 - x^2 as (high, low), for |x| <= 1."""
    a, a_low = two_sum(1.0, -x)
    b, b_low = two_sum(1.0, x)
    square, square_low = multiply_pairs(a, a_low, b, b_low)
    return root_of_pair(square, square_low)


@scalar
def _asin(x):
    """Return asin(x) as (high, low), for 2^-30 <= |x| <= 1."""
    other, other_low = _adjacent(x)
    high, low = _angle(abs(x), 0.0, other, other_low)
    return math.copysign(high, x), low if x > 0.0 else -low


@scalar
def asin_quick(x):
    """Return asin(x) for zero and 2^-300 <= |x| <= 1."""
    small, inside = abs(x) < 2.0**-30, abs(x) <= 1.0
    high, low = _asin(x if inside & (not small) else 1.0)
    result = round_sum_to_odd(x, x * max(x * x / 6.0, SPECK)) if small else round_sum_to_odd(high, low)
    return result if inside else np.nan


@scalar
def asin_wide(x):
    """Return asin(x)."""
    if not abs(x) <= 1.0 or x == 0.0:
        return x if x == 0.0 else np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        # x + x^3 / 6, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, significand * max(x * x / 6.0, SPECK), exponent
    high, low = _asin(x)
    return high, low, 0


@scalar
def _acos(x):
    """Return acos(x) as (high, low), for |x| <= 1."""
    other, other_low = _adjacent(x)
    return _angle(other, other_low, x, 0.0)


@scalar
def acos_quick(x):
    """Return acos(x) for |x| <= 1."""
    inside = abs(x) <= 1.0
    high, low = _acos(x if inside else 0.0)
    return round_sum_to_odd(high, low) if inside else np.nan


@scalar
def acos_wide(x):
    """Return acos(x)."""
    if not abs(x) <= 1.0:
        return np.nan, 0.0, 0
    high, low = _acos(x)
    return high, low, 0


@scalar
def atan2_quick(y, x):
    """Return the angle of (x, y), for 2^-200 <= |y / x| <= 2^200."""
    q = abs(y / (x if x != 0.0 else 1.0))
    inside = (q >= 2.0**-200) & (q <= 2.0**200) & (x != 0.0)
    high, low = _angle(abs(y) if inside else 1.0, 0.0, x if inside else 1.0, 0.0)
    return math.copysign(round_sum_to_odd(high, low), y) if inside else np.nan


@scalar
def _on_an_axis(y, x):
    """Return the angle as (high, low) if one coordinate is 0 or infinite; if both are infinite, as for (1, 1)."""
    if abs(x) == np.inf or y == 0.0:
        if abs(y) == np.inf:
            return _angle(1.0, 0.0, math.copysign(1.0, x), 0.0)
        return PI if math.copysign(1.0, x) < 0.0 else (0.0, 0.0)
    return ARC_HALF_PI


@scalar
def atan2_wide(y, x):
    """Return the angle of (x, y)."""
    if x != x or y != y:
        return np.nan, 0.0, 0
    exponent = 0
    if x == 0.0 or y == 0.0 or abs(x) == np.inf or abs(y) == np.inf:
        high, low = _on_an_axis(y, x)
    else:
        a, a_exponent = split(abs(y))
        b, b_exponent = split(x)
        distance = a_exponent - b_exponent
        if x > 0.0 and distance < -60:
            # The quotient minus a third of its cube; the sign of the latter is enough
            high, low, exponent = divide_wide(abs(y), x)
            low -= SPECK if low == 0.0 else 0.0
        else:
            high, low = _angle(a * power_of_two(min(max(distance, -200), 200)), 0.0, b, 0.0)
    return math.copysign(high, y), low if math.copysign(1.0, y) > 0.0 else -low, exponent
