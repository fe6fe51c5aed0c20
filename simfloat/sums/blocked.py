"""Sums of sums: sums of runs of products, and of lanes as vector instructions compute them.

An engine sums the products of each run, and then the results of the runs. `SumOfSums` is the common base of both kinds
of accumulators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import CPU, Device
from simfloat.arithmetic.operands import FloatType
from simfloat.common import check_count, is_integer
from simfloat.formats import FP32, Format, Rounding, as_format
from simfloat.formats.catalog import FormatLike
from simfloat.sums.accumulator import Accumulator, Engine, Region, around_operands, takes_stacks, whole_steps
from simfloat.sums.bounds import ONES, Bounds
from simfloat.sums.operands import BOUNDS_OF_ONES, OperandBounds, Problem
from simfloat.sums.sequential import as_accumulator

#: The number of run results that are stored before the outer accumulator sums them: 8 MiB of float64; on a GPU, which
#: has more memory and launches a kernel for every further part, 512 MiB. With more rows at a time, sums of runs need a
#: thirtieth of the launches on a GPU.
RESULTS_AT_ONCE, RESULTS_AT_ONCE_ON_GPU = 1 << 20, 1 << 26

#: Length of the cached vector of ones that run results are multiplied by.
CACHED_ONES = 1 << 10


def check_run_results(sums: NDArray, run_format: Format) -> None:
    """Raise ValueError if run results contain a NaN although their format has none."""
    if not run_format.has_nan and np.isnan(sums).any():
        raise ValueError(f"{run_format}, the format of a run's sum, has no NaN, but a run sums to NaN.")


def rows_at_once(results: int, device: Device) -> int:
    """Return the number of rows of a product to sum at a time, if the runs of a row have this number of results."""
    return max(1, (RESULTS_AT_ONCE if device is CPU else RESULTS_AT_ONCE_ON_GPU) // max(results, 1))


class RunLengths(NamedTuple):
    """The division of products into runs: of `size` products each, the last of which may be short.

    With `lanes`, there are that many runs, and the first ones may be longer by one product.
    """

    size: int
    lanes: int = 0

    def counts_and_sizes(self, depth: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return two pairs (number of runs, products of each): for the first runs, and for the others."""
        if not self.lanes:
            return (depth // self.size, self.size), (int(depth % self.size > 0), depth % self.size)
        count = max(min(self.lanes, depth), 1)
        size, longer = divmod(depth, count)
        return (longer, size + 1), (count - longer if size else 0, size)

    def count_runs(self, depth: int) -> int:
        """Return the number of runs."""
        return sum(runs for runs, _ in self.counts_and_sizes(depth))

    def slices(self, depth: int) -> list[slice]:
        """Return the products of each run as slices."""
        places, start = list[slice](), 0
        for runs, size in self.counts_and_sizes(depth):
            places += [slice(start + run * size, start + (run + 1) * size) for run in range(runs)]
            start += runs * size
        return places


@dataclass(eq=False)
class InRuns(ABC):
    """An engine that sums runs of products by one engine, and their results by another one."""

    lengths: RunLengths
    inner: Engine
    outer: Engine
    run_format: Format  # the format of run results

    @property
    def carrier(self) -> FloatType:
        """The wider of both dtypes."""
        return np.float32 if self.inner.carrier is self.outer.carrier is np.float32 else np.float64

    @property
    def cost(self) -> float:
        return self.inner.cost + self.outer.cost / self.lengths.size

    @abstractmethod
    def results(self, a: NDArray, b: NDArray, region: Region) -> NDArray:
        """Return the results of the runs of one row and one column, as a column."""


class StackedRunsEngine(InRuns):
    """Runs that are summed only by compiled loops: the runs of all products of a stack are summed in one call."""

    takes_stacks = True

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        depth = a.shape[1]
        products = b.shape[0] // depth if depth else 1
        rows = len(out) // max(products, 1)
        count = self.lengths.count_runs(depth)
        # Results of runs are stored until the outer sum takes them all. If there are too many, a stack is summed
        # product by product, and then a product is halved by rows.
        if count * out.size <= RESULTS_AT_ONCE or (products == 1 and rows < 2):
            self._run(a, b, out, products, count, region)
        elif products > 1:
            for i in range(products):
                place, terms = slice(i * rows, (i + 1) * rows), slice(i * depth, (i + 1) * depth)
                self.run(a[place] if len(a) == len(out) else a, b[terms], out[place], region)
        else:
            for place in (slice(rows // 2), slice(rows // 2, rows)):
                self.run(a[place], b, out[place], region)

    def _run(self, a: NDArray, b: NDArray, out: NDArray, products: int, count: int, region: Region) -> None:
        """Sum products and rows of which all run results can be stored."""
        carrier = self.outer.carrier
        # A single left factor serves all products. It is repeated, so that it can be divided into runs like their
        # factors.
        if len(a) < len(out):
            a = np.tile(a, (products, 1))
        results = self._sums_of_runs(a, b, products, region)
        totals = out if out.dtype == carrier else out.astype(carrier)
        self.outer.run(_ones(count, carrier), results.reshape(count, out.size), totals.reshape(1, out.size), region)
        if totals is not out:
            out[:] = totals

    def results(self, a: NDArray, b: NDArray, region: Region) -> NDArray:
        return self._sums_of_runs(a, b, 1, region)[:, 0]

    def _sums_of_runs(self, a: NDArray, b: NDArray, products: int, region: Region) -> NDArray:
        """Return the results of all runs, (runs, rows, columns), in the dtype of the outer engine."""
        (rows, depth), n = a.shape, b.shape[1]
        # Runs of one length are stacked, so that the inner loop is entered once for all of them: entering it takes half
        # a microsecond.
        (long, size), (short, _) = self.lengths.counts_and_sizes(depth)
        sums = np.zeros((long + short, rows, n), self.inner.carrier)
        left, right = a.reshape(products, rows // max(products, 1), depth), b.reshape(products, depth, n)
        if not short:
            self._sum(left, right, sums, region)
        else:  # runs of another length
            self._sum(left[:, :, : long * size], right[:, : long * size], sums[:long], region)
            self._sum(left[:, :, long * size :], right[:, long * size :], sums[long:], region)
        check_run_results(sums, self.run_format)
        return sums.astype(self.outer.carrier, copy=False)

    def _sum(self, left: NDArray, right: NDArray, sums: NDArray, region: Region) -> None:
        """Sum equal runs of the products of matrices (products, m, k) and (products, k, n)."""
        if not sums.size:
            return
        (products, m, depth), runs, n = left.shape, len(sums), right.shape[2]
        size, carrier = depth // runs, self.inner.carrier
        # All first runs, one product after the other, then all second runs, and so on.
        factors = left.reshape(products, m, runs, size).transpose(2, 0, 1, 3)
        terms = right.reshape(products, runs, size, n).transpose(1, 0, 2, 3)
        rows = runs * products * m
        a = np.ascontiguousarray(factors, carrier).reshape(rows, size)
        b = np.ascontiguousarray(terms, carrier).reshape(runs * products * size, n)
        self.inner.run(a, b, sums.reshape(rows, n), region)


def _ones(count: int, carrier: FloatType) -> NDArray:
    """Return the ones that run results are multiplied by. They are not read-only: that would be another Numba type."""
    return _cached_ones(carrier)[:, :count] if count <= CACHED_ONES else np.ones((1, count), carrier)


@lru_cache(maxsize=2)
def _cached_ones(carrier: FloatType) -> NDArray:
    return np.ones((1, CACHED_ONES), carrier)


class ScaleRemoval(Protocol):
    """Removes scales from sums."""

    @property
    def total(self) -> Accumulator:
        """The accumulator of the results."""

    def remove_scales(self, sums: NDArray, a: NDArray, b: NDArray) -> NDArray:
        """Return the sums (rows, columns) without the scales a of the rows and b of the columns."""


@dataclass(eq=False)
class RunsEngine(InRuns):
    """Sums the runs of some rows at a time, then the results of the runs."""

    outer_stages: int
    steps: int  # the steps that a run reserves for its random bits
    draws: bool = False  # the outer sums are stochastic, so rows of the result are not summed as one
    blocks: int = 0  # the scaled blocks of a run
    scale_removal: ScaleRemoval | None = None  # removes the scales of its block from the sum of a run

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        columns, places = b.shape[1], self.lengths.slices(b.shape[0])
        count = len(places)
        a, b = a.astype(self.inner.carrier, copy=False), b.astype(self.inner.carrier, copy=False)
        ones = np.ones_like(b, self.outer.carrier, order="C", shape=(1, count))
        rows = rows_at_once(count * columns, region.machine)
        for top in range(0, len(a), rows):
            within = slice(top, min(top + rows, len(a)))
            first = region.first + top * region.row_step
            scales = region.scales and (region.scales[0][within], region.scales[1])
            sums = self._sums_of_runs(a[within], b, places, region._replace(first=first, scales=scales))
            for row, part in self._parts(sums):
                place = slice(top + row, top + row + part.shape[1])
                totals = np.array(out[place], self.outer.carrier, order="C", like=out).reshape(1, -1)
                # Run results are left operands, as in simfloat.sum: the tile belongs to the transposed product.
                at = region._replace(first=first + row * region.row_step, is_transposed=True, scales=None)
                self.outer.run(ones, part.reshape(count, totals.size), totals, at)
                out[place] = totals.reshape(part.shape[1:])

    def results(self, a: NDArray, b: NDArray, region: Region) -> NDArray:
        a, b = a.astype(self.inner.carrier, copy=False), b.astype(self.inner.carrier, copy=False)
        return self._sums_of_runs(a, b, self.lengths.slices(b.shape[0]), region)[:, 0]

    def _sums_of_runs(self, a: NDArray, b: NDArray, places: list[slice], region: Region) -> NDArray:
        """Return the results of all runs, (runs, rows, columns), in the dtype of the outer engine."""
        if self.scale_removal:
            return self._sums_without_scales(a, b, places, region)
        sums = np.zeros((len(places), len(a), b.shape[1]), self.inner.carrier, like=b)
        for run, within in enumerate(places):
            self._sum_run(a, b, run, within, sums[run], region)
        check_run_results(sums, self.run_format)
        return sums.astype(self.outer.carrier, copy=False)

    def _sums_without_scales(self, a: NDArray, b: NDArray, places: list[slice], region: Region) -> NDArray:
        """Return the results of runs that are scaled blocks, without their scales."""
        assert self.scale_removal and region.scales
        freed = np.zeros((len(places), len(a), b.shape[1]), self.outer.carrier, like=b)
        for run, within in enumerate(places):
            sums = np.zeros(freed.shape[1:], self.inner.carrier, like=b)
            self._sum_run(a, b, run, within, sums, region._replace(scales=None))
            freed[run] = self.scale_removal.remove_scales(sums, region.scales[0][:, run], region.scales[1][run])
        check_run_results(freed, self.run_format)
        return freed

    def _sum_run(self, a: NDArray, b: NDArray, run: int, within: slice, out: NDArray, region: Region) -> None:
        """Sum one run into zeros."""
        at = region._replace(stage=region.stage + self.outer_stages, step=region.step + run * self.steps)
        if region.scales:
            blocks = slice(run * self.blocks, (run + 1) * self.blocks)
            at = at._replace(scales=(_contiguous(region.scales[0][:, blocks]), region.scales[1][blocks]))
        self.inner.run(_contiguous(a[:, within]), b[within], out, at)

    def _parts(self, sums: NDArray) -> list[tuple[int, NDArray]]:
        """Return (first row, results) for each part that the outer accumulator sums at a time."""
        # A region gives the positions of the elements of one row of the result. If the outer sum is stochastic, each
        # row needs its own region. Otherwise all rows are summed as one, in one call.
        if not self.draws:
            return [(0, sums)]
        return [(i, _contiguous(sums[:, i : i + 1])) for i in range(sums.shape[1])]


def interleave(lanes: int, a: NDArray, b: NDArray, out: NDArray, region: Region) -> tuple[NDArray, NDArray, NDArray]:
    """Reorder products, so that run i has the products i, i + lanes, i + 2 lanes, ..."""
    depth = a.shape[1]
    order = np.concatenate([np.arange(lane, depth, lanes, like=b) for lane in range(lanes)])
    # The right factors of a stack are below one another: each is reordered separately.
    stacked = (order + np.arange(0, len(b), max(depth, 1), like=b)[:, np.newaxis]).reshape(-1)
    return _contiguous(a[:, order]), _contiguous(b[stacked]), out


def _contiguous(x: NDArray) -> NDArray:
    return np.ascontiguousarray(x, like=x)


#: The number of stages of random bits that an accumulator may use; a result and the casts of operands have other
#: stages.
MOST_STAGES = 250


@dataclass(frozen=True, repr=False)
class SumOfSums(Accumulator):
    """Sums of runs of products, each from zero, by `inner`; `outer` sums their results, as simfloat.sum does."""

    inner: Accumulator = field(kw_only=True)
    outer: Accumulator = field(kw_only=True)

    __hash__ = Accumulator.__hash__

    def __post_init__(self) -> None:
        _result_format(self.inner), _result_format(self.outer)
        if self.outer.scales:
            raise ValueError(f"outer sums run results, which have no block scales; got {self.outer!r}.")
        if self.stages > MOST_STAGES:
            raise ValueError(f"Sums of sums draw from at most {MOST_STAGES} stages of random bits; nest fewer of them.")

    @abstractmethod
    def lengths(self, terms: int) -> RunLengths:
        """Return the division of this number of products into runs."""

    @property
    def is_matrix_unit(self) -> bool:  # type: ignore[override]
        """True if one of both is a matrix unit, which accepts only some operands."""
        return self.inner.is_matrix_unit or self.outer.is_matrix_unit

    @property
    def needs_narrow_operands(self) -> bool:
        """True if one of both needs them. The outer one sums values, not products, so it counts only as a matrix
        unit."""
        return self.is_matrix_unit or self.inner.needs_narrow_operands

    @property
    def result(self) -> Format | None:
        """The format of the outer sums."""
        return self.outer.result

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The modes of both accumulators."""
        return (*self.inner.roundings, *self.outer.roundings)

    @property
    def stages(self) -> int:
        """The stages of the outer accumulator, followed by the stages of the inner one."""
        return self.outer.stages + self.inner.stages

    def steps(self, terms: int) -> int:
        """Return the number of steps: every run has its own steps, and the outer sum has steps at other stages."""
        lengths = self.lengths(terms)
        runs = lengths.count_runs(terms)
        return whole_steps(self.roundings, max(runs * self.inner.steps(lengths.size), self.outer.steps(runs)))

    @property
    def takes_initial(self) -> bool:
        """True if the outer sum can start from an initial value."""
        return self.outer.takes_initial

    def for_inputs(self, a: Format | None, b: Format | None) -> Accumulator:
        """Return the sum with the inner accumulator for these operands, and the outer one for its results."""
        inner = self.inner.for_inputs(a, b)
        outer = self.outer.for_inputs(inner.result, inner.result)
        return self if inner is self.inner and outer is self.outer else replace(self, inner=inner, outer=outer)

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return bounds on a sum of `terms` products with the given bounds."""
        lengths = self.lengths(terms)
        return self.outer.sums(ONES.product_bounds(self.inner.sums(products, lengths.size)), lengths.count_runs(terms))

    def engine(self, problem: Problem) -> Engine:
        """Return an engine that consists of the engines of both accumulators."""
        within, outside, lengths = _result_format(self.inner), _result_format(self.outer), self.lengths(problem.depth)
        depth, machine = min(lengths.size, problem.depth), problem.device
        inner = self.inner.engine(Problem(problem.a, problem.b, depth, within, scales=problem.scales, device=machine))
        # Bounds on the results follow from the bounds on the products. Most outer engines are chosen without them, so
        # they are computed only on demand.
        find = partial(self._results, problem, lengths.size)
        results = OperandBounds(None, within, inner.carrier is np.float32, find=find)
        runs = lengths.count_runs(problem.depth)
        outer = self.outer.engine(
            Problem(results, BOUNDS_OF_ONES, runs, outside, initial=problem.initial, device=machine)
        )
        # Compiled loops take all runs of all matrices of a stack in one call each: for runs of a few products, the
        # calls dominate the time.
        if takes_stacks(inner) and takes_stacks(outer) and machine is CPU:
            return StackedRunsEngine(lengths, inner, outer, within)
        blocks = lengths.size // self.inner.scales[0] if self.inner.scales else 0
        draws, steps = any(rounding.is_stochastic for rounding in self.outer.roundings), self.inner.steps(lengths.size)
        return RunsEngine(lengths, inner, outer, within, self.outer.stages, steps, draws, blocks)

    def _results(self, problem: Problem, size: int) -> Bounds:
        return _sums_of_a_run(self.inner, problem.products, size)


@lru_cache(maxsize=1024)
def _sums_of_a_run(accumulator: Accumulator, products: Bounds, terms: int) -> Bounds:
    return accumulator.sums(products, terms)


def _result_format(accumulator: Accumulator) -> Format:
    """Return the format of its sums, which both accumulators need."""
    if accumulator.result is None:
        raise ValueError(
            f"A sum of sums needs accumulators that have a format, got {accumulator!r}. To round the sum of a part "
            "once, use simfloat.fused(size, 40, simfloat.FP32, rounding=simfloat.nearest_even): it keeps 40 "
            "bits below the largest product."
        )
    return accumulator.result


def blocked(size: int, inner: Accumulator | FormatLike, outer: Accumulator | FormatLike | None = None) -> Blocked:
    """Sum runs of `size` products with `inner`, and then the results of the runs with `outer`.

    Each run starts from zero, and the last run may be shorter. `outer` adds the results as simfloat.sum adds numbers.
    A sequential `outer` does not round a result before it adds it. ``sequential(f, products=g)`` first rounds each
    result to g, like a split-K product that stores its partial sums in g. With ``inner=tensor_core("hopper", E4M3)``
    and ``outer=FP32``, partial sums are promoted as in DeepSeek-V3 (arXiv 2412.19437, section 3.3.2). Two formats give
    the chunked sums of Wang et al. (NeurIPS 2018).

    Parameters:
        size: the number of products of a run.
        inner, outer: accumulators other than `exact`; a format means `sequential(format)`. Both are required.

    Returns:
        The accumulator.

    Raises:
        ValueError: if `size` is not a positive integer.
        ValueError: if `inner` or `outer` is not an accumulator, or is an exact sum, which has no format.

    Examples:
        >>> ones = np.ones(8192)
        >>> sf.dot(ones, ones, accumulate=sf.FP16)
        array(2048.)
        >>> sf.dot(ones, ones, accumulate=sf.blocked(64, sf.FP16, sf.FP32))
        array(8192.)
    """
    if not is_integer(size, 1):
        raise ValueError(f"size must be a positive integer, the products of a run; got {size!r}.")
    outer = _checked_outer("blocked", size, inner, outer)
    return Blocked(int(size), inner=as_accumulator(inner), outer=as_accumulator(outer))


def _checked_outer(maker: str, count: int, inner: Any, outer: Accumulator | FormatLike | None) -> Any:
    """Return `outer`; raise ValueError if it is None. It has no default, because it decides the result."""
    if outer is None:
        raise ValueError(
            f"{maker} needs outer, the accumulator of the partial sums: write {maker}({count}, {inner}, FP32), or "
            f"{maker}({count}, {inner}, {inner}) to add them like the products."
        )
    return outer


def systolic(rows: int, columns: int, format: FormatLike = FP32, total: FormatLike | None = None) -> Blocked:
    """Sum as a systolic array of `rows` times `columns` cells, in which weights stay and partial sums move down.

    Each row multiplies one element of k and adds it to the partial sum, which starts from zero in the first row and is
    rounded to `format` in every cell. The sum of each tile of `rows` products leaves the last row and is added to the
    sum of the tiles before, in the format `total`. This is ``blocked(rows, format, total)``. The columns compute other
    elements of the result, so their number changes no bit. If sums stay in their cells and operands move, use
    ``sequential(format)``.

    Parameters:
        rows: the number of rows, along k.
        columns: the number of columns, along the columns of the result.
        format: the format of the partial sums in the cells.
        total: the format of the sum over tiles; by default `format`.

    Returns:
        The accumulator.

    Raises:
        ValueError: if `rows` or `columns` is not a positive integer, or if a format is invalid.

    Source: Kung and Leiserson, Systolic arrays (1979); Jouppi et al., In-datacenter performance analysis of a tensor
    processing unit, ISCA 2017.

    Examples:
        >>> sf.systolic(128, 128) == sf.blocked(128, sf.FP32, sf.FP32)
        True
        >>> sf.sum(np.ones(8192), accumulate=sf.systolic(128, 128, sf.BF16, total=sf.FP32))
        array(8192.)
    """
    check_count("rows", rows)
    check_count("columns", columns)
    return blocked(rows, as_format(format), as_format(format if total is None else total))


@dataclass(frozen=True, repr=False)
class Blocked(SumOfSums):
    """See :func:`blocked`."""

    size: int

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "blocked"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.scales and self.size % self.inner.scales[0]:
            block = self.inner.scales[0]
            raise ValueError(f"A run must consist of whole blocks of {block} products, got size={self.size}.")

    def lengths(self, terms: int) -> RunLengths:
        """Return runs of `size`."""
        return RunLengths(self.size)

    @property
    def scales(self) -> tuple[int, Format] | None:
        """The scales of the inner accumulator."""
        return self.inner.scales

    @property
    def chunk(self) -> int | None:
        """The number of products of the runs that the outer sum takes at a time."""
        return None if self.outer.chunk is None else self.size * self.outer.chunk

    @property
    def resumes(self) -> bool:
        """True if the outer sum resumes and no step is stochastic."""
        return self.outer.resumes and not any(rounding.is_stochastic for rounding in self.roundings)


def lanes(count: int, inner: Accumulator | FormatLike, outer: Accumulator | FormatLike | None = None) -> SumOfLanes:
    """Sum products in `count` interleaved partial sums (lanes), and then the lanes, as vector instructions do.

    Product k goes to lane k mod `count`. Each lane is summed from zero by `inner`. Then `outer` adds the lanes in
    order: one after the other (a format), pairwise or in the order of a :func:`tree`. If there are fewer products than
    lanes, each product has its own lane.

    Parameters:
        count: the number of lanes.
        inner, outer: accumulators other than `exact`; a format means `sequential(format)`. Both are required.

    Returns:
        The accumulator.

    Raises:
        ValueError: if `count` is not a positive integer.
        ValueError: if `inner` or `outer` is not an accumulator, or is an exact sum, which has no format.
        ValueError: if `inner` reads block scales: these need runs, see :func:`blocked`.

    Examples:
        >>> x = [2048.0, 1.0, 1.0, 1.0]
        >>> sf.sum(x, accumulate=sf.FP16), sf.sum(x, accumulate=sf.lanes(2, sf.FP16, sf.FP16))
        (array(2048.), array(2050.))
    """
    if not is_integer(count, 1):
        raise ValueError(f"count must be a positive integer, the number of lanes; got {count!r}.")
    outer = _checked_outer("lanes", count, inner, outer)
    return SumOfLanes(int(count), inner=as_accumulator(inner), outer=as_accumulator(outer))


@dataclass(frozen=True, repr=False)
class SumOfLanes(SumOfSums):
    """See :func:`lanes`."""

    count: int

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "lanes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.scales:
            raise ValueError(f"Scaled blocks are runs, not lanes: write blocked(size, ...) for {self.inner!r}.")

    def lengths(self, terms: int) -> RunLengths:
        """Return as many runs as there are lanes."""
        return RunLengths(max(-(-terms // self.count), 1), self.count)

    def engine(self, problem: Problem) -> Engine:
        """Return an engine that reorders the products, so that lanes are runs."""
        return around_operands(super().engine(problem), partial(interleave, self.count), stacks=True)
