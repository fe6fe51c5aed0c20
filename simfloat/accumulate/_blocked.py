"""Sums of sums: runs of products by one accumulator, their results by another."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np

from simfloat.accumulate._sequential import as_accumulator
from simfloat.accumulate.accumulator import Accumulator, whole_steps
from simfloat.accumulate.blocked_engines import RunsEngine, StackedRunsEngine
from simfloat.accumulate.bounds import ONES, Bounds
from simfloat.accumulate.engine import Engine, is_direct
from simfloat.accumulate.operand_bounds import UNITY, OperandBounds, Problem
from simfloat.arithmetic.machines import CPU
from simfloat.checks import is_integer
from simfloat.formats import Format, Rounding
from simfloat.formats.format_names import FormatLike

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

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """What is known of sums of so many such products."""
        runs = self.inner.sums(products, self.size)
        return self.outer.sums(ONES.times(runs), -(-terms // self.size))

    def engine(self, problem: Problem) -> Engine:
        """The engines of both accumulators."""
        within, outside = _format(self.inner), _format(self.outer)
        depth, runs = min(self.size, problem.depth), -(-problem.depth // self.size)
        machine = problem.machine
        inner = self.inner.engine(Problem(problem.a, problem.b, depth, within, scales=problem.scales, machine=machine))
        results = OperandBounds(None, within, inner.carrier is np.float32, find=partial(self._results, problem))
        outer = self.outer.engine(Problem(results, UNITY, runs, outside, initial=problem.initial, machine=machine))
        if is_direct(inner) and is_direct(outer) and machine is CPU:
            return StackedRunsEngine(self.size, inner, outer, within)
        blocks = self.size // self.inner.scales[0] if self.inner.scales else 0
        return RunsEngine(
            self.size, blocks, inner, outer, within, self.outer.stages, self.inner.steps(self.size), self._draws
        )

    def _results(self, problem: Problem) -> Bounds:
        return _sums_of_a_run(self.inner, problem.products, self.size)

    @property
    def _draws(self) -> bool:
        return any(rounding.is_stochastic for rounding in self.outer.roundings)


@lru_cache(maxsize=1024)
def _sums_of_a_run(accumulator: Accumulator, products: Bounds, terms: int) -> Bounds:
    return accumulator.sums(products, terms)


def _format(accumulator: Accumulator) -> Format:
    """The format of its sums, which both accumulators need."""
    if accumulator.result is None:
        raise ValueError(f"A blocked sum takes accumulators with a format of their own, got {accumulator!r}.")
    return accumulator.result
