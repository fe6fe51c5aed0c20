"""Generate the accumulators that fit an order, with the formats and modes that probes have shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.analysis.reveal.order import Evidence, OrderNotFound, all_modes, find_order
from simfloat.analysis.reveal.probe import (
    BlackBox,
    ContradictoryProbes,
    OutOfCalls,
    ProductRange,
    Tree,
    first_part,
    span_of,
)
from simfloat.analysis.reveal.readings import (
    Chain,
    Chunks,
    InOrder,
    LikeLibrary,
    LikeNumPy,
    Pairs,
    Reading,
    Runs,
    Strided,
    chain_order,
    depth_of,
    is_same_order,
    readings_of,
    tree_of,
)
from simfloat.formats import BF16, CATALOG, FP16, FP32, TF32, Format, Rounding, nearest_even, to_odd
from simfloat.formats.format import TININESS
from simfloat.sums import (
    Accumulator,
    blocked,
    dot,
    exact,
    fused,
    lanes,
    library_sum,
    matmul,
    matrix_core,
    numpy_sum,
    sequential,
    tensor_core,
    trees,
)
from simfloat.sums.trees import ROUNDED_ORDERS
from simfloat.sums.units import AMD_UNITS, INSTRUCTIONS, NVIDIA_UNITS, TWO_STEPS, TensorCore

E8M13 = Format(8, 13)

#: The maximum number of bits below the largest product to which products of a multi-term sum are aligned.
MOST_FRACTION_BITS = 40

#: The maximum number of products that are added at once, if probes do not show the number.
MOST_AT_ONCE = 64

#: The number of formats with equally many bits that are tried. The range of sums is known if operands and results reach
#: its ends.
MOST_FORMATS = 6

#: The number of positions that are printed in full.
SHOWN_PLACES = 64


class Candidate(NamedTuple):
    """An accumulator, the format that its sums are finally rounded to, and the mode, if it is not nearest even.

    If `output` is None, sums stay in the accumulator's own format.
    """

    accumulator: Accumulator
    output: Format | None = None
    rounding: Rounding | None = None

    def sums(self, inputs: tuple[Format, Format], a: NDArray, b: NDArray) -> NDArray[np.float64] | None:
        """Return the sums of operands (rows, terms); None if the accumulator does not support them."""
        # The sums of a row with the columns of other rows are not needed, but some engines compute eight as fast as
        # one.
        for together in (8, 1) if a.shape[1] <= 64 else (1,):
            rows = np.minimum(np.arange(-(-len(a) // together) * together), len(a) - 1).reshape(-1, together)
            options: dict[str, Any] = {"output": self.output, "rounding": self.rounding}
            try:
                sums = matmul(a[rows], b[rows].swapaxes(1, 2), inputs=inputs, accumulate=self.accumulator, **options)
            except ValueError:
                continue
            return sums.diagonal(axis1=1, axis2=2).reshape(-1)[: len(a)].astype(np.float64)
        return None

    def __str__(self) -> str:
        output = "" if self.output is None else f", rounded to {self.output}"
        rounding = "" if self.rounding is None else f" {self.rounding}"
        return f"{self.accumulator}{output}{rounding}"


class PermutedCandidate(Candidate):
    """A candidate that adds the products in the order of `places`."""

    places: tuple[int, ...]

    def sums(self, inputs: tuple[Format, Format], a: NDArray, b: NDArray) -> NDArray[np.float64] | None:
        """Return the sums of operands (rows, terms); None if the accumulator does not support them."""
        return super().sums(inputs, a[:, self.places], b[:, self.places])


def order_text(places: Sequence[int]) -> str:
    """Return the text of the index that puts the elements of a vector into this order."""
    if list(places) == list(range(len(places)))[::-1]:
        return "::-1"
    texts = [str(place) for place in places]
    return f"[{', '.join(texts if len(texts) <= SHOWN_PLACES else [*texts[:8], '...', texts[-1]])}]"


def candidates(evidence: Evidence, tree: Tree | None) -> Iterator[Candidate]:
    """Yield every accumulator that the evidence allows, the likely ones first."""
    yielded: set[Candidate] = set()
    for accumulator in _all_accumulators(evidence, tree):
        for output, rounding in _outputs(evidence, accumulator):
            candidate = Candidate(accumulator, output, rounding)
            if candidate not in yielded:
                yielded.add(candidate)
                yield candidate


def permuted_chains(evidence: Evidence, tree: Tree) -> Iterator[PermutedCandidate]:
    """Yield accumulators from left to right for a tree that adds one product after the other in another order.

    If products are exact, the two products that are added first differ: only the first is rounded alone.
    """
    order = chain_order(tree)
    if order is None:
        return
    first, second, *others = order
    orders = [(second, first, *others), (first, second, *others)]
    for places in sorted(orders, key=lambda places: order_text(places) != "::-1"):
        for accumulator in _chains(evidence):
            for output, rounding in _outputs(evidence, accumulator):
                candidate = PermutedCandidate(accumulator, output, rounding)
                candidate.places = places
                yield candidate


@lru_cache(maxsize=64)  # a unit is tried with several outputs
def adds_in_order(accumulator: Accumulator, inputs: tuple[Format, Format], tree: Tree | None) -> bool:
    """True if the accumulator adds as the tree does. Matrix units are tried for every tree, others only for theirs."""
    if tree is None or accumulator not in _units(inputs):
        return True
    if isinstance(accumulator, TensorCore) and accumulator.row is not TWO_STEPS:
        return tree_of(Chunks(accumulator.chunk), tree.terms) == tree
    for terms in (min(2 * (accumulator.chunk or 1), tree.terms), tree.terms):  # short sums show most differences
        box = BlackBox(partial(dot, inputs=inputs, accumulate=accumulator), terms, inputs)
        try:
            if find_order(box, span_of(box)) != first_part(tree, terms):
                return False
        except (ValueError, OrderNotFound, ContradictoryProbes, OutOfCalls):
            return False
    return True


def _all_accumulators(evidence: Evidence, tree: Tree | None) -> Iterator[Accumulator]:
    if evidence.fixed_point is not None:
        numbers = [(evidence.fixed_point, mode) for mode in all_modes()]
        yield from _build_accumulators([order.make for order in ROUNDED_ORDERS], numbers)
        yield exact
    terms, readings = (0, []) if tree is None else (tree.terms, list(readings_of(tree)))
    partitions = [reading for reading in readings if isinstance(reading, Runs | Strided)]
    partitions.sort(key=lambda reading: (depth_of(reading), not evidence.changes_only_at(reading.part_size(terms))))
    for reading in readings:
        if reading in partitions:
            continue
        yield from _accumulators(evidence, reading, terms)
    if terms <= 2:  # with more products, exact sums show no order
        yield exact
    yield from _units(evidence.inputs)
    if tree is None and evidence.alignment is not None and evidence.alignment.rounding == to_odd:
        for together in range(2, MOST_AT_ONCE + 1):
            yield from _fused(evidence, together)
    for reading in partitions:
        yield from _accumulators(evidence, reading, terms)


def _outputs(evidence: Evidence, accumulator: Accumulator) -> Iterator[tuple[Format | None, Rounding | None]]:
    """Yield the formats of results and the modes of rounding to them, starting with the accumulator's own format."""
    if accumulator.result is not None:
        yield None, None
    if evidence.last is not None:
        mode = evidence.last.rounding or nearest_even
        modes = [None if mode == nearest_even else mode, *([mode.saturating()] if evidence.saturates else [])]
        for format, rounding in product(_formats(evidence.last.precision, evidence.span), modes):
            if accumulator.result is None or _is_narrower(format, accumulator.result):
                yield format, rounding
    if accumulator.result is None and evidence.fixed_point is not None:
        yield from ((evidence.fixed_point, None if mode == nearest_even else mode) for mode in all_modes())
    if accumulator.result is None:
        yield from ((format, None) for format in (FP32, *CATALOG.values()))


def _is_narrower(format: Format, other: Format) -> bool:
    """True if rounding the numbers of another format to this one may change them."""
    bits = format.precision < other.precision
    return bits or format.emax < other.emax or format.smallest_subnormal > other.smallest_subnormal


def _accumulators(evidence: Evidence, reading: Reading, terms: int) -> Iterator[Accumulator]:
    match reading:
        case Chain():
            yield from _chains(evidence)
        case Pairs():
            yield from _build_accumulators(
                [order.make for order in ROUNDED_ORDERS if order.order == "neighbours"], _sums(evidence)
            )
        case LikeNumPy():
            sums = _sums(evidence)
            yield from _build_accumulators([order.make for order in ROUNDED_ORDERS if order.order == "numpy"], sums)
            yield from _build_accumulators(
                [partial(numpy_sum, products=products) for products in (FP16, BF16, TF32, FP32)], sums
            )
        case LikeLibrary(name):
            yield library_sum(name)
        case InOrder(text):
            yield from _build_accumulators([partial(trees.tree, text)], _sums(evidence))
        case Chunks(together):
            yield from _fused(evidence, together)
        case Runs(size, inner, outer) if not evidence.is_uniform or not any(
            is_same_order(reading, simple, terms) for simple in (Chain(), Pairs(), LikeNumPy())
        ):
            # If all additions round in the same way, runs that follow one of these orders would be the same sum.
            for first, second in _part_accumulators(evidence, inner, size, outer, -(-terms // size)):
                yield blocked(size, first, second)
        case Strided(count, inner, outer) if not evidence.is_uniform or not is_same_order(reading, LikeNumPy(), terms):
            # As for runs. With additions in two formats, lanes in NumPy's order are another sum.
            for first, second in _part_accumulators(evidence, inner, -(-terms // count), outer, count):
                yield lanes(count, first, second)


def _part_accumulators(
    evidence: Evidence, inner: Reading, size: int, outer: Reading, count: int
) -> Iterator[tuple[Accumulator, Accumulator]]:
    """Yield accumulators of parts of `size` products, each with an accumulator for the sums of `count` parts."""
    inners = list(_accumulators(evidence.inside(size), inner, size))
    outers = list(_accumulators(evidence.above(size), outer, count))
    for first, second in _pairs(inners, outers):
        # Sums of parts have no products that could be rounded.
        if not (second.is_matrix_unit or getattr(second, "products", None)):
            yield first, second


def _pairs(first: list[Accumulator], second: list[Accumulator]) -> Iterator[tuple[Accumulator, Accumulator]]:
    """Yield all pairs, starting with the likely ones of both."""
    for total in range(len(first) + len(second) - 1):
        for n in range(max(0, total + 1 - len(second)), min(total + 1, len(first))):
            yield first[n], second[total - n]


def _chains(evidence: Evidence) -> Iterator[Accumulator]:
    sums, chains = _sums(evidence), [order for order in ROUNDED_ORDERS if order.order == "chain"]
    for pair in sums:
        yield from _build_accumulators([order.make for order in chains], [pair])
    yield from _build_accumulators(
        [order.make for order in chains if order.compensates], _compensated_formats(evidence)
    )
    yield from _build_accumulators(
        [partial(sequential, products=products) for products in (FP32, FP16, BF16, TF32)], sums
    )


def _build_accumulators(
    makers: list[Callable[[Format, Rounding], Accumulator]], sums: Iterable[tuple[Format, Rounding]]
) -> Iterator[Accumulator]:
    """Yield the accumulators that exist for these formats and modes."""
    for maker, (format, rounding) in product(makers, sums):
        try:
            yield maker(format, rounding)
        except ValueError:  # the format is too wide for the accumulator
            continue


def _fused(evidence: Evidence, terms: int) -> Iterator[Accumulator]:
    for unit in _units(evidence.inputs):
        if unit.chunk == terms:
            yield unit
    if evidence.alignment is None or not 1 < evidence.alignment.precision <= MOST_FRACTION_BITS + 1:
        return
    bits, alignment_mode = evidence.alignment.precision - 1, evidence.alignment.rounding
    alignments = [mode for mode in all_modes() if mode.aligns and alignment_mode in (None, mode)]
    alignments.sort(key=lambda mode: not mode.is_toward_zero)  # most units align in this way
    totals = list(product(_totals(evidence, bits), alignments))
    if evidence.last is not None and evidence.last.rounding == nearest_even and evidence.last.precision < bits:
        # Probes show a total that is rounded to nearest; units truncate to FP32.
        yield from (_fused_to(terms, bits, *total, align) for total, align in totals[:MOST_FORMATS])
    for align, output in product(alignments, (FP32, FP16, E8M13)):
        yield fused(terms, bits, output, align=align)
    yield from (_fused_to(terms, bits, *total, align) for total, align in totals)


def _fused_to(terms: int, bits: int, output: Format, rounding: Rounding, align: Rounding) -> Accumulator:
    """Return aligned sums with totals in this mode, which is not named if it is the default."""
    is_default = rounding == nearest_even and output not in (FP32, E8M13)
    return fused(terms, bits, output, rounding=None if is_default else rounding, align=align)


def _totals(evidence: Evidence, bits: int) -> Iterator[tuple[Format, Rounding]]:
    """Yield the formats of totals of aligned products, and the modes in which they are rounded.

    If the result has fewer bits than products are aligned to, the mode of the result applies, and totals have the
    format of the result or one of the common formats that are wider.
    """
    last = evidence.last
    if last is None:
        return
    formats, modes = [*_formats(last.precision, evidence.span), FP32, FP16, E8M13], all_modes()
    if last.precision >= bits:
        formats += CATALOG.values()
    elif last.rounding is not None:
        modes = [last.rounding]
    modes += [mode.saturating() for mode in modes] if evidence.saturates else []
    for mode, format in product(modes, dict.fromkeys(formats)):
        if format.precision >= last.precision and format.signed and format.has_zero:
            yield format, mode


def _sums(evidence: Evidence) -> list[tuple[Format, Rounding]]:
    """Return the formats of sums with their modes, rounding to nearest first: it is rarely confused with others."""
    modes = [(step.precision, step.rounding) for step in evidence.kinds if step.rounding is not None]
    modes.sort(key=lambda mode: all_modes().index(mode[1]))
    if evidence.saturates:
        modes += [(precision, mode.saturating()) for precision, mode in modes]
    return [(format, mode) for precision, mode in modes for format in _formats(precision, evidence.span)]


def _compensated_formats(evidence: Evidence) -> Iterator[tuple[Format, Rounding]]:
    """Yield the formats of compensated sums. Their corrections may show as many bits as the format has, or one more."""
    for step, less in product(evidence.kinds, (0, 1)):
        modes = all_modes() if step.rounding is None else [step.rounding]
        yield from product(_formats(step.precision - less, evidence.span), modes)


def _formats(precision: int, span: ProductRange) -> list[Format]:
    """Return formats with `precision` bits, named ones first, and among them those with a range close to `span`."""
    if precision < 2:
        return []
    all_formats = [format for format in CATALOG.values() if format.precision == precision and format.signed]
    all_formats += [Format(bits, precision - 1) for bits in range(2, 12) if precision <= 53]
    normal = [format for format in all_formats if span.low == format.emin]
    flushed = [replace(format, subnormals=False, tininess=tininess) for tininess in TININESS for format in normal]
    formats = [format for format in dict.fromkeys([*all_formats, *flushed]) if format.emax >= span.high]
    return sorted(formats, key=lambda format: (format.name is None, _distance(format, span)))[:MOST_FORMATS]


def _distance(format: Format, span: ProductRange) -> int:
    low = format.emin - format.mantissa_bits if format.subnormals else format.emin
    return abs(format.emax - span.high) + abs(low - span.low)


def _units(inputs: tuple[Format, Format]) -> Iterator[Accumulator]:
    """Yield the matrix units that accept operands of these formats; units for TF32 also accept float32 values."""
    pairs = [inputs, (TF32, TF32)] if inputs == (FP32, FP32) else [inputs]
    for pair, nvidia, output in product(pairs, NVIDIA_UNITS, (FP32, FP16)):
        for instruction in (None, *INSTRUCTIONS.get(nvidia, ())[1:]):
            yield from _unit(partial(tensor_core, nvidia, pair, output, instruction=instruction))
    for pair, amd, variant in product(pairs, AMD_UNITS, (None, "1k")):
        yield from _unit(partial(matrix_core, amd, pair, variant=variant))


def _unit(maker: Callable[[], Accumulator]) -> Iterator[Accumulator]:
    try:
        unit = maker()
    except ValueError:  # the architecture has no such unit
        return
    if unit.chunk != 1:  # chains are sequential sums
        yield unit
