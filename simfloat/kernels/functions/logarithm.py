"""log, log2 and log10, by a table of logarithms and a short series.

P. T. P. Tang, "Table-driven implementation of the logarithm function in IEEE floating-point arithmetic", ACM TOMS
16(4), 1990, in double-word arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from simfloat.kernels.functions.constants import LN2_A, LN2_B, LN2_C, LOG2_E, logarithm, pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma, round_sum_to_odd
from simfloat.kernels.pairs import add_number, add_pairs, horner, horner_start, multiply_pairs, quick_two_sum
from simfloat.kernels.unrounded import nearest_integer, two_product

#: Significands are taken by the nearest 1 + i / 256; from this one on, near the root of two, as halves.
MIDDLE = 106

FRACTION, ONE_IMAGE = np.uint64(0x000FFFFFFFFFFFFF), np.uint64(0x3FF0000000000000)

LOG10_E = pair(1 / logarithm(Fraction(10)))

#: The powers of ten that are float64 numbers.
TENS = np.array([10.0**n for n in range(23)])

THIRD = pair(Fraction(1, 3))
L5, L6, L7, L8, L9, L10 = ((-1) ** (n + 1) / n for n in range(5, 11))


def _table() -> np.ndarray:
    """Rows (inverse of the nearest 1 + i / 256, and minus the logarithm of the inverse as a pair)."""
    rows = np.zeros((257, 3))
    for i in range(257):
        inverse = 256 / (256 + i)
        rows[i] = inverse, *pair(-logarithm(Fraction(inverse) * (2 if i >= MIDDLE else 1)))
    return rows


TABLE = _table()


@scalar
def _parts(x, e):
    """(e', t, t_low) with log(x 2^e) = e' ln 2 + t and |t| < 0.36, for positive normal x."""
    image = np.float64(x).view(np.uint64)
    m = np.uint64((image & FRACTION) | ONE_IMAGE).view(np.float64)
    i = ((image & FRACTION) + np.uint64(1 << 43)) >> np.uint64(44)
    # The exponent as the last bits of 2^52 + exponent: a conversion would not vectorise everywhere.
    e += np.uint64((image >> np.uint64(52)) | np.uint64(0x4330000000000000)).view(np.float64) - (2.0**52 + 1023.0)
    # From the root of two on the significand counts as a half: then no large part of t cancels e' ln 2 for x just below
    # one.
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
    """log(x 2^e) as (high, low), for positive normal x."""
    e, t, t_low = _parts(x, e)
    high, low = add_pairs(e * LN2_A, e * LN2_B, t, t_low)
    return quick_two_sum(high, low + e * LN2_C)


@scalar
def log2_pair(x, e):
    """log2(x 2^e) as (high, low), for positive normal x."""
    e, t, t_low = _parts(x, e)
    high, low = multiply_pairs(t, t_low, LOG2_E[0], LOG2_E[1])
    return add_number(high, low, e)


@scalar
def is_normal(x):
    """Whether x is positive, normal and finite."""
    return (x >= 2.0**-1022) & (x < np.inf)


@scalar
def _log_of_special(x):
    """A logarithm of zero, infinity, NaN or a negative number."""
    return -np.inf if x == 0.0 else x if x == np.inf else np.nan


@scalar
def _normalize(x):
    """A positive number as a normal one times a power of two, and the exponent of that."""
    return (x * 2.0**54, -54.0) if x < 2.0**-1022 else (x, 0.0)


@scalar
def log_quick(x):
    """log(x) for positive normal numbers."""
    high, low = log_pair(x if is_normal(x) else 1.0, 0.0)
    return round_sum_to_odd(high, low) if is_normal(x) else np.nan


@scalar
def log_wide(x):
    """log(x)."""
    if not x > 0.0 or x == np.inf:
        return _log_of_special(x), 0.0, 0
    normal, shift = _normalize(x)
    high, low = log_pair(normal, shift)
    return high, low, 0


@scalar
def log2_quick(x):
    """log2(x) for positive normal numbers."""
    high, low = log2_pair(x if is_normal(x) else 1.0, 0.0)
    return round_sum_to_odd(high, low) if is_normal(x) else np.nan


@scalar
def log2_wide(x):
    """log2(x)."""
    if not x > 0.0 or x == np.inf:
        return _log_of_special(x), 0.0, 0
    normal, shift = _normalize(x)
    high, low = log2_pair(normal, shift)
    return high, low, 0


@scalar
def _log10(x, e):
    """log10(x 2^e) as (high, low), for positive normal x."""
    high, low = log_pair(x, e)
    high, low = multiply_pairs(high, low, LOG10_E[0], LOG10_E[1])
    n = nearest_integer(min(max(high, 0.0), 22.0))
    is_exact = (e == 0.0) & (x == TENS[np.int64(n)])
    return n if is_exact else high, 0.0 if is_exact else low


@scalar
def log10_quick(x):
    """log10(x) for positive normal numbers."""
    high, low = _log10(x if is_normal(x) else 1.0, 0.0)
    return round_sum_to_odd(high, low) if is_normal(x) else np.nan


@scalar
def log10_wide(x):
    """log10(x)."""
    if not x > 0.0 or x == np.inf:
        return _log_of_special(x), 0.0, 0
    normal, shift = _normalize(x)
    high, low = _log10(normal, shift)
    return high, low, 0
