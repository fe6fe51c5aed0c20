"""Checks of square root and elementary functions, against the decimal module of Python's standard library.

Its `exp`, `ln` and `sqrt` are correct in the last of as many digits as asked for. 120 digits are enough: no value of
these functions at a 16-bit operand, nor a root of a float64, comes that near to a tie without being one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

import simfloat as sf
from simfloat.arithmetic import catalog
from simfloat.formats.definition import round_value
from simfloat.selftest.comparison import Batch, call
from simfloat.selftest.hard_numbers import DETERMINISTIC, Array

DIGITS = 120

_MANY_DIGITS = Context(prec=DIGITS, Emin=-999_999, Emax=999_999)


#: The operands of the specials.
SPECIALS = (0.0, -0.0, math.inf, -math.inf, math.nan)

#: Every function of one operand, with what it is at specials and which operands it is tried with.
UNARY_FUNCTIONS = {name: row for name, row in catalog.FUNCTIONS.items() if len(row.operands) == 1}


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
        yield from _by_decimals("sqrt", x, format)


def elementary_functions(quick: bool) -> Iterator[Batch]:
    """Functions of 16-bit numbers, rounded to 16 bits in every deterministic mode."""
    rng = np.random.default_rng(6)
    for name, row in UNARY_FUNCTIONS.items():
        for format in (sf.FP16, sf.BF16):
            x = rng.standard_normal(30 if quick else 150) * 2.0 ** rng.integers(-30, 6, 30 if quick else 150)
            x = sf.round(np.abs(x) if row.positive else x, format)
            yield from _by_decimals(name, x[(x != 0) & (np.abs(x) < row.below) & (x > row.above)], format)


def powers(quick: bool) -> Iterator[Batch]:
    """Powers of 16-bit numbers: with integers as exponents against fractions, with others against decimals."""
    rng = np.random.default_rng(7)
    count = 30 if quick else 150
    for format in (sf.FP16, sf.BF16):
        a = sf.round(rng.uniform(0.25, 4, count), format).astype(np.float64)
        b = rng.integers(-8, 12, count).astype(np.float64)
        yield from _batches_in_every_mode(
            "power", (a, b), [Fraction(x) ** int(y) for x, y in zip(a, b, strict=True)], format
        )
        # Three times a power of two, to an exponent that is no integer, is irrational: no result is a tie.
        a, b = 3 / 2.0 ** rng.integers(-6, 6, count), (2 * rng.integers(-40, 40, count) + 1) / 16
        with localcontext(_MANY_DIGITS):
            exact = [Fraction(Decimal(x) ** Decimal(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        yield from _batches_in_every_mode("power", (a, b), exact, format)


def angles(quick: bool) -> Iterator[Batch]:
    """Angles of points with 16-bit coordinates, from that of their quotient."""
    rng = np.random.default_rng(8)
    count = 30 if quick else 150
    for format in (sf.FP16, sf.BF16):
        a, b = (sf.round(x, format).astype(np.float64) for x in rng.standard_normal((2, count)))
        with localcontext(_MANY_DIGITS):
            exact = [_value("atan2", y, x) for y, x in zip(a.tolist(), b.tolist(), strict=True)]
        yield from _batches_in_every_mode("atan2", (a, b), exact, format)


def zetas(quick: bool) -> Iterator[Batch]:
    """Sums of powers of 16-bit numbers."""
    rng = np.random.default_rng(9)
    count = 8 if quick else 40
    for format in (sf.FP16, sf.BF16):
        s = sf.round(1.125 + 6 * rng.random(count), format).astype(np.float64)
        q = sf.round(2.0 ** rng.uniform(-5, 9, count), format).astype(np.float64)
        with localcontext(_MANY_DIGITS):
            exact = [_value("zeta", x, y) for x, y in zip(s.tolist(), q.tolist(), strict=True)]
        yield from _batches_in_every_mode("zeta", (s, q), exact, format)


def special_operands(quick: bool) -> Iterator[Batch]:
    """Functions at zeros, infinities and NaN."""
    for name, row in UNARY_FUNCTIONS.items():
        for format in (sf.FP16, sf.FP32) if quick else (sf.FP16, sf.BF16, sf.FP32, sf.FP64):
            yield call(name, (np.array(SPECIALS),), format, sf.nearest_even, sf.round(row.specials, format))


def _by_decimals(name: str, x: Array, format: sf.Format) -> Iterator[Batch]:
    with localcontext(_MANY_DIGITS):
        exact = [_value(name, float(v)) for v in x]
    yield from _batches_in_every_mode(name, (x,), exact, format)


def _batches_in_every_mode(
    name: str, operands: tuple[Array, ...], exact: list[Fraction], format: sf.Format
) -> Iterator[Batch]:
    """A function beside its exact results rounded by the definition, in every deterministic mode."""
    for rounding in DETERMINISTIC:
        yield call(name, operands, format, rounding, [round_value(v, format, rounding) for v in exact])


def _value(name: str, *operands: float) -> Fraction:
    """A function of numbers, to as many digits as the context of decimals has."""
    value = catalog.FUNCTIONS[name].value
    assert value is not None, f"{name} has no value by decimals."
    return Fraction(value(*map(Decimal, operands)))
