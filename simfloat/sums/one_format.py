"""Sums whose products and steps are all rounded to one format: Kahan's and pairwise ones.

**Few results of many products** (`LongPairwise`, `LongNumPy`). The rounded products are made first. Of pairwise sums
the tree's lower parts do not depend on one another. The products of a run of 2^j are a tree of their own, and the last
run's, which may be shorter, is carried up unchanged. So runs lie side by side, a column each, and are summed as the
columns of a matrix are; then so are their sums. NumPy's order has a loop of its own.

FP16 is rounded to by conversions here, too. On an AMD Zen 3 sums of numbers of FP16 in NumPy's order are 1.08, 1.17,
1.29 and 1.23 times as quick by them as by the steps of other formats, at 2^11, 2^13, 2^16 and 2^20 numbers, pairwise
ones 1.0, 0.9, 1.2 and 1.25 times as quick as on lanes, at 2^11, 2^12, 2^16 and 2^20.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
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
from simfloat.sums.accumulator import Accumulator, Engine, Region, kernel_region, takes_stacks
from simfloat.sums.bounds import Bounds, limited_sums, quickest_step
from simfloat.sums.lanes import order_lanes
from simfloat.sums.operands import BOUNDS_OF_ONES, OperandBounds, Problem
from simfloat.sums.sequential import hardware_engine, hardware_kind

#: Nanoseconds of a rounded operation, by the kind of step; others, the hardware's own, take 0.02.
COSTS = {
    **{"converted": 0.05, "plain": 0.1, "odd": 0.15, "directed": 0.4, "sticky": 0.4},
    **{"likely": 0.3, "drawn_odd": 0.4, "drawn_sums": 0.4, "wide": 30.0},
}


#: Kinds of steps that are as quick as those on lanes.
QUICK_KINDS = ("converted",)


@dataclass(frozen=True, repr=False)
class InOneFormat(Accumulator):
    """A sum whose products and steps are all rounded to `format`.

    A subclass names its `stages`, the roundings of a step that may draw, and the bound `high`. Its loops are those of
    the order of its maker's name in `kernels/sums/orders.py`, unless it has others.
    """

    format: Format
    rounding: Rounding = field(default=nearest_even, kw_only=True)

    __hash__ = Accumulator.__hash__

    def __post_init__(self) -> None:
        check_precision(self.format, self.rounding)

    @classmethod
    def loops(cls, device: Device) -> Mapping[str, Loop]:
        """The machine's loops for this order, by the kind of step."""
        return device.loops.stepwise.stepwise_loops[cls.maker]

    def arguments(self, terms: int) -> tuple[NDArray, ...]:
        """What its loops are given besides, for sums of so many products."""
        return ()

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.format

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """One mode for all operations."""
        return (self.rounding,)

    @abstractmethod
    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """An exponent that bounds all that is met on the way: |x| < 2^high."""

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """What is known of sums of so many such products."""
        _, sums = self.terms_and_sums(products, terms, None)
        return sums.within_format(self.format)

    def terms_and_sums(self, products: Bounds, terms: int, initial: Bounds | None) -> tuple[Bounds, Bounds]:
        """The bounds of the operands of additions, and of their sums."""
        added = products.after_rounding(self.format, self.rounding)
        summands = added
        if initial is not None:
            # Numbers of the format, also where its smallest one is above 1, which stands for zeros.
            smallest = self.format.emin - self.format.mantissa_bits
            summands = added.union(initial._replace(low=max(initial.low, smallest)))
        high = self.high(added, terms, initial)
        sums = Bounds(max(high - summands.low, 1), summands.low, summands.low, high, summands.finite)
        added, sums = limited_sums(added, sums, self.format, self.rounding)
        # Both operands of an addition may be sums: numbers of the format, and multiples of what sums are.
        return added._replace(precision=self.format.precision, low=sums.low), sums

    def engine(self, problem: Problem) -> Engine:
        """The fastest loop that is exact for such operands."""
        if self.rounding == nearest_even and self.format in (FP32, FP64):
            if self.format == FP64 or (problem.a.in_float32 and problem.b.in_float32):
                return _order_loop(self, "native", np.float64 if self.format == FP64 else np.float32, None)
        kind = hardware_kind(problem, self.rounding, self.format)
        if kind is not None:
            return hardware_engine(_order_loop(self, kind, np.float32, None), kind, self.format)
        engine = _quickest_loop(self, problem.a.bounds, problem.b.bounds, problem.depth, problem.initial)
        if engine.kind in QUICK_KINDS:
            return engine
        return order_lanes(self.maker, self.stages, problem, self.format, self.rounding, engine) or engine


def running_sums(
    accumulator: InOneFormat, row: NDArray, column: NDArray, start: NDArray, region: Region
) -> NDArray[np.float64]:
    """The sum of a row (1, k) times a column (k, 1) after every product, made on the CPU; `start` is (1, 1)."""
    # All loops of an order have the same bits, so the one for any operands and any grid is
    # enough here: one loop an order is compiled for running sums, not one a kind of step.
    wide = _order_loop(accumulator, "wide", np.float64, None)
    sums = np.zeros((column.size, 1))
    with np.errstate(invalid="ignore"):  # signalling NaN that are converted
        a, b, sums[:1] = (on_cpu(x).astype(np.float64, "C", copy=False) for x in (row, column, start))
    where, seed = kernel_region(region)
    loop = CPU.loops.running_sums.running_loops[accumulator.maker]
    loop(a, b, sums, wide.numbers, wide.sign, wide.pair, where, seed)
    return sums[:, 0]


class OrderLoop(NamedTuple):
    """A loop with the numbers it reads."""

    carrier: FloatType
    accumulator: InOneFormat
    kind: str
    numbers: NDArray[np.floating]
    sign: np.floating
    pair: bool
    cost: float
    takes_stacks: bool

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        where, seed = kernel_region(region)
        machine = region.machine
        own = self.accumulator.arguments(a.shape[1])
        if machine is not CPU:
            own = tuple(map(machine.arrays.asarray, own))
        loop = self.accumulator.loops(machine)[self.kind]
        loop(a, b, out, *own, self.numbers, self.sign, self.pair, where, seed)

    def with_scaled_grids(self, factor: np.float32) -> OrderLoop:
        """The loop with its grid times a power of two, `factor`."""
        return self._replace(numbers=kernels.rounding.grid.scale_limits(self.numbers, factor))


@lru_cache(maxsize=1024)
def _quickest_loop(accumulator: InOneFormat, a: Bounds, b: Bounds, depth: int, initial: Bounds | None) -> OrderLoop:
    """The fastest loop that is exact for sums of so many products."""
    terms, sums = accumulator.terms_and_sums(a.product_bounds(b), depth, initial)
    format, rounding = accumulator.format, accumulator.rounding
    step = quickest_step((format,), rounding, a, b, terms, sums, initial, format)
    if step is None:
        return _order_loop(accumulator, "wide", np.float64, None)
    return _order_loop(accumulator, *step, step.grid_type)


@lru_cache(maxsize=1024)
def _order_loop(
    accumulator: InOneFormat, kind: str, carrier: FloatType, top: int | None, grid_type: FloatType | None = None
) -> OrderLoop:
    """The loop of a kind of step; the numbers of its grid are of `grid_type`, or of the carrier's type."""
    format, rounding = accumulator.format, accumulator.rounding
    if top is None:
        numbers = kernels.rounding.grid.pack_grid_in_type(format, rounding, carrier)
    else:
        numbers = kernels.rounding.grid.pack_grid_below(format, rounding, top, grid_type or carrier)
    sign = carrier(rounding.zero_sum)
    pair = not odd_suffices(format, rounding)
    cost = accumulator.stages * COSTS.get(kind, 0.02)
    return OrderLoop(carrier, accumulator, kind, numbers, sign, pair, cost, not rounding.is_stochastic)


#: Products of a result from which on it is cut into runs, the products of a run, and the results that are few.
LEAST_CUT, RUN, FEW_RESULTS = 1 << 11, 1 << 8, 16


class RoundedProducts(NamedTuple):
    """Products that are rounded to a format before they are summed."""

    format: Format
    rounding: Rounding
    carrier: FloatType
    left_is_in_format: bool  # whether the left operand's numbers are those of the format

    def multiply(self, x: NDArray, y: NDArray) -> NDArray[np.floating]:
        """Those of two vectors."""
        if self.left_is_in_format and are_ones(y):
            return x.astype(self.carrier, copy=False)
        target = Target(self.format, self.rounding, self.carrier)
        # One number without strides stays one, so that as many need not be read.
        return compute_in_thread("multiply", [x, y[:1] if y.strides == (0,) else np.ascontiguousarray(y)], target)


def sum_one_by_one(
    sum_up: Callable[[NDArray], Any], products: RoundedProducts, a: NDArray, b: NDArray, out: NDArray, swapped: bool
) -> None:
    """Put `sum_up` of the rounded products of each row of a (m, k) and column of b (k, n) into out (m, n); `swapped` if
    `a` is the user's right operand, so that what is known of the left one is said of `b`.
    """
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            x, y = (b[:, j], a[i]) if swapped else (a[i], b[:, j])
            out[i, j] = sum_up(products.multiply(x, y))


def are_ones(y: NDArray) -> bool:
    """Whether all numbers are 1; of those without strides, which are one number, only that is read."""
    return bool((y[:1] == 1).all() if y.strides == (0,) else (y == 1).all())


class LongPairwise(NamedTuple):
    """Sums by an engine, and of few results in runs by one that sums numbers of the format as they are."""

    engine: Engine
    runs: Engine
    products: RoundedProducts
    takes_ones: bool = True

    @property
    def carrier(self) -> FloatType:
        return self.engine.carrier

    @property
    def cost(self) -> float:
        return self.engine.cost

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        if out.size > FEW_RESULTS:
            self.engine.run(np.ascontiguousarray(a), np.ascontiguousarray(b), out, region)
            return
        sum_one_by_one(lambda numbers: self._sum(numbers, region), self.products, a, b, out, region.is_transposed)

    def _sum(self, numbers: NDArray, region: Region) -> np.floating:
        """The pairwise sum of numbers of the format."""
        whole = numbers.size // RUN * RUN
        if whole < LEAST_CUT:
            return self._sums_of_columns(numbers[:, np.newaxis], region)[0]
        sums = self._sums_of_columns(np.ascontiguousarray(numbers[:whole].reshape(-1, RUN).T), region)
        if whole < numbers.size:
            sums = np.append(sums, self._sums_of_columns(numbers[whole:, np.newaxis], region))
        return self._sum(sums, region)

    def _sums_of_columns(self, numbers: NDArray, region: Region) -> NDArray[np.floating]:
        """The sums of the columns of a matrix: ones are the factors."""
        sums = np.zeros((1, numbers.shape[1]), numbers.dtype)
        self.runs.run(np.ones((1, numbers.shape[0]), numbers.dtype), numbers, sums, region)
        return sums[0]


class LongNumPy(NamedTuple):
    """Sums in NumPy's order by an engine, and of few results and many products by a loop that adds their products."""

    engine: Engine
    kind: str  # of the steps of that loop, with the numbers it reads
    numbers: NDArray[np.floating]
    sign: np.floating
    largest: int
    products: RoundedProducts
    takes_ones: bool = True

    @property
    def carrier(self) -> FloatType:
        return self.engine.carrier

    @property
    def cost(self) -> float:
        return self.engine.cost

    @property
    def takes_stacks(self) -> bool:
        return takes_stacks(self.engine)

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        if region.machine is not CPU:
            self.engine.run(a, b, out, region)
            return
        if out.size > FEW_RESULTS or a.shape[1] < LEAST_CUT or len(b) != a.shape[1]:
            self.engine.run(np.ascontiguousarray(a), np.ascontiguousarray(b), out, region)
            return
        sum_one_by_one(self._sum, self.products, a, b, out, region.is_transposed)

    def _sum(self, numbers: NDArray) -> np.floating:
        """The sum of numbers of the format in NumPy's order."""
        total = np.empty((1, 1), self.products.carrier)
        loop = CPU.loops.long_orders.numpys[self.kind]
        loop(np.ascontiguousarray(numbers), total, self.largest, self.numbers, self.sign)
        return total[0, 0]


def kahan(format: FormatLike, rounding: RoundingLike = nearest_even) -> Kahan:
    """Kahan's sum: beside the sum s a correction c carries what the last addition lost; all rounded to `format`.

    For ascending k: p = a * b, y = p - c, t = s + y, c = (t - s) - y, s = t, five roundings; the result is s. Its
    error is 2 u sum |p| whatever the length (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
    section 4.3). After an overflow inf - inf makes the sum NaN, as it does in hardware.

    Raises ValueError for what is no format or no rounding mode, and for formats of more than 50 bits of precision,
    FP64 under nearest_even excepted.

    Examples:
        >>> tenths = np.full(1000, 0.1)
        >>> sf.sum(tenths, inputs=sf.FP16, accumulate=sf.FP16)
        array(105.1875)
        >>> sf.sum(tenths, inputs=sf.FP16, accumulate=sf.kahan(sf.FP16))
        array(100.)
    """
    return Kahan(as_format(format), rounding=as_rounding(rounding))


@dataclass(frozen=True, repr=False)
class Kahan(InOneFormat):
    """See :func:`kahan`."""

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "kahan"
    stages: ClassVar[int] = 5
    chunk: ClassVar[int] = 1

    #: The correction is lost where a sum is interrupted.
    resumes: ClassVar[bool] = False

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """To nearest: t = round(s + y) is no farther from s + y than s is, so t - s lies between 0 and 2y, and so does
        its rounding, for 2y is a number of the format; hence |c| <= |y|. Likewise |y| <= |c| + 2|p|, as c is a number
        of the format, so after n products |y| <= 2n max|p|, and |s| <= |initial| + 2 * (2 + 4 + ... + 2n) max|p|.
        In other modes, where t - s may be a spacing of s, however small y is, the format's largest number is the
        bound, and twice that of a sum of two.
        """
        largest = added.high if initial is None else max(added.high, initial.high)
        if self.rounding.is_to_nearest:
            return largest + 2 * math.ceil(math.log2(terms + 1)) + 2
        return max(largest, self.format.last_binade + 1) + 1


def pairwise(format: FormatLike, rounding: RoundingLike = nearest_even) -> Pairwise:
    """Products rounded to `format`, then neighbours added level by level, each sum rounded to it.

    An odd last one is carried up unchanged, so the error grows with log2 of the length (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd edition, section 4.2). A single product -0 gives -0.

    Raises ValueError for what is no format or no rounding mode, and for formats of more than 50 bits of precision,
    FP64 under nearest_even excepted.

    Examples:
        >>> ones = np.ones(8192)
        >>> sf.sum(ones, accumulate=sf.FP16), sf.sum(ones, accumulate=sf.pairwise(sf.FP16))
        (array(2048.), array(8192.))
    """
    return Pairwise(as_format(format), rounding=as_rounding(rounding))


@dataclass(frozen=True, repr=False)
class Pairwise(InOneFormat):
    """See :func:`pairwise`."""

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "pairwise"
    stages: ClassVar[int] = 2  # the sums, then the products

    @classmethod
    def loops(cls, device: Device) -> Mapping[str, Loop]:
        return device.loops.pairwise_loops.pairwise_loops

    def engine(self, problem: Problem) -> Engine:
        """The fastest loop that is exact for such operands, which may cut long sums into runs."""
        engine = super().engine(problem)
        may_be_cut = problem.device is CPU and not self.rounding.is_stochastic and self.format.has_nan
        if problem.depth < LEAST_CUT or not may_be_cut:
            return engine
        rounded = OperandBounds(problem.products.after_rounding(self.format, self.rounding), self.format, True)
        runs = super().engine(Problem(BOUNDS_OF_ONES, rounded, problem.depth, problem.output, problem.rounding))
        is_inside = problem.a.bounds.are_in_format(self.format)
        products = RoundedProducts(self.format, self.rounding, runs.carrier, is_inside)
        return LongPairwise(engine, runs, products)

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """A level's sums are at most twice as large: of numbers up to 2^h they lie up to 2^(h + 1), and powers of two
        are numbers of the format, which no rounding passes."""
        return added.high + math.ceil(math.log2(max(terms, 1))) + 1
