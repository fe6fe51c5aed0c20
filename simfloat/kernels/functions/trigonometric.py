"""sin, cos and tan, by reduction to an eighth of a turn and Taylor series."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.constants import SPECK, circle, pair, truncate_below
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma, round_sum_to_odd
from simfloat.kernels.pairs import add_number, divide_pairs, horner, horner_start, multiply_pairs, quick_two_sum
from simfloat.kernels.unrounded import INTEGER, split, two_sum

_PI = circle(1300)
HALF_PI = pair(_PI / 2)
TWO_OVER_PI = float(2 / _PI)

#: pi / 2 in pieces of 33, 33 and 53 bits: multiples of the first two by an integer below 2^20 are exact.
HALF_PI_A, HALF_PI_B = (
    float(truncate_below(_PI / 2, 32)),
    float(truncate_below(_PI / 2, 65) - truncate_below(_PI / 2, 32)),
)
HALF_PI_C = float(_PI / 2 - truncate_below(_PI / 2, 65))

#: Above this the pieces do not suffice.
MODERATE = 2.0**20

#: The 64 bits of 2 / pi from every 32nd on, after 96 zeros before the point.
_BITS = math.floor(2 / _PI * 2**1280)
WORDS = np.array([(_BITS >> (1280 + 96 - 32 * i - 64)) & (2**64 - 1) for i in range(41)], np.uint64)

DIGIT = 27  # bits
DIGITS = 9
LAST_DIGIT = np.uint64(2**DIGIT - 1)

#: Taylor coefficients in r^2, of sin(r) / r and of cos(r), from the second on.
_SINE = [Fraction((-1) ** n, math.factorial(2 * n + 1)) for n in range(1, 12)]
_COSINE = [Fraction((-1) ** n, math.factorial(2 * n)) for n in range(1, 12)]
S1, S2, S3, S4 = (pair(c) for c in _SINE[:4])
C1, C2, C3, C4 = (pair(c) for c in _COSINE[:4])
S5, S6, S7, S8, S9, S10, S11 = (float(c) for c in _SINE[4:])
C5, C6, C7, C8, C9, C10, C11 = (float(c) for c in _COSINE[4:])


@scalar
def _reduce(x):
    """(r, r_low, n) with x = n pi / 2 + r and |r| <= pi / 4, for |x| <= 2^20; n is in the last bits of an image."""
    # Added to INTEGER, whose last bit is worth one, the quotient is rounded to an integer that is at once in the
    # image's last bits: n modulo 4 without a conversion, which would not vectorise everywhere.
    shifted = fma(x, TWO_OVER_PI, INTEGER)
    n = shifted - INTEGER
    r, r_low = two_sum(fma(-n, HALF_PI_A, x), -n * HALF_PI_B)
    r, r_low = quick_two_sum(r, r_low - n * HALF_PI_C)
    return r, r_low, np.float64(shifted).view(np.uint64)


@scalar
def _is_reduced(x, r):
    """Whether the remainder has its 75 bits: the pieces of pi / 2 end at 2^-118."""
    return (abs(x) <= MODERATE) & ((abs(r) >= 2.0**-22) | (abs(x) < 0.5))


@scalar
def _reduce_far(x):
    """(r, r_low, n) with x = n pi / 2 + r and |r| <= pi / 4, for any x above 2^-1.

    x = m 2^q with an integer m; bits of 2 / pi before the window give whole turns, those behind it less than 2^-160
    (Payne and Hanek, ACM SIGNUM Newsletter 18(1), 1983).
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
            # Digits from -2^26 to 2^26: the first one that is not zero has the sign of all that follow.
            balance = np.int64(n >= 2 ** (DIGIT - 1))
            r, r_low = add_number(r, r_low, np.float64(n - (balance << DIGIT)))
            r, r_low = r * 2.0**-DIGIT, r_low * 2.0**-DIGIT
    r, r_low = multiply_pairs(r, r_low, HALF_PI[0], HALF_PI[1])
    return (r, r_low, np.uint64(n & 3)) if x > 0.0 else (-r, -r_low, np.uint64(-n & 3))


@scalar
def sine_of(r, r_low, n):
    """sin(r + n pi / 2) as (high, low), for |r| <= pi / 4."""
    sine = (n & np.uint64(1)) == np.uint64(0)
    z, z_low = multiply_pairs(r, r_low, r, r_low)
    # One evaluation serves both series; from the fifth term on float64 is enough.
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
    """sin(x + turn pi / 2), where the reduction by pieces suffices."""
    inside = abs(x) <= MODERATE
    r, r_low, n = _reduce(x if inside else 0.0)
    high, low = sine_of(r, r_low, n + np.uint64(turn))
    return round_sum_to_odd(high, low) if inside & _is_reduced(x, r) else np.nan


@scalar
def _wide(x, turn):
    """sin(x + turn pi / 2), for finite x above 2^-30."""
    r, r_low, n = _reduce(x if abs(x) <= MODERATE else 0.0)
    if not _is_reduced(x, r):
        r, r_low, n = _reduce_far(x)
    high, low = sine_of(r, r_low, n + np.uint64(turn))
    return high, low, 0


@scalar
def sin_quick(x):
    """sin(x) for |x| <= 2^20."""
    y = _quick(x, 0)
    return x if x == 0.0 else y


@scalar
def cos_quick(x):
    """cos(x) for |x| <= 2^20."""
    return _quick(x, 1)


@scalar
def sin_wide(x):
    """sin(x)."""
    if not abs(x) < np.inf:
        return np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        # x - x^3 / 6, on the significand so that nothing underflows
        significand, exponent = split(x)
        return significand, -significand * max(x * x / 6.0, SPECK), exponent
    return _wide(x, 0)


@scalar
def cos_wide(x):
    """cos(x)."""
    if not abs(x) < np.inf:
        return np.nan, 0.0, 0
    if abs(x) < 2.0**-30:
        return 1.0, -max(0.5 * x * x, SPECK) if x != 0.0 else 0.0, 0
    return _wide(x, 1)


@scalar
def _tangent_of(r, r_low, n):
    """tan(r + n pi / 2) as (high, low), for |r| <= pi / 4."""
    sine, sine_low = sine_of(r, r_low, n)
    cosine, cosine_low = sine_of(r, r_low, n + np.uint64(1))
    return divide_pairs(sine, sine_low, cosine, cosine_low)


@scalar
def tan_quick(x):
    """tan(x) for |x| <= 2^20."""
    inside = abs(x) <= MODERATE
    r, r_low, n = _reduce(x if inside else 0.0)
    high, low = _tangent_of(r, r_low, n)
    y = round_sum_to_odd(high, low) if inside & _is_reduced(x, r) else np.nan
    return x if x == 0.0 else y


@scalar
def tan_wide(x):
    """tan(x)."""
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
