"""Checks of sums: every step by the definition, exact sums by fractions, stagnation by the known table."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.selftest import golden
from simfloat.selftest.batch import Batch
from simfloat.selftest.numbers import DETERMINISTIC, hard_operands
from simfloat.selftest.reference import sequential_dot

CASES = [
    *((format, inputs) for format in (sf.FP16, sf.BF16, sf.FP32) for inputs in (sf.FP16, sf.BF16, sf.E4M3, sf.FP32)),
    *((sf.E4M3, sf.E4M3), (sf.TF32, sf.BF16), (sf.Format(11, 30), sf.FP32)),
]


def sequential(quick: bool) -> Iterator[Batch]:
    """Products of matrices whose sums cancel and meet ties, fused and with rounded products."""
    rng = np.random.default_rng(7)
    for format, inputs in CASES[::4] if quick else CASES:
        a, b = hard_operands(rng, inputs, 2, 24, 3)
        for rounding in (*DETERMINISTIC, sf.stochastic(), sf.stochastic(4, "A")):
            for products in (None, format):
                accumulate = sf.sequential(format, rounding=rounding, products=products)
                got = sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(3))
                want = [
                    [sequential_dot(row, column, format, rounding, products, 3 * i + j, seed=3)
                     for j, column in enumerate(b.T.tolist())]
                    for i, row in enumerate(a.tolist())
                ]  # fmt: skip
                yield Batch("matmul", (), (f"{inputs} numbers", accumulate), got, want)


def exact(quick: bool) -> Iterator[Batch]:
    """Exact sums of numbers of very different sizes, rounded once."""
    rng = np.random.default_rng(8)
    for inputs, spread in ((sf.FP16, 10), (sf.BF16, 40), (sf.FP32, 100), (sf.FP64, 400)):
        a, b = rng.standard_normal((3, 50)), rng.standard_normal((50, 3))
        a *= 2.0 ** rng.integers(-spread, spread + 1, a.shape)
        a[:, 25:], b[25:] = -a[:, :25], b[:25] * (1 + 2.0**-6)
        left, right = (sf.round(x, inputs, sf.nearest_even.saturating()) for x in (a, b))
        totals = [
            [sum(map(_product, row, column), Fraction(0)) for column in right.T.tolist()] for row in left.tolist()
        ]
        for output in (sf.E4M3, sf.FP16, sf.BF16, sf.FP32):
            for rounding in DETERMINISTIC[:1] if quick else DETERMINISTIC:
                got = sf.matmul(left, right, accumulate=sf.exact, output=output, rounding=rounding)
                want = [[round_value(total, output, rounding) for total in row] for row in totals]
                yield Batch("matmul", (), (f"{inputs} numbers", "exact", output, rounding), got, want)


def stagnation(quick: bool) -> Iterator[Batch]:
    """Where counting by ones and the harmonic series stop growing."""
    for name, stops in golden.COUNTING:
        got = [sf.sum(np.ones(count), accumulate=sf.CATALOG[name]) for count in (stops - 1, stops, stops + 100)]
        yield Batch("sum", (), ("ones", name), np.array(got, np.float64), np.array([stops - 1, stops, stops], float))
    for name, first, value in golden.HARMONIC:
        format = sf.CATALOG[name]
        reciprocals = sf.divide(1.0, np.arange(1, first + 200), format)
        got = [sf.sum(reciprocals[:count], accumulate=format) for count in (first - 2, first - 1, first, first + 199)]
        yield Batch("sum", (), ("1/k", name), np.array(got[1:], np.float64), np.full(3, value))
        yield Batch("sum grows until k =", (), (first - 1, name), np.array(got[0] < value), np.array(True))


def _product(x: float, y: float) -> Fraction:
    return Fraction(x) * Fraction(y)
