"""Sums of sums: runs of products by one accumulator, their results by another."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate._sequential import as_accumulator
from simfloat.accumulate.accumulator import Accumulator, whole_steps
from simfloat.accumulate.engine import Engine, Region
from simfloat.accumulate.facts import ONES, Facts
from simfloat.accumulate.known import UNITY, Known, Problem
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import Format, FormatLike, Rounding, nearest_even
from simfloat.formats.integers import is_integer

#: Run results that are kept before the outer accumulator takes them: 8 MiB of float64.
KEPT = 1 << 20

#: Stages of random bits that an accumulator may use; a result and the casts of operands have others.
MOST_STAGES = 250


def blocked(size: int, inner: Accumulator | FormatLike, outer: Accumulator | FormatLike) -> Blocked:
    """Each run of `size` products is summed from zero by `inner`; `outer` sums the results, as simfloat.sum does.

    The last run may be short. Both may be any accumulator but `exact`, and a format means `sequential`. With
    ``inner=tensor_core("hopper", E4M3)`` and ``outer=FP32`` this is the promotion of partial sums of DeepSeek-V3
    (arXiv 2412.19437, section 3.3.2); with two formats, the chunked sums of Wang et al. (NeurIPS 2018).

    Raises ValueError unless `size` is a positive integer, and for exact sums, which have no format.

    Examples:
        >>> ones = np.ones(8192)
        >>> sf.dot(ones, ones, accumulate=sf.FP16)
        array(2048.)
        >>> sf.dot(ones, ones, accumulate=sf.blocked(64, sf.FP16, sf.FP32))
        array(8192.)
    """
    if not is_integer(size, 1):
        raise ValueError(f"size must be a positive integer, the products of a run; got {size!r}.")
    return Blocked(int(size), inner=as_accumulator(inner), outer=as_accumulator(outer))


@dataclass(frozen=True, repr=False)
class Blocked(Accumulator):
    """See :func:`blocked`."""

    size: int
    inner: Accumulator = field(kw_only=True)
    outer: Accumulator = field(kw_only=True)

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "blocked"

    def __post_init__(self) -> None:
        _format(self.inner), _format(self.outer)
        if self.outer.scales:
            raise ValueError(f"outer sums run results, which have no block scales; got {self.outer!r}.")
        if self.inner.scales and self.size % self.inner.scales[0]:
            block = self.inner.scales[0]
            raise ValueError(f"A run must consist of whole blocks of {block} products, got size={self.size}.")
        if self.stages > MOST_STAGES:
            raise ValueError(f"Sums of sums draw from at most {MOST_STAGES} stages of random bits; nest fewer of them.")

    @property
    def is_matrix_unit(self) -> bool:  # type: ignore[override]
        """Whether one of both is, so that not all operands are taken."""
        return self.inner.is_matrix_unit or self.outer.is_matrix_unit

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
        """The stages of the outer accumulator, and then those of the inner one."""
        return self.outer.stages + self.inner.stages

    def steps(self, terms: int) -> int:
        """Every run has steps of its own; so has the sum of run results, at other stages."""
        runs = -(-terms // self.size)
        return whole_steps(self.roundings, max(runs * self.inner.steps(self.size), self.outer.steps(runs)))

    @property
    def scales(self) -> tuple[int, Format] | None:
        """The scales of the inner accumulator."""
        return self.inner.scales

    @property
    def chunk(self) -> int | None:
        """The products of as many runs as the outer sum takes at a time."""
        return None if self.outer.chunk is None else self.size * self.outer.chunk

    @property
    def resumes(self) -> bool:
        """Whether the outer sum does, and no step draws."""
        return self.outer.resumes and not any(rounding.is_stochastic for rounding in self.roundings)

    def for_inputs(self, a: Format | None, b: Format | None) -> Blocked:
        """The inner accumulator for such operands, and the outer one for its results."""
        inner = self.inner.for_inputs(a, b)
        outer = self.outer.for_inputs(inner.result, inner.result)
        return self if inner is self.inner and outer is self.outer else Blocked(self.size, inner=inner, outer=outer)

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products."""
        runs = self.inner.sums(products, self.size)
        return self.outer.sums(ONES.times(runs), -(-terms // self.size))

    def engine(self, problem: Problem) -> Engine:
        """The engines of both accumulators."""
        within, outside = _format(self.inner), _format(self.outer)
        depth, runs = min(self.size, problem.depth), -(-problem.depth // self.size)
        inner = self.inner.engine(Problem(problem.a, problem.b, depth, within, scales=problem.scales))
        results = Known(None, within, inner.carrier is np.float32, find=partial(self._results, problem))
        outer = self.outer.engine(Problem(results, UNITY, runs, outside, nearest_even, start=problem.start))
        blocks = self.size // self.inner.scales[0] if self.inner.scales else 0
        return Runs(
            self.size, blocks, inner, outer, within, self.outer.stages, self.inner.steps(self.size), self._draws
        )

    def _results(self, problem: Problem) -> Facts:
        return _sums_of_a_run(self.inner, problem.products, self.size)

    @property
    def _draws(self) -> bool:
        return any(rounding.is_stochastic for rounding in self.outer.roundings)


@lru_cache(maxsize=1024)
def _sums_of_a_run(accumulator: Accumulator, products: Facts, terms: int) -> Facts:
    return accumulator.sums(products, terms)


def _format(accumulator: Accumulator) -> Format:
    """The format of its sums, which both accumulators need."""
    if accumulator.result is None:
        raise ValueError(f"A blocked sum takes accumulators with a format of their own, got {accumulator!r}.")
    return accumulator.result


class Freeing(Protocol):
    """Takes scales off sums."""

    def free(self, sums: NDArray, a: NDArray, b: NDArray) -> NDArray:
        """The sums (rows, columns) without the scales a of the rows and b of the columns."""


class Runs(NamedTuple):
    """Sums runs of some rows, then the results of the runs."""

    size: int
    blocks: int  # scaled blocks a run
    inner: Engine
    outer: Engine
    within: Format  # of run results
    outer_stages: int
    steps: int  # that a run draws from
    draws: bool  # the outer sums draw, so rows of the result are not summed as one
    freeing: Freeing | None = None  # what takes the scales of its block off a run's sum

    @property
    def carrier(self) -> FloatType:
        """The wider of both."""
        return np.float32 if self.inner.carrier is self.outer.carrier is np.float32 else np.float64

    @property
    def cost(self) -> float:
        return self.inner.cost + self.outer.cost / self.size

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        count, columns = -(-b.shape[0] // self.size), b.shape[1]
        a, b = a.astype(self.inner.carrier, copy=False), b.astype(self.inner.carrier, copy=False)
        ones = np.ones((1, count), self.outer.carrier, like=b)
        rows = max(1, KEPT // max(count * columns, 1))
        for top in range(0, len(a), rows):
            within = slice(top, min(top + rows, len(a)))
            first = region.first + top * region.row_step
            scales = region.scales and (region.scales[0][within], region.scales[1])
            sums = self._sums_of_runs(a[within], b, count, region._replace(first=first, scales=scales))
            for row, part in self._parts(sums):
                place = slice(top + row, top + row + part.shape[1])
                totals = np.array(out[place], self.outer.carrier, order="C", like=out).reshape(1, -1)
                # Run results are left operands, as in simfloat.sum: the tile is of the transposed product.
                at = region._replace(first=first + row * region.row_step, swapped=True, scales=None)
                self.outer.run(ones, part.reshape(count, totals.size), totals, at)
                out[place] = totals.reshape(part.shape[1:])

    def _sums_of_runs(self, a: NDArray, b: NDArray, count: int, region: Region) -> NDArray:
        """The results of all runs: (runs, rows, columns), in the outer engine's type."""
        if self.freeing:
            return self._freed_sums(a, b, count, region)
        sums = np.zeros((count, len(a), b.shape[1]), self.inner.carrier, like=b)
        for run in range(count):
            self._sum_run(a, b, run, sums[run], region)
        self._check_no_nan(sums)
        return sums.astype(self.outer.carrier, copy=False)

    def _freed_sums(self, a: NDArray, b: NDArray, count: int, region: Region) -> NDArray:
        """The same of runs that are scaled blocks."""
        assert self.freeing and region.scales
        freed = np.zeros((count, len(a), b.shape[1]), self.outer.carrier, like=b)
        for run in range(count):
            sums = np.zeros(freed.shape[1:], self.inner.carrier, like=b)
            self._sum_run(a, b, run, sums, region._replace(scales=None))
            freed[run] = self.freeing.free(sums, region.scales[0][:, run], region.scales[1][run])
        self._check_no_nan(freed)
        return freed

    def _check_no_nan(self, sums: NDArray) -> None:
        if not self.within.has_nan and np.isnan(sums).any():
            raise ValueError(f"{self.within}, the format of a run's sum, has no NaN, but a run sums to NaN.")

    def _sum_run(self, a: NDArray, b: NDArray, run: int, out: NDArray, region: Region) -> None:
        """Sum one run into zeros."""
        within = slice(run * self.size, (run + 1) * self.size)
        at = region._replace(stage=region.stage + self.outer_stages, step=region.step + run * self.steps)
        if region.scales:
            blocks = slice(run * self.blocks, (run + 1) * self.blocks)
            at = at._replace(scales=(_contiguous(region.scales[0][:, blocks]), region.scales[1][blocks]))
        self.inner.run(_contiguous(a[:, within]), b[within], out, at)

    def _parts(self, sums: NDArray) -> list[tuple[int, NDArray]]:
        """(first row, results) of what the outer accumulator takes at once."""
        if not self.draws:
            return [(0, sums)]
        return [(i, _contiguous(sums[:, i : i + 1])) for i in range(sums.shape[1])]


def _contiguous(x: NDArray) -> NDArray:
    return np.ascontiguousarray(x, like=x)
