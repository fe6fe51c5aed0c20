"""Operands built to break an accumulator: sums that come to lie where it rounds, overflows or underflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate import Accumulator
from simfloat.blackbox.candidates import Candidate
from simfloat.blackbox.operands import factors, with_exponents
from simfloat.blackbox.probe import BlackBox
from simfloat.formats import Format

#: Sums for all binades of a format together, for each of them at least, and more for those at the ends of its range.
ROWS, LEAST_ROWS, MORE_ROWS = 200, 2, 40

#: So many operands are made at a time.
TOGETHER = 1 << 18

#: So many quarters of a spacing are near a power of two.
NEAR = 8


def breaking_operands(
    candidate: Candidate, box: BlackBox, rng: np.random.Generator
) -> Iterator[tuple[NDArray, NDArray]]:
    """Operands (rows, terms) whose sums, or sums of some of them, are numbers of the accumulator's formats or half-way
    between two: in every binade, and next to the ends of the range and beyond them."""
    for format in dict.fromkeys(_formats(candidate)):
        exponents = _exponents(box, format)
        for some in np.array_split(exponents, 1 + len(exponents) * box.terms // TOGETHER):
            yield _aimed(candidate, box, rng, _targets(format, some, rng))


def _formats(candidate: Candidate) -> Iterator[Format]:
    """The formats that sums are rounded to."""
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


def _exponents(box: BlackBox, format: Format) -> NDArray[np.int64]:
    """Binades of a format and the one above, as far as the operands' products reach."""
    first, second = box.inputs
    low, high = max(first.emin + second.emin, -1000), min(first.emax + second.emax, 1000)
    every = np.arange(format.emin - format.mantissa_bits - 1, format.emax + 2)
    ends = [format.emin - 1, format.emin, format.emax, format.emax + 1]
    rows = max(LEAST_ROWS, ROWS // len(every))
    exponents = np.concatenate([np.repeat(every, rows), np.repeat(ends, MORE_ROWS)])
    return exponents[(low <= exponents) & (exponents <= high)]


def _targets(format: Format, exponents: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Numbers of binades, of either sign: whole multiples of half the format's spacing there, or a few quarters from
    a power of two or the largest number."""
    powers, rows = np.ldexp(1.0, exponents), len(exponents)
    halves = np.ldexp(0.5, np.maximum(exponents, format.emin) - format.mantissa_bits)
    anywhere = powers + halves * rng.integers(0, np.maximum(powers / halves, 1).astype(np.int64))
    ends = np.where(exponents == format.emax, format.max, powers)
    near = ends + halves / 2 * rng.integers(-NEAR, NEAR + 1, rows)
    return rng.choice([-1.0, 1.0], rows) * np.where(rng.random(rows) < 0.5, anywhere, near)


def _aimed(
    candidate: Candidate, box: BlackBox, rng: np.random.Generator, targets: NDArray[np.float64]
) -> tuple[NDArray, NDArray]:
    """Operands whose sums up to some place, the last or any other, are the targets, if the accumulator makes them."""
    shape, rows = (len(targets), box.terms), np.arange(len(targets))
    binades = np.frexp(targets)[1][:, np.newaxis] - 1
    # Beside some targets all else is tiny: what is cut twice, or rounds as if it knew of no more bits, shows there.
    tiny = rng.integers(0, 60, (len(targets), 1)) * (rng.random((len(targets), 1)) < 0.4)
    # Larger products cancel, but overflow where targets are large.
    most = rng.choice([1, 7], (len(targets), 1))
    a, b = with_exponents(box, rng, binades - tiny + rng.integers(-14, most, shape))
    a *= rng.random(shape) < rng.choice([0.3, 1.0], (len(targets), 1))
    last = np.where(rng.random(len(targets)) < 0.5, box.terms - 1, rng.integers(1, box.terms, len(targets)))
    ahead = np.where(np.arange(box.terms) <= last[:, np.newaxis], a, 0)
    # Products by powers of two hit the targets; by 1.5 many are half-way between a's numbers, others are near targets.
    some = rng.choice([1.0, 1.0, 1.5, 0.0], len(targets))
    significands = np.where(some > 0, some, rng.uniform(1.0, 2.0, len(targets)))
    # Two products make a target, or the last one alone beside what comes before it.
    first = np.where(rng.random(len(targets)) < 0.7, rng.integers(0, last), last)
    for places in (first, last):
        ahead[rows, places] = 0
        sums = candidate.sums(box.inputs, ahead, b)
        sums = np.zeros(len(targets)) if sums is None else np.where(np.isfinite(sums), sums, 0.0)
        ahead[rows, places], b[rows, places] = factors(box, targets - sums, significands)
    return np.where(np.arange(box.terms) <= last[:, np.newaxis], ahead, a), b
