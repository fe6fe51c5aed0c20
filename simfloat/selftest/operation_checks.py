"""Checks of elementwise operations: the exact result, rounded once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.selftest.comparison import Batch, call
from simfloat.selftest.hard_numbers import DETERMINISTIC, Array, all_values, operands
from simfloat.selftest.neighbours import operate_on_arrays
from simfloat.selftest.reference import draws, operate

#: Operations of two numbers whose results are exact fractions.
PAIRS = tuple(row.name for row in FUNCTIONS.values() if row.accuracy == "exact" and len(row.operands) == 2)
EIGHT_BITS = (sf.E4M3, sf.E5M2, sf.E3M4, sf.E4M3_IEEE, sf.E4M3FNUZ, sf.E5M2FNUZ, sf.E4M3B11FNUZ, sf.p3109(8, 3))
SIX_BITS = (sf.E3M2, sf.E2M3, sf.E2M1)
WIDE = (sf.FP16, sf.BF16, sf.TF32, sf.FP32, sf.E4M3, sf.Format(11, 20), sf.Format(11, 49))


def all_pairs(quick: bool) -> Iterator[Batch]:
    """Every pair of 8-bit numbers: add, subtract, multiply, divide, in every deterministic mode."""
    for format, operation in product(EIGHT_BITS[:2] if quick else EIGHT_BITS, PAIRS):
        yield from every_pair(format, operation)


def every_pair(format: sf.Format, operation: str) -> Iterator[Batch]:
    """Every pair of numbers of a format under one operation; 0 / 0 is left out where there is no NaN."""
    a, b = (x.ravel() for x in np.meshgrid(all_values(format), all_values(format)))
    if not format.has_nan and operation == "divide":
        a, b = a[(a != 0) | (b != 0)], b[(a != 0) | (b != 0)]
    for rounding in DETERMINISTIC:
        yield call(operation, (a, b), format, rounding, operate_on_arrays(operation, (a, b), format, rounding))


def all_triples(quick: bool) -> Iterator[Batch]:
    """Every a * b + c of 4-bit and 6-bit numbers in every deterministic mode, of E4M3 numbers to nearest even."""
    for format in SIX_BITS[2:] if quick else SIX_BITS:
        yield from every_triple(format, DETERMINISTIC)
    if not quick:
        yield from every_triple(sf.E4M3, (sf.nearest_even,))


def every_triple(format: sf.Format, roundings: tuple[sf.Rounding, ...]) -> Iterator[Batch]:
    """Every triple of numbers of a format under fma, one batch for each a; a * b + c must be exact in float64."""
    values = all_values(format)
    b, c = (x.ravel() for x in np.meshgrid(values, values))
    for a, rounding in product(values, roundings):
        triple = (np.full_like(b, a), b, c)
        yield call("fma", triple, format, rounding, operate_on_arrays("fma", triple, format, rounding))


def in_fp16(quick: bool) -> Iterator[Batch]:
    """float32 operands from all over their range, rounded to FP16, as the hardware converts them where it does."""
    a, b, c = _in_float32(300 if quick else 3000)
    for operation in (*PAIRS, "fma"):
        operands = (a, b, c)[: len(FUNCTIONS[operation].operands)]
        want = [operate(operation, sf.FP16, sf.nearest_even, *map(float, x)) for x in zip(*operands, strict=True)]
        yield call(operation, operands, sf.FP16, sf.nearest_even, want)
    for operation in ("sqrt", "reciprocal"):
        wide = getattr(sf, operation)(a.astype(np.float64), sf.FP16)
        yield call(operation, (a,), sf.FP16, sf.nearest_even, wide)


def on_float32(quick: bool) -> Iterator[Batch]:
    """float32 operands rounded to nearest even in other formats than FP16, where no exact result is kept."""
    a, b, _ = _in_float32(100 if quick else 1000)
    for format, operation in product((sf.BF16, sf.E4M3, sf.Format(11, 20)), PAIRS):
        want = [operate(operation, format, sf.nearest_even, *map(float, x)) for x in zip(a, b, strict=True)]
        yield call(operation, (a, b), format, sf.nearest_even, want)


def _in_float32(count: int) -> list[NDArray[np.float32]]:
    """Operands from all over float32's range, some with quotients from below FP16's range to beyond it."""
    rng = np.random.default_rng(15)
    with np.errstate(over="ignore"):
        a, b, c = (x.astype(np.float32) for x in operands(rng, count, scale=150))
        b[::5] = a[::5] * 2.0 ** rng.integers(-18, 26, b[::5].size)
    a[1::5] = rng.integers(1, 99, a[1::5].size)
    return [a, b, c]


def whole_range(quick: bool) -> Iterator[Batch]:
    """Operands from all over float64's range, with cancellations, far addends and specials, against fractions."""
    rng = np.random.default_rng(3)
    count = 20 if quick else 90
    for format, operation in product(WIDE, (*PAIRS, "fma")):
        arrays = operands(rng, count)[: 3 if operation == "fma" else 2]
        for rounding in (*DETERMINISTIC, sf.stochastic(), sf.stochastic(3, "A")):
            yield by_fractions(operation, arrays, format, rounding)


def fma_of_narrow_numbers(quick: bool) -> Iterator[Batch]:
    """a * b + c of random numbers of one format, where sums cancel and ties are near, against fractions."""
    rng = np.random.default_rng(4)
    for format in (sf.FP16, sf.BF16, sf.E4M3, sf.E5M2):
        numbers = near_triples(format, rng, 300 if quick else 2500)
        for rounding in (sf.nearest_even, sf.toward_negative):
            yield by_fractions("fma", numbers, format, rounding)


def near_triples(format: sf.Format, rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
    """Numbers a, b, c of the format with c seldom far from a * b in size; an eighth of them are of any size."""
    a, b, c = rng.choice(all_values(format), (3, count))
    a[::2] = rng.choice(all_values(format)[np.abs(all_values(format)) <= 1], a[::2].size)
    with np.errstate(all="ignore"):
        near = a * b * rng.choice([-1.0, 1.0, 1.5], count) * 2.0 ** rng.integers(-format.precision - 2, 3, count)
    rounded = sf.round(near, format)
    keep = (np.arange(count) % 8 == 0) | ~np.isfinite(rounded)
    return a, b, np.where(keep, c, rounded)


def by_fractions(operation: str, operands: tuple[Array, ...], format: sf.Format, rounding: sf.Rounding) -> Batch:
    """An operation on these numbers beside its results by the definition."""
    random = draws(operands[0].size, rounding, seed=9) if rounding.is_stochastic else np.zeros(operands[0].size, int)
    want = [
        operate(operation, format, rounding, *map(float, x), random=r) for *x, r in zip(*operands, random, strict=True)
    ]
    return call(operation, operands, format, rounding, want, seed=9)
