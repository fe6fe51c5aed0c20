"""Operations defined by exact fractions: what every kernel is held to."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.formats.definition import round_value
from simfloat.kernels.random import words_at


def exact(operation, a, b=0.0, c=0.0, *, negative_zero_sums=False):
    """The exact result: a Fraction, or a float where it is zero, infinite or NaN (IEEE 754-2019, sections 6 and 7)."""
    with np.errstate(all="ignore"):
        a, b, c = np.float64(a), np.float64(b), np.float64(c)
        if operation == "subtract":
            return exact("add", a, -b, negative_zero_sums=negative_zero_sums)
        if operation == "multiply":
            return Fraction(a) * Fraction(b) if _plain(a) and _plain(b) else float(a * b)
        if operation == "divide":
            return Fraction(a) / Fraction(b) if _plain(a) and _plain(b) else float(a / b)
        if operation == "fma":
            product = exact("multiply", a, b)
            if isinstance(product, float):
                return exact("add", product, c, negative_zero_sums=negative_zero_sums)
            if not math.isfinite(c):
                return float(c)
            return product + Fraction(c) or (-0.0 if negative_zero_sums else 0.0)
        if not (math.isfinite(a) and math.isfinite(b)):
            return float(a + b)
        if a == 0 and b == 0 and np.signbit(a) == np.signbit(b):
            return float(a)
        return Fraction(a) + Fraction(b) or (-0.0 if negative_zero_sums else 0.0)


def operate(operation, format, rounding, *operands, random=0):
    """The exact result rounded once by the definition."""
    down = rounding.mode == "toward_negative"
    return round_value(exact(operation, *operands, negative_zero_sums=down), format, rounding, int(random))


def draws(count, rounding, seed=0, call=0):
    """The integers R that a plain stochastic call uses for its elements, by the definition of the random words."""
    words = [words_at_python(i // 4, 0, call, 0, seed)[i % 4] for i in range(count)]
    return [word >> (32 - rounding.bits) for word in words]


def words_at_python(element, step, call, stage, seed):
    """`kernels.random.words_at` on Python integers."""
    return [int(w) for w in words_at(*(np.uint64(v) for v in (element, step, call, stage, seed)))]


def _plain(x):
    return math.isfinite(x) and x != 0
