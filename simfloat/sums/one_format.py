"""Sums with products and additions rounded to one format: Kahan and pairwise sums.

**Few results of many products** (`sum_few_long_ones`). The rounded products are computed first. In a pairwise
sum the lower parts of the tree do not depend on one another. The products of a run of 2^j form a subtree; the last run
may be shorter, and its sum is carried up unchanged. So runs are laid out as columns of a matrix and are summed like its
columns, and then their sums are summed in the same way. The order of NumPy has a separate loop.

For FP16, these sums are also rounded by conversions. On an AMD Zen 3, conversions make sums of FP16 values in NumPy's
order 1.08, 1.17, 1.29 and 1.23 times as fast as the steps of other formats, at 2^11, 2^13, 2^16 and 2^20 values.
Pairwise sums become 1.0, 0.9, 1.2 and 1.25 times as fast as on lanes, at 2^11, 2^12, 2^16 and 2^20 values.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.machines import CPU, Device, Loop, on_cpu
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.operations import compute_in_thread
from simfloat.arithmetic.target import Target, check_precision, odd_suffices
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.sums.accumulator import Accumulator, Around, Engine, Region, kernel_region
from simfloat.sums.bounds import Bounds, limited_sums, quickest_step
from simfloat.sums.lanes import order_lanes
from simfloat.sums.operands import BOUNDS_OF_ONES, OperandBounds, Problem
from simfloat.sums.sequential import StepLoop, hardware_engine, hardware_kind, packed_grid, step_loop

#: Nanoseconds of a rounded operation, by the kind of step; the hardware's own steps take 0.02.
COSTS = {
    **{"converted": 0.05, "plain": 0.1, "odd": 0.15, "directed": 0.4, "sticky": 0.4},
    **{"likely": 0.3, "drawn_odd": 0.4, "drawn_sums": 0.4, "wide": 30.0},
}


#: Kinds of steps that are as fast as steps on lanes.
QUICK_KINDS = ("converted",)


@dataclass(frozen=True, repr=False)
class InOneFormat(Accumulator):
    """A sum with products and additions rounded to `format`.

    A subclass defines `stages`, the number of roundings of a step that may be stochastic, and the bound `high`. By
    default its loops are those in `kernels/sums/orders.py` with the name of its maker.
    """

    format: Format
    rounding: Rounding = field(default=nearest_even, kw_only=True)

    __hash__ = Accumulator.__hash__

    def __post_init__(self) -> None:
        check_precision(self.format, self.rounding, is_exact=True)

    def loop_engine(
        self, kind: str, carrier: FloatType, top: int | None = None, grid_type: FloatType | None = None
    ) -> StepLoop | TreeLoop:
        """Return the engine of a kind of step; the arguments are those of `step_loop`."""
        loop = step_loop(self.maker, (self.format,), self.rounding, kind, carrier, top, grid_type)
        return loop._replace(cost=self.cost(kind))

    def cost(self, kind: str) -> float:
        """Return nanoseconds per product."""
        return self.stages * COSTS.get(kind, 0.02)

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.format

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The mode of all operations."""
        return (self.rounding,)

    @abstractmethod
    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """Return an exponent that bounds all intermediate values: |x| < 2^high."""

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return bounds on a sum of `terms` products with the given bounds."""
        _, sums = self.terms_and_sums(products, terms, None)
        return sums.within_format(self.format)

    def terms_and_sums(self, products: Bounds, terms: int, initial: Bounds | None) -> tuple[Bounds, Bounds]:
        """Return bounds on the operands of additions, and on their sums."""
        added = products.after_rounding(self.format, self.rounding)
        summands = added
        if initial is not None:
            # If the smallest number of the format is above 1, initial values of zero have bounds below it; these do not
            # count.
            smallest = self.format.emin - self.format.mantissa_bits
            summands = added.union(initial._replace(low=max(initial.low, smallest)))
        high = self.high(added, terms, initial)
        sums = Bounds(max(high - summands.low, 1), summands.low, summands.low, high, summands.finite)
        added, sums = limited_sums(added, sums, self.format, self.rounding)
        # Both operands of an addition may be sums: numbers of the format, and multiples of the same unit as the sums.
        return added._replace(precision=self.format.precision, low=sums.low), sums

    def engine(self, problem: Problem) -> Engine:
        """Return the fastest loop that is exact for these operands."""
        if self.rounding == nearest_even and self.format in (FP32, FP64):
            if self.format == FP64 or (problem.a.in_float32 and problem.b.in_float32):
                return self.loop_engine("native", np.float64 if self.format == FP64 else np.float32)
        kind = hardware_kind(problem, self.rounding, self.format)
        if kind is not None:
            return hardware_engine(self.loop_engine(kind, np.float32), kind, self.format)
        engine = _quickest_loop(self, problem.a.bounds, problem.b.bounds, problem.depth, problem.initial)
        if engine.kind in QUICK_KINDS:
            return engine
        return order_lanes(self.maker, self.stages, problem, self.format, self.rounding, engine) or engine


def running_sums(
    accumulator: InOneFormat, row: NDArray, column: NDArray, start: NDArray, region: Region
) -> NDArray[np.float64]:
    """Return the sum of a row (1, k) times a column (k, 1) after every product, on the CPU; `start` is (1, 1)."""
    # All loops of an order give the same bits, so the loop for any operands and any grid is enough. This compiles one
    # loop per order for partial sums, and not one per kind of step.
    wide = accumulator.loop_engine("wide", np.float64)
    sums = np.zeros((column.size, 1))
    with np.errstate(invalid="ignore"):  # conversion of signalling NaN
        a, b, sums[:1] = (on_cpu(x).astype(np.float64, "C", copy=False) for x in (row, column, start))
    where, seed = kernel_region(region)
    loop = CPU.loops.running_sums.running_loops[accumulator.maker]
    loop(a, b, sums, wide.grid, wide.sign, wide.pair, where, seed)
    return sums[:, 0]


class TreeLoop(NamedTuple):
    """The loop of a tree for a kind of steps, with the values that it reads."""

    accumulator: InTreeOrder
    kind: str
    carrier: FloatType
    grid: NDArray[np.floating]
    sign: np.floating
    cost: float
    takes_stacks: bool
    pair: bool

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        where, seed = kernel_region(region)
        loop, program = self.accumulator.loop(region.machine, self.kind, a.shape[1])
        if program is None:
            loop(a, b, out, self.grid, self.sign, self.pair, where, seed)
        else:
            loop(a, b, out, region.machine.to_device(program), self.grid, self.sign, self.pair, where, seed)

    def with_scaled_grids(self, factor: np.float32) -> TreeLoop:
        """Return the loop with its grid multiplied by a power of two, `factor`."""
        return self._replace(grid=kernels.rounding.grid.scale_limits(self.grid, factor))


@lru_cache(maxsize=1024)
def _quickest_loop(
    accumulator: InOneFormat, a: Bounds, b: Bounds, depth: int, initial: Bounds | None
) -> StepLoop | TreeLoop:
    """Return the fastest loop that is exact for these sums."""
    terms, sums = accumulator.terms_and_sums(a.product_bounds(b), depth, initial)
    format, rounding = accumulator.format, accumulator.rounding
    step = quickest_step((format,), rounding, a, b, terms, sums, initial, format)
    if step is None:
        return accumulator.loop_engine("wide", np.float64)
    return accumulator.loop_engine(*step, step.grid_type)


@lru_cache(maxsize=1024)
def _tree_loop(
    accumulator: InTreeOrder, kind: str, carrier: FloatType, top: int | None, grid_type: FloatType | None
) -> TreeLoop:
    format, rounding = accumulator.format, accumulator.rounding
    grid, sign = packed_grid(format, rounding, top, grid_type or carrier), carrier(rounding.zero_sum)
    takes_stacks, pair = not rounding.is_stochastic, not odd_suffices(format, rounding)
    return TreeLoop(accumulator, kind, carrier, grid, sign, accumulator.cost(kind), takes_stacks, pair)


@dataclass(frozen=True, repr=False)
class InTreeOrder(InOneFormat):
    """A sum of rounded products in a tree."""

    __hash__ = InOneFormat.__hash__
    stages: ClassVar[int] = 2  # the sums, then the products

    def loop_engine(
        self, kind: str, carrier: FloatType, top: int | None = None, grid_type: FloatType | None = None
    ) -> StepLoop | TreeLoop:
        return _tree_loop(self, kind, carrier, top, grid_type)

    def loop(self, device: Device, kind: str, terms: int) -> tuple[Loop, NDArray[np.int64] | None]:
        """Return the loop of the device for a kind of step, and the program for sums of `terms` products if it reads
        one."""
        return device.loops.tree_loops.tree_loops[kind], self.program(terms)

    @abstractmethod
    def program(self, terms: int) -> NDArray[np.int64]:
        """Return the program; ValueError if none exists for this number of products."""


#: The largest number of terms for which the program of an order is cached.
MOST_CACHED_TERMS = 1 << 16

#: A few long sums are divided into runs: the least number of products of such a sum, the number of products of a run,
#: and the largest number of sums that counts as few.
LEAST_CUT, RUN, FEW_RESULTS = 1 << 11, 1 << 8, 16

#: From MANY products on, runs are short: rows that are 1 KiB apart share a few lines of the cache, so that laying them
#: out as columns took half of the time. With short runs, pairwise sums of 2^20 values in FP16 and BF16 take 0.5 to 0.65
#: of the time, of 2^16 values 0.8 to 1, but of 2^14 values up to 1.3 times as long (AMD Zen 3).
MANY, SHORT_RUN = 1 << 16, 8


class RoundedProducts(NamedTuple):
    """Products that are rounded to a format before they are summed."""

    format: Format
    rounding: Rounding
    carrier: FloatType
    left_is_in_format: bool  # True if the left operand consists of numbers of the format

    def multiply(self, x: NDArray, y: NDArray) -> NDArray[np.floating]:
        """Return the rounded products of two vectors."""
        if self.left_is_in_format and are_ones(y):
            return x.astype(self.carrier, copy=False)
        target = Target(self.format, self.rounding, self.carrier)
        # A vector with stride 0 repeats one value: only that value is read.
        return compute_in_thread("multiply", [x, y[:1] if y.strides == (0,) else np.ascontiguousarray(y)], target)


def are_ones(y: NDArray) -> bool:
    """True if all values are 1; in a vector with stride 0, which repeats one value, only that one is read."""
    return bool((y[:1] == 1).all() if y.strides == (0,) else (y == 1).all())


def sum_few_long_ones(
    products: RoundedProducts,
    sum_up: Callable[[NDArray, Region], Any],
    engine: Engine,
    a: NDArray,
    b: NDArray,
    out: NDArray,
    region: Region,
) -> None:
    """Sum by an engine; if there are few long sums, their products are rounded first, and then summed by `sum_up`."""
    if region.machine is not CPU:
        engine.run(a, b, out, region)
    elif out.size > FEW_RESULTS or a.shape[1] < LEAST_CUT or len(b) != a.shape[1]:
        engine.run(np.ascontiguousarray(a), np.ascontiguousarray(b), out, region)
    else:
        for i, j in np.ndindex(out.shape):
            # In a transposed product, facts about the left operand of the user apply to `b`.
            x, y = (b[:, j], a[i]) if region.is_transposed else (a[i], b[:, j])
            out[i, j] = sum_up(products.multiply(x, y), region)


def sum_in_runs(runs: Engine, numbers: NDArray, region: Region) -> np.floating:
    """Return the pairwise sum of numbers of the format."""
    run = RUN if numbers.size < MANY else SHORT_RUN
    whole = numbers.size // run * run
    if whole < LEAST_CUT:
        return _sums_of_columns(runs, numbers[:, np.newaxis], region)[0]
    sums = _sums_of_columns(runs, np.ascontiguousarray(numbers[:whole].reshape(-1, run).T), region)
    if whole < numbers.size:
        sums = np.append(sums, _sums_of_columns(runs, numbers[whole:, np.newaxis], region))
    return sum_in_runs(runs, sums, region)


def _sums_of_columns(runs: Engine, numbers: NDArray, region: Region) -> NDArray[np.floating]:
    """Return the sums of the columns of a matrix, which are multiplied by ones."""
    sums = np.zeros((1, numbers.shape[1]), numbers.dtype)
    runs.run(np.ones((1, numbers.shape[0]), numbers.dtype), numbers, sums, region)
    return sums[0]


def sum_in_numpys_order(step: TreeLoop, largest: int, numbers: NDArray, region: Region) -> np.floating:
    """Return the sum of numbers of the format in NumPy's order, by the loop for the kind of steps of `step`."""
    total = np.empty((1, 1), step.carrier)
    loop = CPU.loops.long_orders.numpys[step.kind]
    loop(np.ascontiguousarray(numbers), total, largest, step.grid, step.sign)
    return total[0, 0]


def kahan(format: FormatLike, rounding: RoundingLike = nearest_even) -> Kahan:
    """Sum with Kahan's compensation: a correction c keeps the rounding error of the last addition.

    All operations are rounded to `format`. For ascending k there are five: p = a * b, y = p - c, t = s + y, c = (t - s)
    - y, s = t. The result is s. Its error is at most (2 u + O(n u^2)) sum |p| for n terms (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd edition, section 4.3). Very long sums of equal terms stop growing near
    1 / u^2 terms: in BF16 at 65,536 ones. After an overflow, inf - inf makes the sum NaN, as in hardware.

    Parameters:
        format: the format of all operations, or its name.
        rounding: the mode of all operations; by default to nearest even.

    Returns:
        The accumulator.

    Raises:
        ValueError: if `format` or `rounding` is invalid.
        ValueError: if `format` has more than 50 bits of precision, except for FP64 in a deterministic mode.

    Examples:
        >>> tenths = np.full(1000, 0.1)
        >>> sf.sum(tenths, inputs=sf.FP16, accumulate=sf.FP16)
        array(105.1875)
        >>> sf.sum(tenths, inputs=sf.FP16, accumulate=sf.kahan(sf.FP16))
        array(100.)
        >>> sf.sum(np.ones(10**6), accumulate=sf.kahan(sf.BF16))
        array(65536.)
    """
    return Kahan(as_format(format), rounding=as_rounding(rounding))


@dataclass(frozen=True, repr=False)
class Kahan(InOneFormat):
    """See :func:`kahan`."""

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "kahan"
    stages: ClassVar[int] = 5
    chunk: ClassVar[int] = 1

    #: An interrupted sum loses its correction.
    resumes: ClassVar[bool] = False

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """Return an exponent that bounds all intermediate values.

        To nearest: t = round(s + y) is no farther from s + y than s is. So t - s is between 0 and 2y, and so is its
        rounding, since 2y is a number of the format; hence |c| <= |y|. Likewise |y| <= |c| + 2|p|, as c is a number of
        the format. So after n products |y| <= 2n max|p|, and |s| <= |initial| + 2 * (2 + 4 + ... + 2n) max|p|.
        In other modes t - s may be a spacing of s, however small y is. Then the bound is the largest number of the
        format, or twice that for a sum of two.
        """
        largest = added.high if initial is None else max(added.high, initial.high)
        if self.rounding.is_to_nearest:
            return largest + 2 * math.ceil(math.log2(terms + 1)) + 2
        return max(largest, self.format.last_binade + 1) + 1


def program_of_neighbours(terms: int) -> NDArray[np.int64]:
    """Return the program that adds neighbours level by level (see `sums/trees.py`); those of long sums are not
    cached."""
    return (_cached_program if terms <= MOST_CACHED_TERMS else _build_program)(terms)


def _build_program(terms: int) -> NDArray[np.int64]:
    if terms < 2:
        return np.zeros(1, np.int64)
    # The left part has the largest power of two of products below the length; the right one may be shorter.
    middle = 1 << (terms - 1).bit_length() - 1
    return joined_programs(program_of_neighbours(middle), program_of_neighbours(terms - middle), middle)


_cached_program = lru_cache(maxsize=64)(_build_program)


def joined_programs(
    left: NDArray[np.int64], right: NDArray[np.int64], middle: int, swaps: bool = False
) -> NDArray[np.int64]:
    """Return the program that adds the sum of terms from `middle` on to the sum of the terms before.

    Both programs number their terms from 0. With `swaps` the right one is computed first.
    """
    # k >= 0 is a term, and -1 - k names the term with the draw that an addition uses.
    right = np.where(right >= 0, right + middle, right - middle)
    return np.concatenate([*((right, left) if swaps else (left, right)), [-1 - middle]])


def pairwise(format: FormatLike, rounding: RoundingLike = nearest_even) -> Pairwise:
    """Round products to `format`, then add neighbours level by level and round each sum to `format`.

    An odd last value is carried up unchanged. The error grows with log2 of the length (Higham, Accuracy and Stability
    of Numerical Algorithms, 2nd edition, section 4.2). The sum of a single product -0 is -0.

    Parameters:
        format: the format of all operations, or its name.
        rounding: the mode of all operations; by default to nearest even.

    Returns:
        The accumulator.

    Raises:
        ValueError: if `format` or `rounding` is invalid.
        ValueError: if `format` has more than 50 bits of precision, except for FP64 in a deterministic mode.

    Examples:
        >>> ones = np.ones(8192)
        >>> sf.sum(ones, accumulate=sf.FP16), sf.sum(ones, accumulate=sf.pairwise(sf.FP16))
        (array(2048.), array(8192.))
    """
    return Pairwise(as_format(format), rounding=as_rounding(rounding))


@dataclass(frozen=True, repr=False)
class Pairwise(InTreeOrder):
    """See :func:`pairwise`."""

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "pairwise"

    def loop(self, device: Device, kind: str, terms: int) -> tuple[Loop, NDArray[np.int64] | None]:
        loop = device.loops.pairwise_loops.pairwise_loops.get(kind)
        return super().loop(device, kind, terms) if loop is None else (loop, None)

    def program(self, terms: int) -> NDArray[np.int64]:
        return program_of_neighbours(terms)

    def engine(self, problem: Problem) -> Engine:
        """Return the fastest loop that is exact for these operands; it may divide long sums into runs."""
        engine = super().engine(problem)
        may_be_cut = problem.device is CPU and not self.rounding.is_stochastic and self.format.has_nan
        if problem.depth < LEAST_CUT or not may_be_cut:
            return engine
        rounded = OperandBounds(problem.products.after_rounding(self.format, self.rounding), self.format, True)
        runs = super().engine(Problem(BOUNDS_OF_ONES, rounded, problem.depth, problem.output, problem.rounding))
        is_inside = problem.a.bounds.are_in_format(self.format)
        products = RoundedProducts(self.format, self.rounding, runs.carrier, is_inside)
        sum_up = partial(sum_few_long_ones, products, partial(sum_in_runs, runs))
        return Around(engine, sum_up, takes_ones=True)

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """Return an exponent that bounds all intermediate values: each level at most doubles it.

        Sums of values up to 2^h are at most 2^(h + 1). Powers of two are numbers of the format, so no rounding exceeds
        them.
        """
        return added.high + math.ceil(math.log2(max(terms, 1))) + 1
