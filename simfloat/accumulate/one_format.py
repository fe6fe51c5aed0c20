"""Sums whose products and steps are all rounded to one format, as pairwise and compensated ones are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.bounds import Bounds, limited_sums
from simfloat.accumulate.carrier import quickest_step
from simfloat.accumulate.engine import Engine, Region, kernel_region
from simfloat.accumulate.lane_engines import order_lanes
from simfloat.accumulate.native_steps import hardware_engine, hardware_kind
from simfloat.accumulate.operand_bounds import Problem
from simfloat.arithmetic.loops import Loop
from simfloat.arithmetic.machines import CPU, Device, on_cpu
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.target import check_precision, odd_suffices
from simfloat.formats import FP32, FP64, Format, Rounding, nearest_even

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
    the order of its maker's name in `kernels/order_steps.py`, unless it has others.
    """

    format: Format
    rounding: Rounding = field(default=nearest_even, kw_only=True)

    __hash__ = Accumulator.__hash__

    def __post_init__(self) -> None:
        check_precision(self.format, self.rounding)

    @classmethod
    def loops(cls, device: Device) -> Mapping[str, Loop]:
        """The machine's loops for this order, by the kind of step."""
        return device.loops.stepwise.loops[cls.maker]

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
    loop = CPU.loops.running_sums.loops[accumulator.maker]
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
        return self._replace(numbers=kernels.grid.with_scaled_grids(self.numbers, factor))


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
    """The loop of a kind of step; the numbers of its grid are of the type `of_grid`, or of the carrier's."""
    format, rounding = accumulator.format, accumulator.rounding
    if top is None:
        numbers = kernels.grid.pack_grid_in_type(format, rounding, carrier)
    else:
        numbers = kernels.grid.pack_grid_below(format, rounding, top, grid_type or carrier)
    sign = carrier(rounding.zero_sum)
    pair = not odd_suffices(format, rounding)
    cost = accumulator.stages * COSTS.get(kind, 0.02)
    return OrderLoop(carrier, accumulator, kind, numbers, sign, pair, cost, not rounding.is_stochastic)
