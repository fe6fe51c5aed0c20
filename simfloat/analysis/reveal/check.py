"""Compare candidates with all results of a function, and search for sums that show a difference.

The operands are random ones that are hard to sum, and ones at which a given candidate rounds, overflows or underflows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.analysis.reveal.candidates import Candidate
from simfloat.analysis.reveal.probe import BlackBox, ProductRange, Sums
from simfloat.arithmetic import round as round_to
from simfloat.formats import FP32, FP64, Format, toward_zero
from simfloat.sums import Accumulator
from simfloat.sums.blocked import Blocked, SumOfLanes

#: The number of sums for each kind of operands.
ROWS = 24


def random_operands(
    box: BlackBox, span: ProductRange, rng: np.random.Generator
) -> Iterator[tuple[str, NDArray, NDArray]]:
    """Yield kinds of operands (rows, terms) in the formats of the function, the most selective ones last."""
    shape, bits = (ROWS, box.terms), box.terms.bit_length()
    low, high = span
    # Products of moderate size, with one operand at the lower end of its format.
    for kind, (first, second) in {"tiny a": box.inputs, "tiny b": box.inputs[::-1]}.items():
        exponents = _exponents(rng, first.emin - first.mantissa_bits, first.emin, shape)
        tiny = np.ldexp(rng.uniform(-2.0, 2.0, shape), exponents)
        cofactors = np.ldexp(rng.uniform(1.0, 2.0, shape), np.clip(-exponents, second.emin, second.emax))
        yield (
            kind,
            *(_round_operands(box, tiny, cofactors) if kind == "tiny a" else _round_operands(box, cofactors, tiny)),
        )
    normal = [rng.standard_normal(shape) for _ in range(2)]
    yield "plain", *_round_operands(box, *normal)
    yield "positive", *_round_operands(box, rng.random(shape), rng.random(shape))
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
    # Sums of runs differ in size only if products do from run to run.
    lengths = rng.integers(1, box.terms + 1, (ROWS, 1))
    steps = _exponents(rng, max(low, -24), min(high - bits, 24), shape)
    drifting = np.take_along_axis(steps, np.arange(box.terms) // lengths, 1)
    yield "drifting", *with_exponents(box, rng, drifting)
    # Large products of one sign show an accumulator that saturates. In half of the rows they change their sign once,
    # and in every other row they are the largest ones.
    a, b = (np.abs(x) for x in with_exponents(box, rng, np.full(shape, high)))
    largest = tuple(format.max for format in box.inputs)
    if largest[0] * largest[1] < math.ldexp(1.0, min(high + 2, 1023)):
        a[::2], b[::2] = largest
    turns = np.where(np.arange(ROWS) % 4 < 2, box.terms, rng.integers(1, box.terms + 1, ROWS))
    signs = np.where(np.arange(box.terms) < turns[:, np.newaxis], 1.0, -1.0) * rng.choice([-1.0, 1.0], (ROWS, 1))
    yield "one sign", a * signs, b


def _cancelling(rng: np.random.Generator, a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
    """Return half of the products, and their negatives in other positions: the rest of the sum shows every lost bit."""
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
    """Return operands with product exponents from `least` to `most`; with `powers` they are powers of two."""
    return with_exponents(box, rng, _exponents(rng, least, most, (ROWS, box.terms)), powers)


def _exponents(rng: np.random.Generator, least: int, most: int, shape: tuple[int, int]) -> NDArray[np.int64]:
    return rng.integers(least, max(most, least) + 1, shape)


def with_exponents(
    box: BlackBox, rng: np.random.Generator, exponents: NDArray[np.int64], powers: bool = False
) -> tuple[NDArray, NDArray]:
    """Return operands of either sign, with products from one to four times these powers of two."""
    shape = exponents.shape
    first, second = box.inputs
    shift = np.clip(exponents // 2 + rng.integers(-3, 4, shape), first.emin, first.emax)
    cofactor_exponents = np.clip(exponents - shift, second.emin - second.mantissa_bits, second.emax)
    signs = rng.choice([-1.0, 1.0], shape)
    one = np.ones(shape)
    a, b = (one if powers else rng.uniform(1.0, 2.0, shape) for _ in range(2))
    return _round_operands(box, np.ldexp(signs * a, shift), np.ldexp(b, cofactor_exponents))


def operands_for_products(
    box: BlackBox, values: NDArray[np.float64], significands: NDArray[np.float64]
) -> tuple[NDArray, NDArray]:
    """Return operands with products as near to these values as possible; second factors have these significands."""
    first, second = box.inputs
    b = _round_toward_zero(significands, second)
    exponents = np.frexp(values)[1] - 1
    shift = np.clip(exponents - np.clip(exponents, first.emin, first.emax), second.emin, second.emax)
    return _round_operands(box, np.clip(np.ldexp(values / b, -shift), -first.max, first.max), np.ldexp(b, shift))


def _round_operands(box: BlackBox, a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
    return _round_toward_zero(a, box.inputs[0]), _round_toward_zero(b, box.inputs[1])


def _round_toward_zero(x: NDArray, format: Format) -> NDArray:
    return round_to(x.astype(np.float32) if format.fits_float32 else x, format, toward_zero)


#: The number of sums for all binades of a format together, the minimum for each binade, and the number for binades at
#: the ends of the range.
BINADE_ROWS, LEAST_ROWS, MORE_ROWS = 200, 2, 40

#: The number of operands that are created at a time.
TOGETHER = 1 << 18

#: Values within this number of quarters of a spacing are near a power of two.
NEAR = 8


def breaking_operands(
    candidate: Candidate, box: BlackBox, rng: np.random.Generator
) -> Iterator[tuple[NDArray, NDArray]]:
    """Yield operands (rows, terms) with sums at which the accumulator rounds in a critical way.

    Sums, or sums of some of the products, are numbers of the accumulator's formats or halfway between two: in every
    binade, next to the ends of the range, and beyond them.
    """
    for format in dict.fromkeys(_formats(candidate)):
        exponents = _binades(box, format)
        for some in np.array_split(exponents, 1 + len(exponents) * box.terms // TOGETHER):
            yield _aim_at_targets(candidate, box, rng, _targets(format, some, rng))


#: The number of random sums from which sums of a midpoint and a smaller term are selected, and their most products.
TRIED, FEW = 1024, 6


def twice_rounded_operands(
    candidate: Candidate, box: BlackBox, rng: np.random.Generator
) -> Iterator[tuple[NDArray, NDArray]]:
    """Yield operands (rows, terms) with sums that change if they are first rounded to a wider format.

    A few products of one part add up to the midpoint of two numbers of a format of the candidate, and to a smaller term
    below the last bit of a wider format: of the candidate, or FP32 or FP64. All other products are zero.
    """
    formats = list(dict.fromkeys(_formats(candidate)))
    parts = [part for part in _parts(candidate.accumulator, np.arange(box.terms)) if len(part) > 1]
    pairs = dict.fromkeys(
        (narrow.precision, wide.precision)
        for narrow in formats
        for wide in (*formats, FP32 if narrow.precision < FP32.precision else FP64)
        if narrow.precision < wide.precision
    )
    for pair in pairs:
        binades = max(format.emin for format in formats), min(format.emax for format in formats)
        a, b = _midpoints(box, rng, parts, pair, binades)
        if len(a):
            yield a, b


def _parts(accumulator: Accumulator, places: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the positions of all products, and those of the products of each run, lane and chunk."""
    match accumulator:
        case Blocked(size=size):
            parts = [places[start : start + size] for start in range(0, len(places), size)]
        case SumOfLanes(count=count):
            parts = [places[lane::count] for lane in range(count)]
        case _:
            size = accumulator.chunk or 1
            return [places, *(places[start : start + size] for start in range(0, len(places), size) if size > 1)]
    return [places, *(inner for part in parts for inner in _parts(accumulator.inner, part))]


def _midpoints(
    box: BlackBox,
    rng: np.random.Generator,
    parts: list[NDArray[np.int64]],
    precisions: tuple[int, int],
    binades: tuple[int, int],
) -> tuple[NDArray, NDArray]:
    """Return operands with sums of a midpoint of numbers of the first precision and a term below the second."""
    (first, second), (narrow, wide), rows = box.inputs, precisions, TRIED
    # The exponent of the term below the exponent of the sum; a few other ones show roundings to formats in between.
    down = np.where(rng.random(rows) < 0.7, wide + rng.integers(0, 4, rows), rng.integers(narrow + 1, wide + 4, rows))
    lowest = first.emin - first.mantissa_bits + second.emin - second.mantissa_bits
    low = np.maximum(binades[0], lowest + down)
    binade = rng.integers(low, np.maximum(low, min(binades[1], first.emax + second.emax + 1)) + 1)
    # In units of half a spacing a midpoint is an odd number with one more bit than the format.
    shape = (rows, FEW)
    x_bits = rng.integers(0, min(first.mantissa_bits, narrow) + 1, (rows, 1))
    y_bits = rng.integers(0, np.minimum(second.mantissa_bits, narrow - x_bits) + 1)
    x, y = (rng.integers(1 << count, 2 << count, shape) for count in (x_bits, y_bits))
    shift = np.maximum(narrow - 1 - x_bits - y_bits, 0) * rng.integers(0, 2, shape)
    counts = rng.integers(1, FEW, rows)
    units = np.where(np.arange(FEW) < counts[:, np.newaxis], (x * y) << shift, 0)
    totals = units.sum(1)
    is_midpoint = (totals % 2 == 1) & (totals >> narrow == 1)
    # Most terms are on the side of the midpoint to which a tie to even does not go.
    signs = np.where(rng.random(rows) < 0.75, 1 - (totals & 2), rng.choice([-1, 1], rows))
    values = np.ldexp(units.astype(np.float64), (binade - narrow)[:, np.newaxis])
    values[np.arange(rows), counts] = np.ldexp(signs.astype(np.float64), binade - down)
    significands = np.where(np.arange(FEW) < counts[:, np.newaxis], np.ldexp(y, -y_bits), 1.0)
    values *= rng.choice([-1.0, 1.0], (rows, 1))
    values, significands, counts = values[is_midpoint], significands[is_midpoint], counts[is_midpoint]
    a, b = operands_for_products(box, values, significands)
    is_exact = (a.astype(np.float64) * b == values).all(1)
    left, right = np.zeros((2, 2 * ROWS, box.terms))
    n = 0
    for row in np.flatnonzero(is_exact):
        part, size = parts[rng.integers(len(parts))], counts[row] + 1
        if len(part) >= size and n < len(left):
            places = rng.permutation(part)[:size]
            left[n, places], right[n, places] = a[row, :size], b[row, :size]
            n += 1
    return left[:n], right[:n]


def _formats(candidate: Candidate) -> Iterator[Format]:
    """Yield the formats that sums are rounded to."""
    if candidate.output is not None:
        yield candidate.output
    yield from _formats_of(candidate.accumulator)


def _formats_of(accumulator: Accumulator) -> Iterator[Format]:
    if accumulator.result is not None:
        yield accumulator.result
    for part in (getattr(accumulator, field.name) for field in fields(accumulator)):
        if isinstance(part, Accumulator):
            yield from _formats_of(part)
        elif isinstance(part, Format):
            yield part


def _binades(box: BlackBox, format: Format) -> NDArray[np.int64]:
    """Return the binades of a format and the one above, as far as products of the operands reach."""
    first, second = box.inputs
    low, high = max(first.emin + second.emin, -1000), min(first.emax + second.emax, 1000)
    every = np.arange(format.emin - format.mantissa_bits - 1, format.emax + 2)
    ends = [format.emin - 1, format.emin, format.emax, format.emax + 1]
    rows = max(LEAST_ROWS, BINADE_ROWS // len(every))
    exponents = np.concatenate([np.repeat(every, rows), np.repeat(ends, MORE_ROWS)])
    return exponents[(low <= exponents) & (exponents <= high)]


def _targets(format: Format, exponents: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return values of these binades, of either sign.

    They are multiples of half the spacing of the format, or a few quarters of a spacing from a power of two or the
    largest number.
    """
    powers, rows = np.ldexp(1.0, exponents), len(exponents)
    halves = np.ldexp(0.5, np.maximum(exponents, format.emin) - format.mantissa_bits)
    anywhere = powers + halves * rng.integers(0, np.maximum(powers / halves, 1).astype(np.int64))
    ends = np.where(exponents == format.emax, format.max, powers)
    near = ends + halves / 2 * rng.integers(-NEAR, NEAR + 1, rows)
    return rng.choice([-1.0, 1.0], rows) * np.where(rng.random(rows) < 0.5, anywhere, near)


def _aim_at_targets(
    candidate: Candidate, box: BlackBox, rng: np.random.Generator, targets: NDArray[np.float64]
) -> tuple[NDArray, NDArray]:
    """Return operands for which partial or total sums equal the targets under the candidate."""
    shape, rows = (len(targets), box.terms), np.arange(len(targets))
    binades = np.frexp(targets)[1][:, np.newaxis] - 1
    # For some targets all other products are tiny. This shows values that are truncated twice, and roundings that
    # ignore lower bits.
    tiny = rng.integers(0, 60, (len(targets), 1)) * (rng.random((len(targets), 1)) < 0.4)
    # Larger products cancel, but overflow if targets are large.
    most = rng.choice([1, 7], (len(targets), 1))
    a, b = with_exponents(box, rng, binades - tiny + rng.integers(-14, most, shape))
    a *= rng.random(shape) < rng.choice([0.3, 1.0], (len(targets), 1))
    last = np.where(rng.random(len(targets)) < 0.5, box.terms - 1, rng.integers(1, box.terms, len(targets)))
    ahead = np.where(np.arange(box.terms) <= last[:, np.newaxis], a, 0)
    # Products by powers of two reach the targets. Products by 1.5 are often halfway between numbers of a. Others are
    # near the targets.
    some = rng.choice([1.0, 1.0, 1.5, 0.0], len(targets))
    significands = np.where(some > 0, some, rng.uniform(1.0, 2.0, len(targets)))
    # Either two products give a target, or only the last one together with the sum before it.
    first = np.where(rng.random(len(targets)) < 0.7, rng.integers(0, last), last)
    for places in (first, last):
        ahead[rows, places] = 0
        sums = candidate.sums(box.inputs, ahead, b)
        sums = np.zeros(len(targets)) if sums is None else np.where(np.isfinite(sums), sums, 0.0)
        ahead[rows, places], b[rows, places] = operands_for_products(box, targets - sums, significands)
    return np.where(np.arange(box.terms) <= last[:, np.newaxis], ahead, a), b


#: The number of seeds for operands that are built to break a candidate.
SEEDS = 2

#: One of `AGAIN` random sums is computed twice by the function.
AGAIN = 3


class Exclusion(NamedTuple):
    """Operands for which an accumulator gives another result than the function.

    `other` is None if the accumulator does not support the operands. `is_close` is True if only operands that were
    built to break the accumulator showed a difference.
    """

    candidate: Candidate
    a: NDArray
    b: NDArray
    result: float
    other: float | None
    is_close: bool = False

    def __str__(self) -> str:
        return f"{self.candidate} {self.difference}"

    @property
    def difference(self) -> str:
        """Both results and the operands."""
        what = "does not support" if self.other is None else f"gives {self.other!r}, f {self.result!r} for"
        return f"{what} a = {_text(self.a)}, b = {_text(self.b)}"


class Closest(Exclusion):
    """The excluded accumulator with the most bits of the function.

    `agreement` is the number of sums in which both agree, and the number of all sums that the function computed.
    """

    agreement: tuple[int, int]

    def __str__(self) -> str:
        agreeing, count = self.agreement
        return f"{self.candidate}: {agreeing} of {count} sums agree; it {self.difference}"


def _text(x: NDArray) -> str:
    return np.array2string(x, separator=", ", threshold=6, edgeitems=2, floatmode="unique", max_line_width=1000)


def sample(box: BlackBox, span: ProductRange, seed: int) -> None:
    """Compute random sums, some of them twice. Raises ValueError if results differ from call to call, or are NaN."""
    for kind, a, b in random_operands(box, span, np.random.default_rng(seed)):
        results = np.array([box(x, y) for x, y in zip(a, b, strict=True)])
        again = np.array([box.call_function(x, y) for x, y in zip(a[::AGAIN], b[::AGAIN], strict=True)])
        if not equal(results[::AGAIN], again).all():
            raise ValueError(
                "f must be deterministic; it returned other bits for the same operands. If it rounds stochastically, "
                "simfloat.reveal_rounding(f) finds the mode."
            )
        if kind == "plain" and np.isnan(results).any():
            raise ValueError("f returned NaN for finite operands of moderate size.")


def exclusion(candidate: Candidate, box: BlackBox) -> Exclusion | None:
    """Return a sum for which the accumulator gives other bits than the function; None if there is none.

    If all sums so far agree, the function computes sums that are built to break the accumulator.
    """
    for sums in box.sums():
        difference = _difference(candidate, box, sums)
        if difference is not None:
            return difference
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        for a, b in chain(breaking_operands(candidate, box, rng), twice_rounded_operands(candidate, box, rng)):
            results = np.array([box(x, y) for x, y in zip(a, b, strict=True)])
            difference = _difference(candidate, box, Sums(a, b, results))
            if difference is not None:
                return difference._replace(is_close=True)
    return None


def count_agreeing(candidate: Candidate, box: BlackBox) -> int:
    """Return the number of computed sums for which the accumulator gives the bits of the function."""
    return sum(int((~_compare(candidate, box, sums)[1]).sum()) for sums in box.sums())


def _compare(candidate: Candidate, box: BlackBox, sums: Sums) -> tuple[NDArray[np.float64] | None, NDArray[np.bool_]]:
    """Return the sums of the accumulator, None if it does not support the operands; and True where they differ."""
    ours = candidate.sums(box.inputs, sums.a, sums.b)
    return ours, np.ones(len(sums.a), np.bool_) if ours is None else ~equal(ours, sums.results)


def _difference(candidate: Candidate, box: BlackBox, sums: Sums) -> Exclusion | None:
    a, b, results = sums
    ours, differs = _compare(candidate, box, sums)
    if not differs.any():
        return None
    n = int(differs.argmax())
    return Exclusion(candidate, a[n].copy(), b[n].copy(), float(results[n]), None if ours is None else float(ours[n]))


def equal(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Compare two arrays element by element. All NaN are equal, and the sign of zero is ignored.

    The sign of a sum of only -0 shows only if it started from +0.
    """
    return (x == y) | (np.isnan(x) & np.isnan(y))
