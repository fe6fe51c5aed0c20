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


def sequential_dot(a, b, format, rounding, products=None, element=0, seed=0, call=0, stage=1, step=0):
    """Sum over ascending k from +0, each step by the definition."""
    total = 0.0
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        if products is None:
            total = operate(
                "fma", format, rounding, x, y, total, random=_draw(rounding, element, step + k, seed, call, stage)
            )
        else:
            product = operate(
                "multiply", products, rounding, x, y, random=_draw(rounding, element, step + k, seed, call, stage + 1)
            )
            total = operate(
                "add", format, rounding, total, product, random=_draw(rounding, element, step + k, seed, call, stage)
            )
    return total


def _draw(rounding, element, step, seed, call, stage):
    """The integer R of a step of a stochastic sum."""
    if not rounding.is_stochastic:
        return 0
    return words_at_python(element, step, call, stage, seed)[step % 4] >> (32 - rounding.bits)


def matrix_product(a, b, dot):
    """The matrix of dot(row of a, column of b, element number)."""
    rows, columns = len(a), b.shape[1]
    flat = [dot(a[i], b[:, j], i * columns + j) for i in range(rows) for j in range(columns)]
    return np.array(flat, np.float64).reshape(rows, columns)
