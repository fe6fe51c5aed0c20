"""Operands of all kinds, and their layout in the memory of a GPU."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from benchmarks.tensor_cores.instructions import CHUNK_BYTES, Unit, bytes_of

#: random: near 1. wide: exponents over half of the range. subnormal: operands at the bottom of their range. faint,
#: large: products at the bottom and at the top of the range of sums, as far as the operands' formats allow, so that
#: sums underflow and overflow. special: a zero, an infinity or a NaN in about every other row and column.
KINDS = ("random", "wide", "subnormal", "faint", "large", "special")

Array = NDArray[np.float32]


class Operands(NamedTuple):
    """Stacks of matrices: a (n, rows, depth), b (n, 8, depth) and c (n, rows, 8), for the products a b^T + c."""

    a: Array
    b: Array
    c: Array


def operands(kind: str, unit: Unit, count: int, depth: int, rng: np.random.Generator) -> Operands:
    """Return operands of `count` products of one of KINDS, in the formats of the unit; a third of c is 0."""
    shapes = (count, unit.rows, depth), (count, 8, depth), (count, unit.rows, 8)
    # TF32 units accept float32 numbers and read their upper bits.
    formats = [sf.FP32 if format == sf.TF32 else format for format in (unit.a, unit.b, unit.sums)]
    if kind == "special":
        rates = 0.5 / depth, 0.5 / depth, 0.1
        return Operands(*(_special(*given, rng) for given in zip(formats, shapes, rates, strict=True)))
    exponents = _exponents(kind, unit, depth)
    a, b, c = (
        rounded(np.ldexp(rng.standard_normal(shape), rng.integers(low, high + 1, shape)), format)
        for (low, high), format, shape in zip(exponents, formats, shapes, strict=True)
    )
    return Operands(a, b, np.where(rng.random(c.shape) < 1 / 3, np.float32(0.0), c))


def _exponents(kind: str, unit: Unit, depth: int) -> tuple[tuple[int, int], ...]:
    """Return the lowest and the highest exponent of a, b and c."""
    formats = unit.a, unit.b, unit.sums
    if kind == "random":
        return ((0, 0),) * 3
    if kind == "wide":
        return tuple((format.emin // 2, format.emax // 2) for format in formats)
    if kind == "subnormal":
        products = unit.a.emin + unit.b.emin
        return (unit.a.emin - 1,) * 2, (unit.b.emin - 1,) * 2, _near(max(products, unit.sums.emin))
    # A sum of `depth` products is about sqrt(depth) times as large as one of them.
    top, bottom = unit.sums.emax + 1 - math.isqrt(depth).bit_length(), unit.sums.emin - unit.sums.mantissa_bits
    total = bottom if kind == "faint" else top
    a, b = _within(total // 2, unit.a), _within(total - total // 2, unit.b)
    return _near(a), _near(b), _near(max(a + b, bottom))


def _within(exponent: int, format: sf.Format) -> int:
    return min(max(exponent, format.emin - format.mantissa_bits), format.emax)


def _near(exponent: int) -> tuple[int, int]:
    return exponent - 1, exponent + 1


def _special(format: sf.Format, shape: tuple[int, ...], rate: float, rng: np.random.Generator) -> Array:
    """Return numbers near 1, with special values among them."""
    specials = [0.0, -0.0, np.nan, *([np.inf, -np.inf] if format.has_infinity else [])]
    x = rounded(rng.standard_normal(shape), format)
    return np.where(rng.random(shape) < rate, rng.choice(np.float32(specials), shape), x)


def rounded(x: NDArray[np.float64], format: sf.Format) -> Array:
    """Return the nearest finite numbers of a format."""
    return sf.round(x, format, sf.nearest_even.saturating()).astype(np.float32)


def whole_numbers(unit: Unit, depth: int, rng: np.random.Generator) -> Operands:
    """Return two products of integers that are so small that their sums are exact in any order, and all different."""
    shapes = (2, unit.rows, depth), (2, 8, depth), (2, unit.rows, 8)
    return Operands(*(rng.integers(-2, 3, shape).astype(np.float32) for shape in shapes))


def packed(x: Array, format: sf.Format) -> NDArray[np.uint32]:
    """Return matrices (n, rows, depth) as words in the layout of :mod:`programs`: (n, chunks, 2, rows, 4).

    A short last chunk is padded with zeros.
    """
    count, rows, depth = x.shape
    missing = -depth % (CHUNK_BYTES // bytes_of(format))
    words = np.pad(codes_of(x, format), ((0, 0), (0, 0), (0, missing))).view(np.uint32)
    return np.ascontiguousarray(words.reshape(count, rows, -1, 2, 4).transpose(0, 2, 3, 1, 4))


def codes_of(x: Array, format: sf.Format) -> NDArray[Any]:
    """Return the bit patterns of numbers in memory, as unsigned integers of the same size."""
    return sf.encode(x, sf.FP32 if format == sf.TF32 else format)


def numbers_of(codes: NDArray[Any], format: sf.Format) -> Array:
    """Return the numbers of codes."""
    return np.asarray(sf.decode(codes, sf.FP32 if format == sf.TF32 else format)).astype(np.float32)
