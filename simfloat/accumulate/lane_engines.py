"""Sums in float32 whose steps are rounded on lanes (`kernels/lane_steps.py`): nothing is asked of their operands' bits.

What is asked is range. The loops multiply the left operand and the sums by the power of two that brings the format's
smallest normal number to float32's; they have to be float32 numbers before and after. Either operand may be the left
one, since products of few columns are summed as those of the transposed matrices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.bounds import Bounds
from simfloat.accumulate.carrier import CARRIERS
from simfloat.accumulate.engine import Region
from simfloat.accumulate.operand_bounds import OperandBounds, Problem
from simfloat.arithmetic.machines import Machine, machine_of
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import FP32, Format, Rounding, nearest_even

SINGLE = CARRIERS[0]

#: Nanoseconds a product, by the loop; others take 0.1.
COSTS = {"fused_toward_zero": 0.04, "fused_nearest_away": 0.05, "fused_toward_zero_watched": 0.05}


class LaneLoop(NamedTuple):
    """A loop whose steps are rounded on lanes, with the numbers it reads."""

    step: str
    grid: NDArray[np.float64]
    products: NDArray[np.float64]
    sign: float
    cost: float
    carrier: FloatType = np.float32
    is_direct: bool = True

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        machine_of(out).loops.rounded_tiles.steps[self.step](a, b, out, self.grid, self.products, self.sign)


def lane_loop(problem: Problem, format: Format, rounding: Rounding, products: Format | None) -> LaneLoop | None:
    """The loop on lanes for sums in a format, with products in one if they are rounded; None if there is none that is
    right and quick.
    """
    if not problem.machine.loops.processor.ROUNDS_LANES:
        return None
    loop = _loop_of(problem.machine, format, rounding, products)
    if loop is None:
        return None
    if products is not None and not (products.has_nan or (problem.a.bounds.finite and problem.b.bounds.finite)):
        return None
    lift = SINGLE.lowest + SINGLE.precision - 1 - format.emin
    return loop if all(_fits(operand, lift) for operand in (problem.a, problem.b)) else None


def _fits(operand: OperandBounds, lift: int) -> bool:
    """Whether numbers are float32's, as they are and times 2^lift."""
    if not operand.in_float32:
        return False
    return lift == 0 or SINGLE.holds(_lifted(operand.bounds, lift))


def _lifted(bounds: Bounds, lift: int) -> Bounds:
    return bounds._replace(low=bounds.low + lift, least=bounds.least + lift, high=bounds.high + lift)


@lru_cache(maxsize=1024)
def _loop_of(machine: Machine, format: Format, rounding: Rounding, products: Format | None) -> LaneLoop | None:
    """The loop for operands that fit."""
    formats = (format,) if products is None else (format, products)
    if rounding.is_stochastic or not all(_can_be_cut(each, format, rounding) for each in formats):
        return None
    if rounding == nearest_even and products is not None:
        return None  # the hardware's roundings, or float32's with another, are as quick
    mode = "toward_positive" if rounding.mode == "toward_negative" else rounding.mode
    loop = f"{'fused' if products is None else 'unfused'}_{mode}"
    steps = machine.loops.rounded_tiles.steps
    if loop not in steps or not _overflows_as_float32(format, rounding):
        loop += "_watched"
    if loop not in steps:
        return None
    grids = [kernels.grid.numbers(each, rounding) for each in formats]
    return LaneLoop(loop, grids[0], grids[-1], rounding.zero_sum, COSTS.get(loop, 0.1))


def _can_be_cut(format: Format, other: Format, rounding: Rounding) -> bool:
    """Whether float32's images, without some of their last bits, are the format's where it has the range of `other`."""
    kept = SINGLE.precision - (2 if rounding.mode in ("nearest_even", "nearest_away") else 1)
    lift = SINGLE.lowest + SINGLE.precision - 1 - format.emin
    return (
        kernels.grid.plain(format, rounding)
        and format.has_negative_zero
        and format.mantissa_bits <= kept
        and format.emin == other.emin
        and abs(lift) < SINGLE.highest - 1
        and format.emax + lift < SINGLE.highest
    )


def _overflows_as_float32(format: Format, rounding: Rounding) -> bool:
    """Whether a number beyond the format's largest is one beyond float32's, and becomes what that does."""
    return (format == FP32 or kernels.grid.has_exponents_of_float32(format)) and not rounding.saturates
