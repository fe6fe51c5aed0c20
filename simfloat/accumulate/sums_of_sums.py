"""What accumulators share whose sums are sums of other sums: of runs, or of lanes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from simfloat.accumulate.accumulator import Accumulator, whole_steps
from simfloat.accumulate.blocked_engines import RunLengths, RunsEngine, StackedRunsEngine
from simfloat.accumulate.bounds import ONES, Bounds
from simfloat.accumulate.engine import Engine, takes_stacks
from simfloat.accumulate.operand_bounds import BOUNDS_OF_ONES, OperandBounds, Problem
from simfloat.arithmetic.machines import CPU
from simfloat.formats import Format, Rounding

#: Stages of random bits that an accumulator may use; a result and the casts of operands have others.
MOST_STAGES = 250


@dataclass(frozen=True, repr=False)
class SumOfSums(Accumulator):
    """Sums of some products each, from zero, by `inner`; their results are summed by `outer`, as simfloat.sum does."""

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
        """How so many products are cut into runs."""

    @property
    def is_matrix_unit(self) -> bool:  # type: ignore[override]
        """Whether one of both is, so that not all operands are taken."""
        return self.inner.is_matrix_unit or self.outer.is_matrix_unit

    @property
    def needs_narrow_operands(self) -> bool:
        """Whether one of both does; the outer one sums numbers, not products, unless it is a unit."""
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
        """The stages of the outer accumulator, and then those of the inner one."""
        return self.outer.stages + self.inner.stages

    def steps(self, terms: int) -> int:
        """Every run has steps of its own; so has the sum of run results, at other stages."""
        lengths = self.lengths(terms)
        runs = lengths.count_runs(terms)
        return whole_steps(self.roundings, max(runs * self.inner.steps(lengths.size), self.outer.steps(runs)))

    @property
    def takes_initial(self) -> bool:
        """Whether the outer sum can start from an addend."""
        return self.outer.takes_initial

    def for_inputs(self, a: Format | None, b: Format | None) -> Accumulator:
        """The inner accumulator for such operands, and the outer one for its results."""
        inner = self.inner.for_inputs(a, b)
        outer = self.outer.for_inputs(inner.result, inner.result)
        return self if inner is self.inner and outer is self.outer else replace(self, inner=inner, outer=outer)

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """What is known of sums of so many such products."""
        lengths = self.lengths(terms)
        return self.outer.sums(ONES.product_bounds(self.inner.sums(products, lengths.size)), lengths.count_runs(terms))

    def engine(self, problem: Problem) -> Engine:
        """The engines of both accumulators."""
        within, outside, lengths = _result_format(self.inner), _result_format(self.outer), self.lengths(problem.depth)
        depth, machine = min(lengths.size, problem.depth), problem.device
        inner = self.inner.engine(Problem(problem.a, problem.b, depth, within, scales=problem.scales, device=machine))
        # Bounds of the results follow from those of the products, and most outer
        # engines are chosen without them: they are found when somebody asks.
        find = partial(self._results, problem, lengths.size)
        results = OperandBounds(None, within, inner.carrier is np.float32, find=find)
        runs = lengths.count_runs(problem.depth)
        outer = self.outer.engine(
            Problem(results, BOUNDS_OF_ONES, runs, outside, initial=problem.initial, device=machine)
        )
        # Loops alone take all runs of all matrices of a stack in one
        # call each: runs of a few products are bound by calls.
        if takes_stacks(inner) and takes_stacks(outer) and machine is CPU:
            return StackedRunsEngine(lengths, inner, outer, within)
        blocks = lengths.size // self.inner.scales[0] if self.inner.scales else 0
        draws, steps = any(rounding.is_stochastic for rounding in self.outer.roundings), self.inner.steps(lengths.size)
        return RunsEngine(lengths, blocks, inner, outer, within, self.outer.stages, steps, draws)

    def _results(self, problem: Problem, size: int) -> Bounds:
        return _sums_of_a_run(self.inner, problem.products, size)


@lru_cache(maxsize=1024)
def _sums_of_a_run(accumulator: Accumulator, products: Bounds, terms: int) -> Bounds:
    return accumulator.sums(products, terms)


def _result_format(accumulator: Accumulator) -> Format:
    """The format of its sums, which both accumulators need."""
    if accumulator.result is None:
        raise ValueError(f"A sum of sums takes accumulators with a format of their own, got {accumulator!r}.")
    return accumulator.result
