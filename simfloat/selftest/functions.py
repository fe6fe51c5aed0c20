"""Checks of square root and elementary functions, against the decimal module of Python's standard library.

Its `exp`, `ln` and `sqrt` are correct in the last of as many digits as asked for. 120 digits are enough: no value of
these functions at a 16-bit operand, nor a root of a float64, comes that near to a tie without being one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.selftest.batch import Batch, call
from simfloat.selftest.numbers import DETERMINISTIC, Array

DIGITS = 120


def _tanh(x: Decimal) -> Decimal:
    square = (2 * x).exp()
    return (square - 1) / (square + 1)


FUNCTIONS: dict[str, Callable[[Decimal], Decimal]] = {
    "exp": Decimal.exp,
    "log": Decimal.ln,
    "tanh": _tanh,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
}

#: IEEE 754-2019, section 9.2: the values at 0, -0, inf, -inf and NaN.
SPECIALS = {
    "exp": (1.0, 1.0, np.inf, 0.0, np.nan),
    "log": (-np.inf, -np.inf, np.inf, np.nan, np.nan),
    "tanh": (0.0, -0.0, 1.0, -1.0, np.nan),
    "sigmoid": (0.5, 0.5, 1.0, 0.0, np.nan),
    "sqrt": (0.0, -0.0, np.inf, np.nan, np.nan),
}


def square_roots(quick: bool) -> Iterator[Batch]:
    """Roots of float64 numbers, of squares of ties, and of their neighbours."""
    rng = np.random.default_rng(5)
    count = 15 if quick else 80
    for format in (sf.FP16, sf.BF16, sf.FP32, sf.E4M3):
        # The square of a tie has 2p + 2 bits: a root that ends halfway; its neighbours end just beside.
        ties = rng.integers(2**format.precision, 2 ** (format.precision + 1), count) | 1
        squares = (ties * 2.0**-format.precision) ** 2 * 4.0 ** rng.integers(format.emin // 2, format.emax // 2, count)
        wide = np.abs(rng.standard_normal(count)) * 2.0 ** rng.integers(-1000, 1000, count)
        x = np.concatenate([squares, np.nextafter(squares, 0), np.nextafter(squares, np.inf), wide])
        yield from _by_decimals("sqrt", Decimal.sqrt, x, format)


def elementary_functions(quick: bool) -> Iterator[Batch]:
    """exp, log, tanh and sigmoid of 16-bit numbers, rounded to 16 and fewer bits in every deterministic mode."""
    rng = np.random.default_rng(6)
    for name, function in FUNCTIONS.items():
        for format in (sf.FP16, sf.BF16):
            x = rng.standard_normal(30 if quick else 150) * 2.0 ** rng.integers(-30, 6, 30 if quick else 150)
            x = sf.round(np.abs(x) if name == "log" else x, format)
            yield from _by_decimals(name, function, x[x != 0], format)


def special_operands(quick: bool) -> Iterator[Batch]:
    """Functions at zeros, infinities and NaN."""
    for name, want in SPECIALS.items():
        for format in (sf.FP16, sf.BF16, sf.FP32, sf.FP64):
            yield call(name, (np.array([0.0, -0.0, np.inf, -np.inf, np.nan]),), format, sf.nearest_even, want)


def _by_decimals(name: str, function: Callable[[Decimal], Decimal], x: Array, format: sf.Format) -> Iterator[Batch]:
    with localcontext(Context(prec=DIGITS, Emin=-999_999, Emax=999_999)):
        exact = [Fraction(function(Decimal(float(v)))) for v in x]
    for rounding in DETERMINISTIC:
        yield call(name, (x,), format, rounding, [round_value(v, format, rounding) for v in exact])
