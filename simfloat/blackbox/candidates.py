"""Accumulators that add in an order, with the formats and modes that probes have shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate import (
    Accumulator,
    blocked,
    exact,
    fused,
    kahan,
    matmul,
    matrix_core,
    pairwise,
    sequential,
    tensor_core,
)
from simfloat.accumulate._matrix_core import UNITS as MATRIX_CORES
from simfloat.accumulate._sequential import Sequential
from simfloat.accumulate.nvidia import INSTRUCTIONS
from simfloat.accumulate.nvidia import UNITS as TENSOR_CORES
from simfloat.blackbox.probe import BlackBox, Span
from simfloat.blackbox.readings import Chain, Chunks, Pairs, Reading, Runs, readings_of
from simfloat.blackbox.steps import MODES, Step, fraction_bits, last_step, steps_of
from simfloat.blackbox.tree import Tree
from simfloat.formats import BF16, CATALOG, FP16, FP32, TF32, Format, Rounding

E8M13 = Format(8, 13)

#: How many formats of as many bits are tried: the range of sums is known where operands and results reach its ends.
MOST_FORMATS = 6


class Candidate(NamedTuple):
    """An accumulator, and the format that its sums are rounded to in the end, None for its own."""

    accumulator: Accumulator
    output: Format | None = None

    def sums(self, inputs: tuple[Format, Format], a: NDArray, b: NDArray) -> NDArray[np.float64] | None:
        """The sums of operands (rows, terms); None if it refuses them."""
        options: dict[str, Any] = {"inputs": inputs, "accumulate": self.accumulator, "output": self.output}
        try:
            return matmul(a[:, np.newaxis, :], b[:, :, np.newaxis], **options).reshape(-1).astype(np.float64)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.accumulator}" if self.output is None else f"{self.accumulator}, rounded to {self.output}"


class Evidence(NamedTuple):
    """What probes have shown of a function's additions."""

    inputs: tuple[Format, Format]
    span: Span
    steps: list[Step]
    last: Step | None
    fraction_bits: int | None = None
    saturates: bool = False


def evidence_of(box: BlackBox, span: Span, tree: Tree | None) -> Evidence:
    """The evidence that probes of a function give; without a tree only that of its results."""
    if tree is None:
        return Evidence(box.inputs, span, [], last_step(box, span, None))
    overflow = box.products(dict.fromkeys(range(box.terms), 2.0**span.high))
    return Evidence(
        box.inputs,
        span,
        steps_of(box, span, tree),
        last_step(box, span, tree),
        fraction_bits(box, span, tree),
        math.isfinite(overflow),
    )


def candidates(evidence: Evidence, tree: Tree | None) -> Iterator[Candidate]:
    """Every accumulator that the evidence leaves, the likely ones first."""
    seen: set[Candidate] = set()
    for accumulator in _all_accumulators(evidence, tree):
        for output in _outputs(evidence, accumulator):
            candidate = Candidate(accumulator, output)
            if candidate not in seen:
                seen.add(candidate)
                yield candidate


def _all_accumulators(evidence: Evidence, tree: Tree | None) -> Iterator[Accumulator]:
    if tree is None:
        yield exact
    else:
        plain = len(_shown(evidence)) == 1
        for reading in readings_of(tree):
            yield from _accumulators(evidence, reading)
            if plain and isinstance(reading, Chain | Pairs):
                # All additions round alike, so runs of some of them would be the same sum.
                return
    yield from _units(evidence.inputs)


def _outputs(evidence: Evidence, accumulator: Accumulator) -> list[Format | None]:
    """The formats of results: the accumulator's own, or, if results have fewer bits, one of so many bits."""
    shown = [] if evidence.last is None else _formats(evidence.last.precision, evidence.span)
    if accumulator.result is None:
        return [*dict.fromkeys([*shown, FP32, *CATALOG.values()])]
    if evidence.last is None or evidence.last.precision >= accumulator.result.precision:
        return [None]
    # Sums may also have fewer bits than their format, as those of FP8 products on Hopper.
    return [None, *shown]


def _accumulators(evidence: Evidence, reading: Reading) -> Iterator[Accumulator]:
    match reading:
        case Chain():
            yield from _chains(evidence)
        case Pairs():
            yield from _made(pairwise, _sums(evidence))
        case Chunks(terms):
            yield from _fused(evidence, terms)
        case Runs(size, inner, outer):
            # Sums of runs have no products to be rounded.
            outers = [x for x in _accumulators(evidence, outer) if not (isinstance(x, Sequential) and x.products)]
            for first, second in product(_accumulators(evidence, inner), outers):
                if not second.is_matrix_unit:
                    yield blocked(size, first, second)


def _chains(evidence: Evidence) -> Iterator[Accumulator]:
    sums = _sums(evidence)
    yield from _made(sequential, sums)
    yield from _made(lambda format, mode: sequential(format, mode, products=format), sums)
    for products in (FP32, FP16, BF16, TF32):
        yield from _made(partial(sequential, products=products), sums)
    compensated = [step.precision for step in _shown(evidence) if step.rounding is None]
    # A correction keeps one bit more of a sum of two.
    formats = [format for bits in compensated for less in (0, 1) for format in _formats(bits - less, evidence.span)]
    yield from _made(kahan, [*sums, *product(formats, MODES)])


def _made(
    maker: Callable[[Format, Rounding], Accumulator], sums: Iterable[tuple[Format, Rounding]]
) -> Iterator[Accumulator]:
    """The accumulators that can be made of such formats and modes."""
    for format, rounding in sums:
        try:
            yield maker(format, rounding)
        except ValueError:  # a format so wide that its steps are not computed
            continue


def _fused(evidence: Evidence, terms: int) -> Iterator[Accumulator]:
    for unit in _units(evidence.inputs):
        if unit.chunk == terms:
            yield unit
    if evidence.fraction_bits is not None and evidence.fraction_bits <= 40:
        for output in (FP32, FP16, E8M13):
            yield fused(terms, evidence.fraction_bits, output)


def _sums(evidence: Evidence) -> list[tuple[Format, Rounding]]:
    """The formats of sums with their modes, those to nearest first: few other sums look like theirs."""
    modes = [(step.precision, step.rounding) for step in _shown(evidence) if step.rounding is not None]
    modes.sort(key=lambda mode: MODES.index(mode[1]))
    if evidence.saturates:
        modes += [(precision, mode.saturating()) for precision, mode in modes]
    return [(format, mode) for precision, mode in modes for format in _formats(precision, evidence.span)]


def _shown(evidence: Evidence) -> list[Step]:
    """The kinds of additions that were seen."""
    return list(dict.fromkeys([*evidence.steps, *([] if evidence.last is None else [evidence.last])]))


def _formats(precision: int, span: Span) -> list[Format]:
    """Formats of so many bits, those with a name first, and of them those whose range is the span that was seen."""
    if precision < 2:
        return []
    known = [format for format in CATALOG.values() if format.precision == precision and format.signed]
    known += [Format(bits, precision - 1) for bits in range(2, 12) if precision <= 53]
    flushed = [replace(format, subnormals=False) for format in known if span.low == format.emin]
    formats = [format for format in dict.fromkeys([*known, *flushed]) if format.emax >= span.high]
    return sorted(formats, key=lambda format: (format.name is None, _distance(format, span)))[:MOST_FORMATS]


def _distance(format: Format, span: Span) -> int:
    low = format.emin - format.mantissa_bits if format.subnormals else format.emin
    return abs(format.emax - span.high) + abs(low - span.low)


def _units(inputs: tuple[Format, Format]) -> Iterator[Accumulator]:
    """The matrix units that take operands of these formats; those of TF32 take float32 numbers."""
    pairs = [inputs, (TF32, TF32)] if inputs == (FP32, FP32) else [inputs]
    for pair, nvidia, output in product(pairs, TENSOR_CORES, (FP32, FP16)):
        for instruction in (None, *INSTRUCTIONS.get(nvidia, ())[1:]):
            yield from _unit(partial(tensor_core, nvidia, pair, output, instruction=instruction))
    for pair, amd, variant in product(pairs, MATRIX_CORES, (None, "1k")):
        yield from _unit(partial(matrix_core, amd, pair, variant=variant))


def _unit(maker: Callable[[], Accumulator]) -> Iterator[Accumulator]:
    try:
        unit = maker()
    except ValueError:  # the architecture has no such unit
        return
    if unit.chunk != 1:  # chains are sequential sums
        yield unit
