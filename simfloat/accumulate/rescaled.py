"""Sums by blocks of scaled operands: each block's sum is freed of its two scales before it joins the running total."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate._exact import fractions_for
from simfloat.accumulate._sequential import SequentialSum
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.blocked_engines import RunLengths, RunsEngine
from simfloat.accumulate.bounds import Bounds
from simfloat.accumulate.engine import Engine
from simfloat.accumulate.operand_bounds import BOUNDS_OF_ONES, OperandBounds, Problem
from simfloat.accumulate.scales import Scales
from simfloat.accumulate.sums_of_sums import SumOfSums
from simfloat.arithmetic.operations import compute_in_thread, results_rounded_to_odd
from simfloat.arithmetic.target import Target, carrier_of, odd_suffices
from simfloat.formats import Format, Rounding, nearest_even


def engine_by_blocks(accumulator: Accumulator, problem: Problem, scales: Scales) -> Engine:
    """The engine that sums each block from zero by the accumulator, divides by its two scales, and rounds and adds it.

    Both happen in the accumulator's format and mode, one block after the other; an exact sum is rounded in the end.
    """
    format, divide = accumulator.result, bool(scales.divide)
    if format is None:
        return fractions_for(problem, scales.block)
    mode, blocks = _rounding_of_results(accumulator), -(-problem.depth // scales.block)
    machine, depth = problem.device, min(scales.block, problem.depth)
    # Blocks start from zero: an initial value goes to the outer sum, which adds blocks without their scales.
    inner = accumulator.engine(Problem(problem.a, problem.b, depth, format, device=machine))
    _check_draws(format, mode)
    freeing = _ScaleRemoval("divide" if divide else "multiply", format, mode)
    outer = freeing.total.engine(
        Problem(freeing.results, BOUNDS_OF_ONES, blocks, format, initial=problem.initial, device=machine)
    )
    stages, steps = freeing.total.stages, accumulator.steps(scales.block)
    return RunsEngine(RunLengths(scales.block), 0, inner, outer, format, stages, steps, mode.is_stochastic, freeing)


def _rounding_of_results(accumulator: Accumulator) -> Rounding:
    """The mode in which an accumulator's results are rounded."""
    while isinstance(accumulator, SumOfSums):
        accumulator = accumulator.outer
    return getattr(accumulator, "rounding", None) or nearest_even


class _ScaleRemoval(NamedTuple):
    """How sums of blocks are freed of their scales, and what is known of the results."""

    operation: str  # divide or multiply
    format: Format
    rounding: Rounding

    @property
    def total(self) -> SequentialSum:
        """The accumulator of the results. One that draws rounds them too, for it knows the place of a draw."""
        return SequentialSum(
            self.format, rounding=self.rounding, products=self.format if self.rounding.is_stochastic else None
        )

    @property
    def results(self) -> OperandBounds:
        """What is known of the results."""
        if self.rounding.is_stochastic:
            return OperandBounds(Bounds(53, -1074, -1074, 1024, False), None, False)
        smallest = self.format.emin - self.format.mantissa_bits
        bounds = Bounds(self.format.precision, smallest, smallest, self.format.last_binade + 1, False)
        return OperandBounds(bounds, self.format, self.format.fits_float32)

    def remove_scales(self, sums: NDArray, a: NDArray, b: NDArray) -> NDArray:
        """The sums (rows, columns) of a block without its scales: a of the rows, b of the columns."""
        # Scales have at most 24 bits: their products are float64 numbers.
        scales = a.astype(np.float64)[:, np.newaxis] * b.astype(np.float64)
        if not self.rounding.is_stochastic:
            target = Target(self.format, self.rounding, carrier_of(self.format))
            return compute_in_thread(self.operation, [sums, scales], target)
        return results_rounded_to_odd(self.operation, [sums, scales])


def _check_draws(format: Format, rounding: Rounding) -> None:
    """Raise ValueError if a draw would read more of a quotient than float64 holds."""
    if rounding.is_stochastic and not odd_suffices(format, rounding):
        raise ValueError(
            f"Sums of blocks that are divided by their scales are known to 53 bits, too few to round them to {format} "
            f"with {rounding.bits} random bits; use stochastic(bits={max(51 - format.precision, 1)}) at most."
        )
