"""Arithmetic of arrays by the definition, one rounded value at a time: the oracle of whole updates."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from simfloat.formats import nearest_even as EVEN
from simfloat.formats.definition import round_value
from tests.reference import operate, sequential_dot


def root(x):
    """The square root of a positive number to 300 bits, odd where it is not exact."""
    shifted = Fraction(x) * 4**300
    r = math.isqrt(shifted.numerator // shifted.denominator)
    return Fraction(r, 2**300) if r * r == shifted else Fraction(2 * r + 1, 2**301)


class Rounded:
    """Arithmetic on arrays of Python floats, each result rounded to a format by the definition; sums run to nearest."""

    def __init__(self, format, rounding=EVEN):
        self.format, self.rounding = format, rounding

    def each(self, function, *operands):
        return np.vectorize(function, otypes=[float])(*operands)

    def to(self, x):
        return self.each(lambda v: round_value(v, self.format, self.rounding), x)

    def add(self, a, b):
        return self.each(lambda x, y: operate("add", self.format, self.rounding, x, y), a, b)

    def sub(self, a, b):
        return self.add(a, np.negative(b))

    def mul(self, a, b):
        return self.each(lambda x, y: operate("multiply", self.format, self.rounding, x, y), a, b)

    def div(self, a, b):
        return self.each(lambda x, y: operate("divide", self.format, self.rounding, x, y), a, b)

    def sqrt(self, x):
        return self.each(lambda v: round_value(root(v) if v else v, self.format, self.rounding), x)

    def rsqrt(self, x):
        return self.each(lambda v: round_value(1 / root(v), self.format, self.rounding), x)

    def exp(self, x):
        return self.each(lambda v: self.decimal(v, Decimal.exp), x)

    def log(self, x):
        return self.each(lambda v: self.decimal(v, Decimal.ln), x)

    def decimal(self, x, function):
        with localcontext(prec=60):
            return round_value(Fraction(function(Decimal(x))), self.format, self.rounding)

    def sum(self, x, by, axis=None):
        def total(values):
            return round_value(sequential_dot(list(values), [1.0] * len(values), by, EVEN), self.format, self.rounding)

        if axis is None:
            return np.array(total(np.ravel(x)))
        return np.expand_dims(np.apply_along_axis(total, axis, x), axis)

    def matmul(self, a, b, compute, by):
        return self.product(compute.to(a), compute.to(b), by)

    def product(self, a, b, by):
        dots = [[sequential_dot(row.tolist(), column.tolist(), by, EVEN) for column in b.T] for row in a]
        return self.to(np.array(dots))
