"""Numbers of about 106 bits as unevaluated sums of two float64: high + low with |low| <= ulp(high) / 2.

Relative errors are a few 2^-104. Algorithms: Dekker, Numerische Mathematik 18 (1971); Joldes, Muller and Popescu,
"Tight and rigorous error bounds for basic building blocks of double-word arithmetic", ACM TOMS 44(2), 2017.
"""

from __future__ import annotations

import math

from simfloat.kernels.jit import scalar
from simfloat.kernels.machine import fma
from simfloat.kernels.unrounded import two_product, two_sum


@scalar
def quick_two_sum(a, b):
    """a + b and its error, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


@scalar
def add_pairs(a, a_low, b, b_low):
    """(a, a_low) + (b, b_low)."""
    s, e = two_sum(a, b)
    t, f = two_sum(a_low, b_low)
    s, e = quick_two_sum(s, e + t)
    return quick_two_sum(s, e + f)


@scalar
def add_number(a, a_low, b):
    """(a, a_low) + b."""
    s, e = two_sum(a, b)
    return quick_two_sum(s, e + a_low)


@scalar
def multiply_pairs(a, a_low, b, b_low):
    """(a, a_low) * (b, b_low)."""
    p, e = two_product(a, b)
    return quick_two_sum(p, fma(a, b_low, fma(a_low, b, e)))


@scalar
def divide_pairs(a, a_low, b, b_low):
    """(a, a_low) / (b, b_low)."""
    q = a / b
    rest = (fma(-q, b, a) - q * b_low) + a_low
    return quick_two_sum(q, rest / b)


@scalar
def root_of_pair(a, a_low):
    """The square root of (a, a_low) for a >= 0."""
    high = math.sqrt(a)
    return quick_two_sum(high, (fma(-high, high, a) + a_low) / (2.0 * high if high > 0.0 else 1.0))


@scalar
def horner(p, p_low, x, x_low, c, c_low):
    """(p, p_low) * (x, x_low) + (c, c_low), where the constant is the larger term."""
    q, q_low = multiply_pairs(p, p_low, x, x_low)
    s, e = quick_two_sum(c, q)
    return quick_two_sum(s, e + (q_low + c_low))


@scalar
def horner_start(p, x, c, c_low):
    """p * x + (c, c_low), where p is known to float64 only, so that the product's rounding adds little."""
    s, e = quick_two_sum(c, p * x)
    return s, e + c_low
