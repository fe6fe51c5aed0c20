"""Sources of numbers that are rounded: arrays, or the exact results of operations."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.arithmetic.loops import Loop
from simfloat.arithmetic.machines import Machine
from simfloat.arithmetic.nan_causes import causes_of_operation, causes_of_rounding
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.plan import Plan, plan_for
from simfloat.arithmetic.target import odd_suffices
from simfloat.arithmetic.threads import scratch
from simfloat.formats import FP16, FP32, FP64, Format, Rounding, nearest_even

ZERO = np.zeros(1)


class Elements(NamedTuple):
    """The elements of a vector, to be rounded as they are."""

    x: NDArray
    makes_blocks: bool = False
    cost: float = 0.3

    @property
    def carrier(self) -> FloatType:
        """The vector's own type."""
        return self.x.dtype.type

    def exact(self, start: int, stop: int) -> NDArray:
        return self.x[start:stop]

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        x = self.x
        plan.loop(x if stop - start == x.size else x[start:stop], words, out, plan.numbers)

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        plan.loop(exact, words, out, plan.numbers)

    def unchanged(self, start: int, stop: int, out: NDArray) -> int:
        return 0

    def causes(self, start: int, exact: NDArray, out: NDArray) -> NDArray[np.int64]:
        return causes_of_rounding(exact, out)


class Computed:
    """Exact results of an operation on vectors of one length; a vector of length 1 is a scalar."""

    __slots__ = ("route", "vectors", "size")

    carrier: FloatType = np.float64
    makes_blocks = True

    @staticmethod
    def loop(kernel: str, machine: Machine) -> Loop | None:
        """The loop that rounds results where it makes them, for sources that have one."""
        return None

    def __init__(self, route: Route, vectors: list[NDArray], size: int) -> None:
        self.route, self.vectors, self.size = route, vectors + route.padding, size

    @property
    def cost(self) -> float:
        """A few instructions, or a series."""
        return 0.5 if OPERATIONS[self.route.kernel].accuracy == "exact" else 5.0

    def block(self, start: int, stop: int) -> list[NDArray]:
        """Three operands of the elements from start to stop."""
        if stop - start == self.size:
            return self.vectors
        return [vector if vector.size == 1 else vector[start:stop] for vector in self.vectors]

    def exact(self, start: int, stop: int) -> NDArray:
        size, route = stop - start, self.route
        exact = scratch("exact", size, np.float64, route.plan.machine)
        # Small arrays are one block, and each call takes its share of their time.
        a, b, c = self.vectors if size == self.size else self.block(start, stop)
        route.exact(a, b, c, route.sign, exact)
        return exact

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        plan.loop(self.exact(start, stop), words, out, plan.numbers)

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        plan.loop(exact, words, out, plan.numbers)

    def unchanged(self, start: int, stop: int, out: NDArray) -> int:
        if self.route.kernel not in ("add", "subtract"):
            return 0
        a, b, _ = self.vectors if stop - start == self.size else self.block(start, stop)
        sign, either = (-1.0 if self.route.kernel == "subtract" else 1.0), self.route.operation != "update"
        return int(self.route.plan.machine.loops.counting.count_unchanged(a, b, out, sign, either))

    def causes(self, start: int, exact: NDArray, out: NDArray) -> NDArray[np.int64]:
        return causes_of_operation(self.route.kernel, self.block(start, start + exact.size), exact, out)


class _Apart(Computed):
    """Results that are not rounded from the exact ones in one float64."""

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        self.round_block(plan, start, start + out.size, words, out)


class Paired(_Apart):
    """Results rounded from pairs of float64, where one float64 has too few bits."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        loop = plan.machine.loops.elementwise.paired_results[self.route.kernel]
        loop(*self.block(start, stop), self.route.sign, words, out, plan.numbers)


class Converted(Computed):
    """Results in FP16 of operations on float32 operands, rounded by the hardware in one go."""

    makes_blocks = False

    @staticmethod
    def loop(kernel: str, machine: Machine) -> Loop:
        return machine.loops.elementwise.converted_results[kernel]

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        a, b, c = self.vectors if stop - start == self.size else self.block(start, stop)
        self.route.loop(a, b, c, out)


class AtOnce(Computed):
    """Results of operations on float32 operands to nearest even, each rounded where it is made."""

    makes_blocks = False

    @staticmethod
    def loop(kernel: str, machine: Machine) -> Loop:
        return machine.loops.elementwise.rounded_results[kernel]

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        a, b, _ = self.vectors if stop - start == self.size else self.block(start, stop)
        self.route.loop(a, b, out, plan.numbers)


class Double(_Apart):
    """Results in FP64, rounded by a kernel."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        result = scratch("native", stop - start, self.carrier, plan.machine)
        loop = plan.machine.loops.elementwise.double_results[self.route.kernel]
        loop(*self.block(start, stop), self.route.sign, result)
        plan.loop(result, words, out, plan.numbers)


class Native(_Apart):
    """Results in FP64, rounded by the hardware."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        # Results that go to an array of another type are made in their own first.
        own = out.dtype == self.carrier
        result = out if own else scratch("native", stop - start, self.carrier, plan.machine)
        a, b, c = self.block(start, stop)
        plan.machine.loops.elementwise.native_results[self.route.kernel](a, b, c, result)
        if not (own and plan.is_copy):
            plan.loop(result, words, out, plan.numbers)


class NativeSingle(Native):
    """Results in FP32 of float32 operands, rounded by the hardware."""

    carrier = np.float32


class Route(NamedTuple):
    """How results of an operation are made and rounded."""

    operation: str
    kernel: str  # the operation whose kernel it uses
    source: type[Computed]
    plan: Plan
    exact: Loop  # writes the exact results, rounded to odd
    loop: Any  # the source's own, which rounds results where it makes them
    sign: float  # of an exact zero sum of unlike signs
    padding: list[NDArray]  # zeros for the operands that it lacks: kernels take three


@cache
def route_of(operation: str, format: Format, rounding: Rounding, single: bool, machine: Machine) -> Route:
    """How an operation's results are made and rounded on a machine; `single` if all operands are float32."""
    kernel = OPERATIONS[operation].computes or operation
    source = _source_of(kernel, format, rounding, single, machine)
    exact = machine.loops.elementwise.exact_results[kernel]
    padding = [ZERO] * (3 - len(OPERATIONS[kernel].operands))
    plan = plan_for(format, rounding, source.carrier, machine)
    return Route(operation, kernel, source, plan, exact, source.loop(kernel, machine), rounding.zero_sum, padding)


def _source_of(kernel: str, format: Format, rounding: Rounding, single: bool, machine: Machine) -> type[Computed]:
    is_native = kernel in machine.loops.elementwise.native_results
    if rounding.mode == "nearest_even" and format == FP64:
        return Native if is_native else Double
    if rounding.mode == "nearest_even" and format == FP32 and single and is_native:
        return NativeSingle
    if not odd_suffices(format, rounding):
        return Paired
    if rounding == nearest_even and format == FP16 and single and machine.loops.processor.CONVERTS_FP16:
        return Converted if kernel in machine.loops.elementwise.converted_results else Computed
    if rounding.mode == "nearest_even" and single and kernels.grid.plain(format, rounding):
        return AtOnce if kernel in machine.loops.elementwise.rounded_results else Computed
    return Computed
