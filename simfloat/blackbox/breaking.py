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

#: Sums for each place of a format's range: its ends, what lies beyond them, and its middle.
ROWS = 20

#: So many halves of a spacing are near a power of two.
NEAR = 4


def breaking_operands(
    candidate: Candidate, box: BlackBox, rng: np.random.Generator
) -> Iterator[tuple[NDArray, NDArray]]:
    """Operands (rows, terms) whose sums, or sums of some of them, are numbers of the accumulator's formats or half-way
    between two: in the binades at both ends of the range and beyond them, most of them next to a power of two."""
    for format in dict.fromkeys(_formats(candidate)):
        for exponent in _exponents(box, format, rng):
            yield _aimed(candidate, box, rng, _targets(format, exponent, rng))


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


def _exponents(box: BlackBox, format: Format, rng: np.random.Generator) -> Iterator[int]:
    """Binades at the ends of a format's range and beyond, and one inside, as far as the operands' products reach."""
    first, second = box.inputs
    low, high = max(first.emin + second.emin, -1000), min(first.emax + second.emax, 1000)
    middle = rng.integers(max(low, -20), min(high, 20) + 1)
    subnormal = rng.integers(format.emin - format.mantissa_bits - 1, format.emin)
    for exponent in (middle, format.emax, format.emax + 1, format.emin, format.emin - 1, subnormal):
        if low <= exponent <= high:
            yield int(exponent)


def _targets(format: Format, exponent: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Numbers of a binade, of either sign: whole multiples of half the format's spacing there."""
    halves = 2 ** max(format.mantissa_bits + 1 - max(format.emin - exponent, 0), 0)
    steps = rng.integers(0, halves, ROWS)
    near = rng.integers(-NEAR, NEAR + 1, ROWS)
    steps = np.where(rng.random(ROWS) < 0.5, steps, near)
    return rng.choice([-1.0, 1.0], ROWS) * np.ldexp(1.0 + steps / halves, exponent)


def _aimed(
    candidate: Candidate, box: BlackBox, rng: np.random.Generator, targets: NDArray[np.float64]
) -> tuple[NDArray, NDArray]:
    """Operands whose sums up to some place, the last or any other, are the targets, if the accumulator makes them."""
    shape, rows = (len(targets), box.terms), np.arange(len(targets))
    binades = np.frexp(targets)[1][:, np.newaxis] - 1
    # Beside some targets all else is tiny: what is cut twice, or rounds as if it knew of no more bits, shows there.
    tiny = rng.integers(0, 60, (len(targets), 1)) * (rng.random((len(targets), 1)) < 0.4)
    a, b = with_exponents(box, rng, binades - tiny + rng.integers(-14, 3, shape))
    a *= rng.random(shape) < rng.choice([0.3, 1.0], (len(targets), 1))
    last = np.where(rng.random(len(targets)) < 0.5, box.terms - 1, rng.integers(1, box.terms, len(targets)))
    ahead = np.where(np.arange(box.terms) <= last[:, np.newaxis], a, 0)
    # Products by powers of two hit the targets, others come close.
    significands = np.where(rng.random(len(targets)) < 0.7, 1.0, rng.uniform(1.0, 2.0, len(targets)))
    for places in (rng.integers(0, last), last):
        ahead[rows, places] = 0
        sums = candidate.sums(box.inputs, ahead, b)
        sums = np.zeros(len(targets)) if sums is None else np.where(np.isfinite(sums), sums, 0.0)
        ahead[rows, places], b[rows, places] = factors(box, targets - sums, significands)
    return np.where(np.arange(box.terms) <= last[:, np.newaxis], ahead, a), b
