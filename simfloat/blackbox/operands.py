"""Operands of a function that sums, hard to sum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import round as round_to
from simfloat.blackbox.probe import BlackBox, ProductRange
from simfloat.formats import Format, toward_zero

#: Sums of each kind of operands.
ROWS = 24


def random_operands(
    box: BlackBox, span: ProductRange, rng: np.random.Generator
) -> Iterator[tuple[str, NDArray, NDArray]]:
    """Kinds of operands (rows, terms) in the formats of the function's, those last that most accumulators differ on."""
    shape, bits = (ROWS, box.terms), box.terms.bit_length()
    low, high = span
    # Products of middling size, of operands at the lower ends of their formats.
    for kind, (first, second) in {"tiny a": box.inputs, "tiny b": box.inputs[::-1]}.items():
        exponents = _exponents(rng, first.emin - first.mantissa_bits, first.emin, shape)
        tiny = np.ldexp(rng.uniform(-2.0, 2.0, shape), exponents)
        rest = np.ldexp(rng.uniform(1.0, 2.0, shape), np.clip(-exponents, second.emin, second.emax))
        yield kind, *(_rounded(box, tiny, rest) if kind == "tiny a" else _rounded(box, rest, tiny))
    normal = [rng.standard_normal(shape) for _ in range(2)]
    yield "plain", *_rounded(box, *normal)
    yield "positive", *_rounded(box, rng.random(shape), rng.random(shape))
    spreads = {
        "close": (-6, 6),
        "wide": (-28, 28),
        "whole": (low, high - bits),
        "small": (low - 1, low + 24),
        "large": (high - bits - 1, high),
        "ends": (high - 3, high),
    }
    for kind, (least, most) in spreads.items():
        yield kind, *_spread(box, rng, max(least, low - 1), min(most, high))
    yield "ties", *_spread(box, rng, max(low, -13), min(high - bits, 13), powers=True)
    a, b = _spread(box, rng, max(low, -20), min(high - bits, 20))
    yield "sparse", a * (rng.random(shape) < 0.3), b
    yield "cancelling", *_cancelling(rng, a, b)
    # Sums of runs differ in size only where products do from run to run.
    lengths = rng.integers(1, box.terms + 1, (ROWS, 1))
    steps = _exponents(rng, max(low, -24), min(high - bits, 24), shape)
    drifting = np.take_along_axis(steps, np.arange(box.terms) // lengths, 1)
    yield "drifting", *with_exponents(box, rng, drifting)


def _cancelling(rng: np.random.Generator, a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
    """Half of the products, and their negatives at other places: what is left shows every bit that was lost."""
    half = a.shape[1] // 2
    places = rng.permuted(np.tile(np.arange(a.shape[1]), (len(a), 1)), axis=1)
    first, second = places[:, :half], places[:, half : 2 * half]
    a, b = a.copy(), b.copy()
    for x, sign in ((a, -1.0), (b, 1.0)):
        np.put_along_axis(x, second, sign * np.take_along_axis(x, first, 1), 1)
    return a, b


def _spread(
    box: BlackBox, rng: np.random.Generator, least: int, most: int, powers: bool = False
) -> tuple[NDArray, NDArray]:
    """Operands whose products have exponents from `least` to `most`; powers of two have no other bits."""
    return with_exponents(box, rng, _exponents(rng, least, most, (ROWS, box.terms)), powers)


def _exponents(rng: np.random.Generator, least: int, most: int, shape: tuple[int, int]) -> NDArray[np.int64]:
    return rng.integers(least, max(most, least) + 1, shape)


def with_exponents(
    box: BlackBox, rng: np.random.Generator, exponents: NDArray[np.int64], powers: bool = False
) -> tuple[NDArray, NDArray]:
    """Operands whose products are at least these powers of two and less than four times as large, of either sign."""
    shape = exponents.shape
    first, second = box.inputs
    shift = np.clip(exponents // 2 + rng.integers(-3, 4, shape), first.emin, first.emax)
    rest = np.clip(exponents - shift, second.emin - second.mantissa_bits, second.emax)
    signs = rng.choice([-1.0, 1.0], shape)
    one = np.ones(shape)
    a, b = (one if powers else rng.uniform(1.0, 2.0, shape) for _ in range(2))
    return _rounded(box, np.ldexp(signs * a, shift), np.ldexp(b, rest))


def factors(box: BlackBox, values: NDArray[np.float64], significands: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    """Operands whose products are as near to these values as numbers can be times others of such significands."""
    first, second = box.inputs
    b = _cut(significands, second)
    exponents = np.frexp(values)[1] - 1
    shift = np.clip(exponents - np.clip(exponents, first.emin, first.emax), second.emin, second.emax)
    return _rounded(box, np.clip(np.ldexp(values / b, -shift), -first.max, first.max), np.ldexp(b, shift))


def _rounded(box: BlackBox, a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
    return _cut(a, box.inputs[0]), _cut(b, box.inputs[1])


def _cut(x: NDArray, format: Format) -> NDArray:
    return round_to(x.astype(np.float32) if format.fits_float32 else x, format, toward_zero)
