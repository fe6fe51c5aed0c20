"""Rounded arithmetic on single numbers, for layers written out one number at a time."""

import simfloat as sf


class Narrow:
    """Rounded arithmetic on single numbers: results in one format, sums in FP32."""

    def __init__(self, format):
        self.format = format

    def __getattr__(self, name):
        return lambda *operands: float(getattr(sf, name)(*operands, self.format))

    def dot(self, a, b):
        total = 0.0
        for x, y in zip(a, b, strict=True):
            total = float(sf.fma(x, y, total, sf.FP32))
        return float(sf.round(total, self.format))

    def affine(self, x, weight, bias):
        return [self.add(self.dot(x, row), b) for row, b in zip(weight, bias, strict=True)]

    def sum(self, terms):
        return self.dot(terms, [1.0] * len(terms))
