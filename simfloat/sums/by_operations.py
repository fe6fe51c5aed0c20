"""Sums by elementwise operations, step by step, for all elements of a tile, or of a stack of tiles.

Sums are computed in this way if the user gives the draws of their roundings, in FP64 in modes other than to nearest
even, and if flags are requested that `certain_flags.py` does not find. `unit_steps.py` contains the steps of matrix
units, and the rules for their flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw, GivenBits
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.operations import compute_with_draw, compute_with_flags
from simfloat.arithmetic.target import Target
from simfloat.formats import FP32, FP64, Format, Rounding, nearest_even
from simfloat.sums.accumulator import Accumulator, Engine, Region, TileScales
from simfloat.sums.blocked import SumOfLanes, SumOfSums
from simfloat.sums.fused import Fused
from simfloat.sums.one_format import InOneFormat, Kahan, Pairwise
from simfloat.sums.operands import OperandBounds
from simfloat.sums.sequential import SequentialSum
from simfloat.sums.trees import ADD, InProgramOrder, NumPySum, TreeSum
from simfloat.sums.unit_steps import (
    GROUP,
    ScaledFactors,
    Terms,
    chunk_total,
    groups_as_terms,
    products_as_terms,
    scaled_products_as_terms,
    steps_of_matrix_core,
    underflow_of_cut,
)
from simfloat.sums.units import CHAINS, GROUPED, MatrixCore, TensorCore

#: Accumulators with flags, in messages.
OF_OPERATIONS = "sequential, kahan, pairwise, numpy_sum, tree, fused and exact sums, matrix units, blocked and lanes"

#: The draw of a call with given draws in its steps: it only provides the positions of elements.
PLACE_ONLY = Draw(0, 0)

#: The number of roundings of a step of Kahan's sum.
KAHAN_ROUNDINGS = 5


def count_roundings(accumulator: Accumulator, terms: int) -> int:
    """Return the number of draws for a sum of `terms` products; ValueError for unsupported accumulators."""
    match accumulator:
        case SequentialSum(products=products):
            count = terms if products is None else 2 * terms
        case Kahan():
            count = KAHAN_ROUNDINGS * terms
        case Pairwise() | TreeSum():
            count = 2 * terms - 1 if terms else 0
        case NumPySum():
            count = 2 * terms  # the last addition adds the total to 0
        case Fused():
            return -(-terms // accumulator.terms) if accumulator.mode.is_stochastic else 0
        case SumOfSums():
            runs = _runs(accumulator, list(range(terms)))
            return sum(count_roundings(accumulator.inner, len(run)) for run in runs) + count_roundings(
                accumulator.outer, len(runs)
            )
        case _:
            raise ValueError(
                "GivenBits support sequential, kahan, pairwise, numpy_sum, tree and fused sums, and blocked ones and "
                f"lanes of these; with {accumulator} pass stream=simfloat.BitStream(seed)."
            )
    return count if accumulator.rounding.is_stochastic else 0


def consists_of_operations(accumulator: Accumulator) -> bool:
    """Return True if all steps are rounded operations, which raise flags."""
    if isinstance(accumulator, SumOfSums):
        return consists_of_operations(accumulator.inner) and consists_of_operations(accumulator.outer)
    return isinstance(accumulator, SequentialSum | Kahan | Pairwise | TreeSum | NumPySum)


def has_flags(accumulator: Accumulator) -> bool:
    """Return True if the steps are rounded operations, or steps of a matrix unit."""
    if isinstance(accumulator, SumOfSums):
        return has_flags(accumulator.inner) and has_flags(accumulator.outer)
    return consists_of_operations(accumulator) or isinstance(accumulator, Fused | TensorCore | MatrixCore)


def fits_float32(accumulator: Accumulator) -> bool:
    """Return True if all steps are rounded operations, and all results are float32 values."""
    if isinstance(accumulator, SumOfSums):
        return fits_float32(accumulator.inner) and fits_float32(accumulator.outer)
    if not isinstance(accumulator, SequentialSum | InOneFormat):
        return False
    return accumulator.format.fits_float32 and (getattr(accumulator, "products", None) or FP32).fits_float32


def least_exponents(accumulator: Accumulator, x: OperandBounds, y: OperandBounds) -> tuple[int, int]:
    """Return emin of the formats of both operands; for a matrix unit, of the formats that it multiplies."""
    return _of_matrix_unit(accumulator) or (x.known_or_array_format.emin, y.known_or_array_format.emin)


def _of_matrix_unit(accumulator: Accumulator) -> tuple[int, int] | None:
    """Return emin of both formats that a matrix unit multiplies; None if another accumulator takes the products."""
    while isinstance(accumulator, SumOfSums):
        accumulator = accumulator.inner
    if isinstance(accumulator, TensorCore | MatrixCore) and accumulator.inputs is not None:
        a, b = accumulator.inputs
        return a.emin, b.emin
    return None


def _runs(accumulator: SumOfSums, products: list[Any]) -> list[list[Any]]:
    """Return the products of each run, or of each lane."""
    if isinstance(accumulator, SumOfLanes):
        return [products[lane :: accumulator.count] for lane in range(min(accumulator.count, len(products)))]
    size = accumulator.lengths(len(products)).size
    return [products[first : first + size] for first in range(0, len(products), size)]


def needs_operations(accumulator: Accumulator) -> bool:
    """Return True if steps are rounded to FP64 in a mode for which no loop exists."""
    if isinstance(accumulator, SumOfSums):
        return needs_operations(accumulator.inner) or needs_operations(accumulator.outer)
    if not isinstance(accumulator, SequentialSum | InOneFormat):
        return False
    return accumulator.rounding.steps != "nearest" and FP64 in (
        accumulator.format,
        getattr(accumulator, "products", None),
    )


class RemovedScales(NamedTuple):
    """The steps that remove scales: the sum of each block is multiplied or divided by its two scales."""

    block: int
    operation: str  # multiply or divide
    total: SequentialSum  # adds the results


class OperationsEngine(NamedTuple):
    """Sums by elementwise operations, with draws in C order of the result, step by step."""

    accumulator: Accumulator
    words: NDArray[np.uint32] | None  # (elements of the result, draws of an element), if the user gives draws
    least: tuple[int, int]  # emin of the left and of the right operand, which fused sums read
    flags: NDArray[np.uint8] | None = None  # receives the flags that the steps of each element raise, if requested
    scales: RemovedScales | None = None  # None without scales, and if the accumulator itself reads them
    quick: Engine | None = None  # an engine with the same sums, if flags are requested
    carrier: FloatType = np.float64
    cost: float = 1e-9  # one thread computes all sums, and the operations divide their elements among threads
    takes_batches: bool = True

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        """Add products to `out`: of matrices, as other engines do, or of stacks: (..., m, k), (..., k, n) and
        (..., m, n)."""
        rows, columns = np.indices(out.shape[-2:])
        elements = np.asarray(region.first + rows * region.row_step + columns * region.column_step)
        if out.ndim > 2:
            elements = elements + region.matrix_step * np.arange(len(out))[:, np.newaxis, np.newaxis]
        raised = None if self.flags is None else np.zeros(out.shape, np.uint8)
        operations = _Operations(
            None if self.words is None else np.moveaxis(self.words[elements], -1, 0), raised, self.carrier
        )
        least = self.least[::-1] if region.is_transposed else self.least
        factors = _factors(a, b)
        if region.scales is None:
            out[...] = operations.sum(self.accumulator, factors, out, least)
        elif self.scales is not None:
            out[...] = operations.sum_blocks(self.accumulator, factors, out, least, self.scales, region.scales)
        else:
            assert self.accumulator.scales is not None
            out[...] = operations.sum(
                self.accumulator, _with_scales(factors, region.scales, self.accumulator.scales[0]), out, least
            )
        if self.flags is not None and raised is not None:
            self.flags[elements] = raised

    def running_sums(self, row: NDArray, column: NDArray, start: NDArray) -> NDArray[np.float64]:
        """Return the partial sums of one element after every step, with the draws of a sum that ends there."""
        operations = _Operations(None if self.words is None else self.words[0].reshape(-1, 1, 1))
        begin = start.astype(np.float64)
        totals = list(operations.running_sums(self.accumulator, _factors(row, column), begin, self.least))
        sums = np.zeros(len(totals), like=row)
        for i, total in enumerate(totals):
            sums[i] = total[0, 0]
        return sums


def _factors(a: NDArray, b: NDArray) -> list[Any]:
    """Return the factors of every product of a tile."""
    return [(a[..., k : k + 1], b[..., k : k + 1, :]) for k in range(a.shape[-1])]


def _with_scales(factors: list[Any], scales: TileScales, block: int) -> list[ScaledFactors]:
    """Return factors with the scales of their blocks."""
    return [(x, y, *_scales_of_block(scales, k // block)) for k, (x, y) in enumerate(factors)]


def _scales_of_block(scales: TileScales, block: int) -> tuple[NDArray, NDArray]:
    """Return the scales of a block of all rows, and of all columns."""
    return scales[0][..., block, np.newaxis], scales[1][..., block, np.newaxis, :]


def take_words(accumulator: Accumulator, elements: int, terms: int, stream: GivenBits) -> NDArray[np.uint32]:
    """Return the next draws of the stream for this number of sums: (elements, draws of an element)."""
    each, bits = (
        count_roundings(accumulator, terms),
        {mode.bits for mode in accumulator.roundings if mode.is_stochastic},
    )
    if len(bits) > 1:
        raise ValueError(f"GivenBits have draws of one width, and the steps of {accumulator} use several.")
    return stream.take_words(elements * each, bits.pop()).reshape(elements, each)


class _Operations:
    """Rounded operations on a tile, each of which takes the next draws of its elements, and adds its flags."""

    def __init__(
        self,
        words: NDArray[np.uint32] | None,
        flags: NDArray[np.uint8] | None = None,
        carrier: FloatType = np.float64,
    ) -> None:
        self._words, self._flags, self._carrier, self._draws_so_far = words, flags, carrier, 0

    def sum(self, accumulator: Any, factors: list[Any], start: NDArray, least: tuple[int, int]) -> NDArray:
        """Return the sums of the products of pairs of factors, added to `start`."""
        match accumulator:
            case Pairwise():
                return self._pairwise(accumulator, factors, start)
            case InProgramOrder():
                return self._in_order(accumulator, factors, start)
            case SumOfSums():
                totals = list(self._totals(accumulator, factors, start, least))
                return self.sum(accumulator.outer, totals, start, _least_exponents(accumulator))
            case TensorCore(scales=None):
                steps, ordered = accumulator.as_steps(factors)
                return self.sum(steps, ordered, start, least)
            case MatrixCore() if accumulator.row in CHAINS:
                return self.sum(SequentialSum(accumulator.result), factors, start, least)
            case MatrixCore():
                do = self._operations_in(FP32, nearest_even, start.shape)
                raised = np.zeros(start.shape, np.uint8)
                total = steps_of_matrix_core(accumulator, do, raised, factors, start, least)
                if self._flags is not None:
                    self._flags |= raised
                return total
        for total in self.running_sums(accumulator, factors, start, least):
            start = total
        return start

    def sum_blocks(
        self,
        accumulator: Accumulator,
        factors: list[Any],
        start: NDArray,
        least: tuple[int, int],
        removal: RemovedScales,
        scales: TileScales,
    ) -> NDArray:
        """Remove the scales from the sums of blocks, and return `start` plus the results."""
        total, results, ones = removal.total, list[Any](), np.ones_like(start, shape=(1,) * start.ndim)
        remove = self._operations_in(total.format, total.rounding, start.shape)
        for block, first in enumerate(range(0, len(factors), removal.block)):
            products = factors[first : first + removal.block]
            sums = self.sum(accumulator, products, np.zeros_like(start), least)
            of_rows, of_columns = _scales_of_block(scales, block)
            results.append((remove(removal.operation, sums, of_rows.astype(np.float64) * of_columns), ones))
        return self.sum(total, results, start, least)

    def running_sums(
        self, accumulator: Any, factors: list[Any], start: NDArray, least: tuple[int, int]
    ) -> Iterator[NDArray]:
        """Generate the partial sums after every step."""
        match accumulator:
            case SequentialSum():
                return self._sequential(accumulator, factors, start)
            case Kahan():
                return self._kahan(accumulator, factors, start)
            case Fused():
                read = partial(products_as_terms, least=least)
                return self._add_aligned_chunks(accumulator, factors, accumulator.terms, start, read)
            case TensorCore(scales=(_, scale)):
                size, unit = accumulator.row.terms, accumulator.unit
                if accumulator.row is GROUPED:
                    unit = replace(unit, terms=size // GROUP)
                    return self._add_aligned_chunks(
                        unit, factors, size, start, partial(groups_as_terms, least=scale.emin)
                    )
                return self._add_aligned_chunks(
                    unit, factors, size, start, partial(scaled_products_as_terms, least=least)
                )
        return self._running_outer(accumulator, factors, start, least)

    def _totals(
        self, accumulator: SumOfSums, factors: list[Any], start: NDArray, least: tuple[int, int]
    ) -> Iterator[tuple[NDArray, NDArray]]:
        """Generate the sums of runs, as pairs of factors."""
        for run in _runs(accumulator, factors):
            yield (
                np.ones_like(start, shape=(1,) * start.ndim),
                self.sum(accumulator.inner, run, np.zeros_like(start), least),
            )

    def _running_outer(
        self, accumulator: SumOfSums, factors: list[Any], start: NDArray, least: tuple[int, int]
    ) -> Iterator[NDArray]:
        """Generate the outer sum after every step; its draws follow the draws of all runs so far."""
        outer, totals, ends = accumulator.outer, list[Any](), list[int]()
        for total in self._totals(accumulator, factors, start, least):
            totals.append(total)
            ends.append(self._draws_so_far)
        if not all(any(mode.is_stochastic for mode in sums.roundings) for sums in (accumulator.inner, outer)):
            yield from self.running_sums(outer, totals, start, _least_exponents(accumulator))
            return
        # The draws of the user are in one order: the draws of all runs, then the draws of their sum. With fewer runs,
        # the draws of the outer sum are at another position, so the outer sum is recomputed for every step.
        for first in range(0, len(totals), outer.chunk or 1):
            count = min(first + (outer.chunk or 1), len(totals))
            assert self._words is not None
            yield _Operations(self._words[ends[count - 1] :]).sum(
                outer, totals[:count], start, _least_exponents(accumulator)
            )

    def _sequential(self, accumulator: SequentialSum, factors: list[Any], total: NDArray) -> Iterator[NDArray]:
        do = self._operations_in(accumulator.format, accumulator.rounding, total.shape)
        for x, y in factors:
            if accumulator.products is None:
                total = do("fma", x, y, total)
            else:
                product = self._operations_in(accumulator.products, accumulator.rounding, total.shape)("multiply", x, y)
                total = do("add", total, product)
            yield total

    def _kahan(self, accumulator: Kahan, factors: list[Any], s: NDArray) -> Iterator[NDArray]:
        do, c = self._operations_in(accumulator.format, accumulator.rounding, s.shape), np.zeros_like(s)
        for factor in factors:
            y = do("subtract", do("multiply", *factor), c)
            t = do("add", s, y)
            c = do("subtract", do("subtract", t, s), y)
            s = t
            yield s

    def _pairwise(self, accumulator: Pairwise, factors: list[Any], start: NDArray) -> NDArray:
        do = self._operations_in(accumulator.format, accumulator.rounding, start.shape)
        nodes = [do("multiply", x, y) for x, y in factors]
        while len(nodes) > 1:
            pairs = [do("add", *nodes[i : i + 2]) for i in range(0, len(nodes) - 1, 2)]
            nodes = pairs + nodes[len(nodes) - len(nodes) % 2 :]
        return nodes[0] if nodes else start

    def _in_order(self, accumulator: InProgramOrder, factors: list[Any], start: NDArray) -> NDArray:
        do = self._operations_in(accumulator.format, accumulator.rounding, start.shape)
        if isinstance(accumulator, NumPySum) and accumulator.products is not None:
            round_products, ones = (
                self._operations_in(accumulator.products, accumulator.rounding, start.shape),
                np.ones_like(start),
            )
            factors = [(round_products("multiply", x, y), ones) for x, y in factors]
        # The last value is the zero that sums in NumPy's order start from.
        numbers, waiting = [*(do("multiply", x, y) for x, y in factors), start], list[NDArray]()
        for k in accumulator.order(len(factors)):
            if k == ADD:
                right = waiting.pop()
                waiting[-1] = do("add", waiting[-1], right)
            else:
                waiting.append(numbers[k])
        return waiting[0]

    def _add_aligned_chunks(
        self, accumulator: Fused, factors: list[Any], size: int, total: NDArray, read: Callable[[list[Any]], Terms]
    ) -> Iterator[NDArray]:
        do = self._operations_in(accumulator.output, accumulator.mode, total.shape)
        for first in range(0, len(factors), size):
            raised = None if self._flags is None else np.zeros(total.shape, np.uint8)
            with np.errstate(all="ignore"):
                chunk = chunk_total(accumulator, read(factors[first : first + size]), total, raised)
            # The chunk is exact, so adding zero rounds it once, with its draw. A matrix unit has no -0: + 0.0 turns -0
            # into +0.
            total = do("add", chunk, np.zeros_like(total)) + 0.0
            if self._flags is not None and raised is not None:
                self._flags |= raised | underflow_of_cut(chunk, raised, accumulator.output, accumulator.mode)
            if accumulator.conversion == "truncated":
                # Toward zero, the operation returns the largest number, but the total of a tensor core becomes
                # infinite.
                beyond = np.abs(chunk) >= 2.0 ** (accumulator.output.last_binade + 1)
                total = np.where(beyond, np.copysign(np.inf, chunk), total)
            yield total

    def _next_words(self) -> NDArray[np.uint32]:
        assert self._words is not None
        self._draws_so_far += 1
        return self._words[self._draws_so_far - 1]

    def _operations_in(self, format: Format, rounding: Rounding, shape: tuple[int, ...]) -> Any:
        """Return a function that computes operations in a format, with results of this shape."""
        target = Target(format, rounding, self._carrier)

        def do(operation: str, *operands: NDArray) -> NDArray:
            draw = Draw(0, 0, user_bits=_ReadyWords(self._next_words())) if rounding.is_stochastic else None
            if self._flags is None:
                return compute_with_draw(operation, list(operands), target, draw)
            results, raised = compute_with_flags(operation, list(operands), target, draw)
            self._flags |= raised
            return results

        return do


def _least_exponents(accumulator: SumOfSums) -> tuple[int, int]:
    """Return emin of the two factors of an outer sum: ones, and the sums of runs."""
    assert accumulator.inner.result is not None
    return _of_matrix_unit(accumulator.outer) or (FP32.emin, accumulator.inner.result.emin)


class _ReadyWords(GivenBits):
    """Draws that are words already."""

    def __init__(self, words: NDArray[np.uint32]) -> None:
        self._ready_words = words.reshape(-1)

    def take_words(self, count: int, bits: int) -> NDArray[np.uint32]:
        """Return all of them."""
        return self._ready_words
