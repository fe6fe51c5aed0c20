"""Calls that between them need the loops of a GPU that broader cases leave alone; see `cases.py`."""

import numpy as np

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS

DETERMINISTIC = (sf.nearest_even, sf.toward_zero, sf.toward_positive, sf.toward_negative, sf.to_odd)
DRAWING = (sf.stochastic(), sf.stochastic(8, "A"), sf.stochastic(3, "B"))


def careful_functions(move):
    """Draws longer than float64 shows, and results in FP64."""
    x = np.array([0.5, -1.5, 3.0, 1e-3, 700.0, 0.0, np.inf, np.nan])
    for name, row in FUNCTIONS.items():
        given = [move(np.roll(x, i)) for i in range(len(row.operands))]
        yield getattr(sf, name)(*given, sf.FP32, sf.stochastic(), stream=sf.BitStream(3))
        yield getattr(sf, name)(*given, sf.FP64)


def steps(move):
    """Sums in every mode, of numbers and in formats for which one kind of step after the other is the quickest."""
    rng = np.random.default_rng(14)
    few, half = rng.integers(-9, 9, (2, 9)) / 4.0, sf.round(rng.standard_normal((2, 9)), sf.FP16)
    far = rng.random((2, 9), np.float32) * 2.0 ** rng.integers(-30, 30, (2, 9))
    for x in (few, few * 2.0**18, few * 2.0**-140, half * 2.0**-12):
        yield from sums_of(move, x, sf.FP16)
    for format in (sf.BF16, sf.FP64, sf.Format(5, 3, subnormals=False)):
        yield from sums_of(move, few, format)
    for format in (sf.FP32, sf.Format(8, 30)):
        yield from sums_of(move, far, format)


def sums_of(move, x, format):
    for mode in DETERMINISTIC + DRAWING if format != sf.FP64 else DETERMINISTIC[:1]:
        for accumulate in orders(format, mode):
            yield sf.matmul(move(x), move(x[:, ::-1].T), accumulate=accumulate, stream=sf.BitStream(6))


def orders(format, mode):
    yield sf.sequential(format, rounding=mode)
    for products in (format,) if format == sf.FP64 else (format, sf.BF16):
        yield sf.sequential(format, rounding=mode, products=products)
    yield sf.pairwise(format, rounding=mode)
    yield sf.kahan(format, rounding=mode)
