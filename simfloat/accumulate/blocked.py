"""Sums of sums: runs of products by one accumulator, their results by another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator, Engine, Operand, Operands, Place, as_accumulator
from simfloat.accumulate.facts import ONES, Facts
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import Format, Rounding, nearest_even

#: Run results that are kept before the outer accumulator takes them: 8 MiB of float64.
KEPT = 1 << 20


def blocked(size: int, inner: Accumulator | Format | str, outer: Accumulator | Format | str) -> Blocked:
    """Each run of `size` products is summed from zero by `inner`; `outer` sums the results, as simfloat.sum does.

    The last run may be short. Both may be any accumulator but `exact`, and a format means `sequential`. With
    ``inner=tensor_core("hopper", E4M3)`` and ``outer=FP32`` this is the promotion of partial sums of DeepSeek-V3
    (arXiv 2412.19437, section 3.3.2); with two formats, the chunked sums of Wang et al. (NeurIPS 2018).

    Raises ValueError unless `size` is a positive integer, and for exact sums, which have no format.
    """
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise ValueError(f"size must be a positive integer, the products of a run; got {size!r}.")
    inner, outer = as_accumulator(inner), as_accumulator(outer)
    _format(inner), _format(outer)
    if outer.scales:
        raise ValueError(f"outer sums run results, which have no block scales; got {outer!r}.")
    if inner.scales and size % inner.scales[0]:
        raise ValueError(f"A run must consist of whole blocks of {inner.scales[0]} products, got size={size}.")
    return Blocked(int(size), inner, outer)


@dataclass(frozen=True)
class Blocked:
    """See :func:`blocked`."""

    size: int
    inner: Accumulator
    outer: Accumulator

    @property
    def result(self) -> Format | None:
        """The format of the outer sums."""
        return self.outer.result

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """Those of both accumulators."""
        return (*self.inner.roundings, *self.outer.roundings)

    @property
    def stages(self) -> int:
        """Those of the outer accumulator, and then those of the inner one."""
        return self.outer.stages + self.inner.stages

    def steps(self, terms: int) -> int:
        """Every run has steps of its own; so has the sum of run results, at other stages."""
        runs = -(-terms // self.size)
        return max(runs * self.inner.steps(self.size), self.outer.steps(runs))

    @property
    def scales(self) -> tuple[int, Format] | None:
        """Those of the inner accumulator."""
        return self.inner.scales

    def sums(self, products: Facts, terms: int) -> Facts:
        """What is known of sums of so many such products."""
        runs = self.inner.sums(products, self.size)
        return self.outer.sums(ONES.times(runs), -(-terms // self.size))

    def engine(self, operands: Operands) -> Engine:
        """The engines of both accumulators."""
        x, y, scales = operands.x, operands.y, operands.scales
        runs = -(-operands.depth // self.size)
        within, outside = _format(self.inner), _format(self.outer)
        inner = self.inner.engine(Operands(x, y, min(self.size, operands.depth), within, nearest_even, scales))
        facts = self.inner.sums(operands.products, self.size)
        sums = Operand(np.empty(0, inner.carrier), facts, within)
        ones = Operand(np.empty(0, np.float32), ONES)
        outer = self.outer.engine(Operands(sums, ones, runs, outside, nearest_even))
        # Run results are the left operands, as in simfloat.sum; the tile is of the transposed product.
        linear = not any(rounding.is_stochastic for rounding in self.outer.roundings)
        blocks = self.size // self.inner.scales[0] if self.inner.scales else 0
        return _Runs(self.size, blocks, inner, outer, self.outer.stages, self.inner.steps(self.size), linear)

    def __repr__(self) -> str:
        return f"blocked({self.size}, inner={self.inner!r}, outer={self.outer!r})"

    def __str__(self) -> str:
        return f"blocked({self.size}, inner={self.inner}, outer={self.outer})"


def _format(accumulator: Accumulator) -> Format:
    """The format of its sums, which both accumulators need."""
    if accumulator.result is None:
        raise ValueError(f"A blocked sum takes accumulators with a format of their own, got {accumulator!r}.")
    return accumulator.result


class _Runs(NamedTuple):
    """Sums runs of some rows, then the results of the runs."""

    size: int
    blocks: int  # scaled blocks a run
    inner: Engine
    outer: Engine
    outer_stages: int
    steps: int  # that a run draws from
    linear: bool  # the outer sums draw nothing, so several rows of the result can be summed as one

    @property
    def carrier(self) -> FloatType:
        """The wider of both."""
        return np.float32 if self.inner.carrier is self.outer.carrier is np.float32 else np.float64

    @property
    def cost(self) -> float:
        return self.inner.cost + self.outer.cost / self.size

    def run(self, a: NDArray, b: NDArray, out: NDArray, place: Place) -> None:
        count, columns = -(-b.shape[0] // self.size), b.shape[1]
        a, b = a.astype(self.inner.carrier, copy=False), b.astype(self.inner.carrier, copy=False)
        ones = np.ones((1, count), self.outer.carrier)
        rows = max(1, KEPT // max(count * columns, 1))
        for top in range(0, len(a), rows):
            within = slice(top, min(top + rows, len(a)))
            here = place._replace(first=place.first + top * place.row_step)
            if place.scales:
                here = here._replace(scales=(place.scales[0][within], place.scales[1]))
            sums = self._sums_of_runs(a[within], b, count, here)
            sums = sums.astype(self.outer.carrier, copy=False)
            for first, part in self._parts(sums):
                width = part.shape[1] * columns
                totals = np.zeros((1, width), self.outer.carrier)
                at = here._replace(first=here.first + first * place.row_step, swapped=True, scales=None)
                self.outer.run(ones, part.reshape(count, width), totals, at)
                out[top + first : top + first + part.shape[1]] = totals.reshape(part.shape[1:])

    def _sums_of_runs(self, a: NDArray, b: NDArray, count: int, place: Place) -> NDArray:
        """The results of all runs: (runs, rows, columns)."""
        sums = np.zeros((count, len(a), b.shape[1]), self.inner.carrier)
        for run in range(count):
            within = slice(run * self.size, (run + 1) * self.size)
            at = place._replace(stage=place.stage + self.outer_stages, step=place.step + run * self.steps)
            if place.scales:
                blocks = slice(run * self.blocks, (run + 1) * self.blocks)
                at = at._replace(scales=(np.ascontiguousarray(place.scales[0][:, blocks]), place.scales[1][blocks]))
            self.inner.run(np.ascontiguousarray(a[:, within]), b[within], sums[run], at)
        return sums

    def _parts(self, sums: NDArray) -> list[tuple[int, NDArray]]:
        """(first row, results) of what the outer accumulator takes at once."""
        if self.linear:
            return [(0, sums)]
        return [(i, np.ascontiguousarray(sums[:, i : i + 1])) for i in range(sums.shape[1])]
