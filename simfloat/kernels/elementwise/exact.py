"""Exact results of + - * / sqrt and fma for a single later rounding, and arithmetic of pairs of float64.

`*_odd` return the exact result rounded to odd in float64. A later rounding to at most 50 bits, in any deterministic
mode, is then the rounding of the exact result (Boldo and Melquiond, IEEE TC 57(4), 2008). They require operands with
error terms in the range of float64. `*_wide` accept any operands: they compute with significands near one and return
the exponent separately, as result = (high + low) * 2^exponent.

A pair is a number of about 106 bits, the unevaluated sum of two float64: high + low with |low| <= ulp(high) / 2.
Relative errors are a few 2^-104. Algorithms: Dekker, Numerische Mathematik 18 (1971); Joldes, Muller and Popescu,
"Tight and rigorous error bounds for basic building blocks of double-word arithmetic", ACM TOMS 44(2), 2017.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.compile.intrinsics import binade, floor, fma, round_sum_to_odd
from simfloat.kernels.compile.jit import scalar

LARGEST = 1.7976931348623157e308

#: The last bit of a float64 of this size is worth one.
INTEGER = 1.5 * 2.0**52

#: If an addend is this many binades below the other, it influences a decision only by its sign.
FAR = 250


@scalar
def two_sum(a, b):
    """Return a + b and the exact rounding error (Knuth, The Art of Computer Programming 2, 4.2.2)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@scalar
def two_product(a, b):
    """Return a * b and the rounding error, which is exact if it does not underflow."""
    p = a * b
    return p, fma(a, b, -p)


@scalar
def add_odd(a, b, sign):
    """Return a + b rounded to odd; a zero sum of unlike signs is +0 if sign is 1, -0 if it is -1 (toward_negative)."""
    s, e = two_sum(sign * a, sign * b)
    return sign * round_sum_to_odd(s, e)


@scalar
def subtract_odd(a, b, sign):
    """Return a - b rounded to odd; `sign` as in add_odd."""
    return add_odd(a, -b, sign)


@scalar
def multiply_odd(a, b):
    """Return a * b rounded to odd."""
    p, e = two_product(a, b)
    return round_sum_to_odd(p, e)


@scalar
def divide_odd(a, b):
    """Return a / b rounded to odd; the remainder a - q * b is exact and shows on which side of q the quotient is."""
    q = a / b
    r = fma(-q, b, a)
    return round_sum_to_odd(q, r if b > 0.0 else -r)


@scalar
def reciprocal_odd(x):
    """Return 1 / x rounded to odd."""
    return divide_odd(1.0, x)


@scalar
def sqrt_odd(x):
    """Return the square root of x rounded to odd; x - s * s is exact and shows on which side of s the root is."""
    s = math.sqrt(x) if x >= 0.0 else np.nan
    return round_sum_to_odd(s, fma(-s, s, x))


@scalar
def fma_odd(a, b, c, sign):
    """Return a * b + c rounded to odd; `sign` as in add_odd. A sum of four terms (Boldo and Melquiond 2008, 5)."""
    high, low = two_product(a, b)
    # Multiplied by -1 and back, an exact zero sum becomes -0, as in rounding toward negative: the sign of zero needs no
    # branch.
    near = sign * (sign * high + sign * c)
    t, t_error = two_sum(c, low)
    v, v_error = two_sum(high, t)
    s, e = two_sum(v, odd_sum(t_error, v_error))
    # Infinite and zero results are correct in plain arithmetic, while the error terms are NaN or have lost the sign.
    return round_sum_to_odd(s, e) if (abs(near) < np.inf) & (s != 0.0) else near


@scalar
def odd_sum(a, b):
    """Return a + b rounded to odd."""
    s, e = two_sum(a, b)
    return round_sum_to_odd(s, e)


@scalar
def nearest_integer(x):
    """Return the integer nearest to a float64, ties to even; zeros are +0."""
    # All numbers of at least 2^52 are integers, and a sum with an anchor of this size and the sign of x has the spacing
    # of integers.
    anchor = math.copysign(2.0**52, x)
    return (x + anchor) - anchor if abs(x) < 2.0**52 else x


@scalar
def power_of_two(n):
    """Return 2^n for -1022 <= n <= 1023."""
    return np.uint64(np.uint64(n + 1023) << np.uint64(52)).view(np.float64)


@scalar
def split(x):
    """Return (significand, exponent) of x with 1 <= |significand| < 2; zero, infinities and NaN have exponent 0."""
    if x == 0.0 or not abs(x) < np.inf:
        return x, 0
    subnormal = abs(x) < 2.0**-1022
    normal = x * 2.0**54 if subnormal else x
    exponent = np.int64((np.float64(normal).view(np.uint64) >> np.uint64(52)) & np.uint64(0x7FF)) - 1023
    return normal / binade(abs(normal)), exponent - 54 if subnormal else exponent


@scalar
def scale_by_power(x, exponent):
    """Return x * 2^exponent, rounded at most once: |x| is near one, so only the second factor can leave the range."""
    # Two factors, because `power_of_two` only has normal float64 numbers, and exponents go beyond them. The first
    # product stays normal, so at most the second one is rounded.
    first = min(max(exponent, -1000), 1000)
    return x * power_of_two(first) * power_of_two(min(max(exponent - first, -1022), 1023))


@scalar
def round_pair_to_odd(high, low, exponent):
    """Round (high + low) * 2^exponent to odd in float64: tiny results keep a last bit, huge ones stay finite."""
    s = round_sum_to_odd(high, low)
    if s == 0.0 or not abs(s) < np.inf:
        return s
    y = scale_by_power(s, exponent)
    if not abs(y) < np.inf:
        return math.copysign(LARGEST, s)
    # Scaling the result back shows the part that the first scaling dropped from a subnormal result.
    return round_sum_to_odd(y, s - scale_by_power(y * 2.0**100, -exponent - 100)) if abs(y) < 2.0**-1000 else y


@scalar
def round_pair_to_double(high, low, exponent):
    """Round (high + low) * 2^exponent to nearest float64, where high is the rounding of the sum."""
    y = scale_by_power(high, exponent)
    if not abs(y) < 2.0**-1021 or high == 0.0:
        return y
    # Gradual underflow: round in units of the smallest number.
    units, rest = scale_by_power(high, exponent + 1074), scale_by_power(low, exponent + 1074)
    whole = floor(units)
    part = units - whole
    up = part > 0.5 or (part == 0.5 and (rest > 0.0 or (rest == 0.0 and whole % 2.0 == 1.0)))
    return math.copysign((whole + 1.0 if up else whole) * 5e-324, high)


@scalar
def add_wide(a, b, sign):
    """Return a + b for any operands, as (high, low, exponent)."""
    near = sign * (sign * a + sign * b)
    if a == 0.0 or b == 0.0 or a == -b or not (abs(a) < np.inf and abs(b) < np.inf):
        high, exponent = split(near)
        return high, 0.0, exponent
    x, x_exponent = split(a)
    y, y_exponent = split(b)
    exponent = max(x_exponent, y_exponent)
    x *= power_of_two(max(x_exponent - exponent, -FAR))
    y *= power_of_two(max(y_exponent - exponent, -FAR))
    high, low = two_sum(x, y)
    return high, low, exponent


@scalar
def subtract_wide(a, b, sign):
    """Return a - b for any operands, as (high, low, exponent)."""
    return add_wide(a, -b, sign)


@scalar
def multiply_wide(a, b):
    """Return a * b for any operands, as (high, low, exponent)."""
    x, x_exponent = split(a)
    y, y_exponent = split(b)
    high, low = two_product(x, y)
    return high, low if abs(high) < np.inf else 0.0, x_exponent + y_exponent


@scalar
def divide_wide(a, b):
    """Return a / b for any operands, as (high, low, exponent); the low part is itself rounded to odd."""
    x, x_exponent = split(a)
    y, y_exponent = split(b)
    high = x / y
    if high == 0.0 or not abs(high) < np.inf:
        return high, 0.0, 0
    return high, divide_odd(fma(-high, y, x), y), x_exponent - y_exponent


@scalar
def reciprocal_wide(x):
    """Return 1 / x for any operand, as (high, low, exponent)."""
    return divide_wide(1.0, x)


@scalar
def sqrt_wide(x):
    """Return the square root of any operand, as (high, low, exponent); the low part is itself rounded to odd."""
    significand, exponent = split(x)
    if not significand > 0.0 or significand == np.inf:
        return significand if significand >= 0.0 else np.nan, 0.0, 0
    if exponent % 2 != 0:
        significand, exponent = 2.0 * significand, exponent - 1
    high = math.sqrt(significand)
    rest = fma(-high, high, significand)
    low = rest / (2.0 * high)
    # One more term of the expansion shows on which side of `low` the rest of the root is.
    product, error = two_product(2.0 * high, low)
    return high, round_sum_to_odd(low, ((rest - product) - error) - low * low), exponent // 2


@scalar
def fma_wide(a, b, c, sign):
    """Return a * b + c for any operands, as (high, low, exponent); the low part is itself rounded to odd."""
    high, low, exponent = multiply_wide(a, b)
    if high == 0.0 or c == 0.0 or not (abs(high) < np.inf and abs(c) < np.inf):
        if c == 0.0 and high != 0.0:
            return high, low, exponent
        # The product is zero, or a term is infinite or NaN: the significand of the product can replace the product.
        near, near_exponent = split(sign * (sign * high + sign * c))
        return near, 0.0, near_exponent
    z, z_exponent = split(c)
    top = max(exponent, z_exponent)
    factor = power_of_two(max(exponent - top, -FAR))
    high, low, z = high * factor, low * factor, z * power_of_two(max(z_exponent - top, -FAR))
    t, t_error = two_sum(z, low)
    v, v_error = two_sum(high, t)
    s, e = two_sum(v, odd_sum(t_error, v_error))
    return (s, e, top) if s != 0.0 else (sign * 0.0, 0.0, 0)


@scalar
def quick_two_sum(a, b):
    """Return a + b and its error, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


@scalar
def add_pairs(a, a_low, b, b_low):
    """Return (a, a_low) + (b, b_low)."""
    s, e = two_sum(a, b)
    t, f = two_sum(a_low, b_low)
    s, e = quick_two_sum(s, e + t)
    return quick_two_sum(s, e + f)


@scalar
def add_number(a, a_low, b):
    """Return (a, a_low) + b."""
    s, e = two_sum(a, b)
    return quick_two_sum(s, e + a_low)


@scalar
def multiply_pairs(a, a_low, b, b_low):
    """Return (a, a_low) * (b, b_low)."""
    p, e = two_product(a, b)
    return quick_two_sum(p, fma(a, b_low, fma(a_low, b, e)))


@scalar
def divide_pairs(a, a_low, b, b_low):
    """Return (a, a_low) / (b, b_low)."""
    q = a / b
    rest = (fma(-q, b, a) - q * b_low) + a_low
    return quick_two_sum(q, rest / b)


@scalar
def root_of_pair(a, a_low):
    """Return the square root of (a, a_low) for a >= 0."""
    high = math.sqrt(a)
    return quick_two_sum(high, (fma(-high, high, a) + a_low) / (2.0 * high if high > 0.0 else 1.0))


@scalar
def horner(p, p_low, x, x_low, c, c_low):
    """Return (p, p_low) * (x, x_low) + (c, c_low), where the constant is the larger term."""
    q, q_low = multiply_pairs(p, p_low, x, x_low)
    s, e = quick_two_sum(c, q)
    return quick_two_sum(s, e + (q_low + c_low))


@scalar
def horner_start(p, x, c, c_low):
    """Return p * x + (c, c_low), with p in float64 precision, if the rounding of the product adds little."""
    s, e = quick_two_sum(c, p * x)
    return s, e + c_low
