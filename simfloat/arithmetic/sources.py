"""Sources of values to be rounded: arrays, exact results of operations, and tables of results.

A table contains the results of a function for all numbers of a 16-bit format, and is computed when it pays off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.bit_stream import NO_WORDS
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.arithmetic.machines import CPU, Device, Loop
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.plan import BLOCK, Plan, plan_for, round_for_counts
from simfloat.arithmetic.target import causes_of_operation, causes_of_rounding, check_precision, odd_suffices
from simfloat.arithmetic.threads import scratch
from simfloat.environment import in_usual_environment
from simfloat.formats import FP16, FP32, FP64, Format, Rounding, nearest_even

#: The number of results in a table. As many elements are computed before it is built, so that it at most doubles the
#: time.
SIZE = 1 << 16

#: With fewer elements, checking the operands costs as much as a table saves.
LEAST_LOOKED_UP = 512

#: Operands that are tested to estimate the cost. With 512 of them, the test took a sixth of the time of 2^18 results.
SAMPLE = 64

#: The number of tables that are kept, 256 KiB each; with more, the oldest one is dropped.
MOST_TABLES = 64

Vector = NDArray[np.float32]


class Operands(NamedTuple):
    """A 16-bit format, for the numbers of which results are looked up."""

    numbers: Callable[[], Vector]  # all numbers, in the order of their bit patterns
    contains_all: Callable[[Vector], bool]  # True if a vector contains nothing else
    look_up: Callable[[Vector, NDArray, NDArray], bool]  # (x, table, out); False, and out undefined, for other values


class FunctionTable:
    """The results of one function, in one format and mode, for the numbers of one 16-bit format."""

    __slots__ = ("operands", "compute", "results", "elements_before_look", "flags")
    tables_in_memory: deque[FunctionTable] = deque()

    def __init__(self, operands: Operands, compute: Callable[[Vector], Vector]) -> None:
        self.operands, self.compute = operands, compute
        self.results: Vector | None = None
        self.flags: NDArray[np.uint8] | None = None
        self.elements_before_look = SIZE  # elements that are computed before operands are checked again

    def is_ready_for(self, some: Vector) -> bool:
        """Return True if there is a table that will be tried, and `some` operands are numbers of its format."""
        return self.results is not None and self.elements_before_look <= 0 and self.operands.contains_all(some)

    def look_up(self, x: Vector, out: Vector) -> bool:
        """Write the results for x to `out` and return True, if there is a table and x has only numbers of its
        format."""
        if self.elements_before_look > 0:
            self.elements_before_look -= x.size
            return False
        results = self.results
        if results is None and self.operands.contains_all(x[:LEAST_LOOKED_UP]):
            results = self.make()
        if results is not None and self.operands.look_up(x, results, out):
            return True
        self.elements_before_look = SIZE
        return False

    def look_up_flags(self, x: Vector, flags: NDArray[np.uint8], flags_of: Callable[[Vector], NDArray]) -> None:
        """Write the flags of results that were looked up; `flags_of` computes the flags of a vector."""
        if self.flags is None:
            self.flags = flags_of(self.operands.numbers())
        self.operands.look_up(x, self.flags, flags)

    def make(self) -> Vector:
        """Compute all results; if there are too many tables, drop the oldest one."""
        results = self.results = self.compute(self.operands.numbers())
        self.tables_in_memory.append(self)
        if len(self.tables_in_memory) > MOST_TABLES:
            oldest = self.tables_in_memory.popleft()
            oldest.results, oldest.flags, oldest.elements_before_look = None, None, SIZE
        return results


def _bfloat16_numbers() -> Vector:
    return (np.arange(SIZE, dtype=np.uint32) << 16).view(np.float32)


def _float16_numbers() -> Vector:
    with np.errstate(invalid="ignore"):  # conversion of signalling NaN
        return np.arange(SIZE, dtype=np.uint16).view(np.float16).astype(np.float32)


def _are_bfloat16(x: Vector) -> bool:
    return not (x.view(np.uint32) & 0xFFFF).any()


def _are_float16(x: Vector) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.array_equal(x.astype(np.float16), x, equal_nan=True))


#: Numbers of BF16. Their bit patterns are the upper halves of float32 bit patterns.
BFLOAT16 = Operands(
    _bfloat16_numbers, _are_bfloat16, lambda *vectors: bool(CPU.loops.lookups.look_up_bfloat16(*vectors))
)

#: Numbers of FP16, for processors that convert to it.
FLOAT16 = Operands(_float16_numbers, _are_float16, lambda *vectors: bool(CPU.loops.lookups.look_up_float16(*vectors)))


ZERO = np.zeros(1)

#: Operations that can lose an addend.
SUMS = ("add", "subtract", "fma")


class Elements(NamedTuple):
    """The elements of a vector, which are rounded without an operation."""

    x: NDArray
    makes_blocks: bool = False
    makes_exact: bool = False
    cost: float = 0.3

    @property
    def carrier(self) -> FloatType:
        """The dtype of the vector."""
        return self.x.dtype.type

    def exact(self, start: int, stop: int) -> NDArray:
        return self.x[start:stop]

    def block(self, start: int, stop: int) -> list[NDArray]:
        return [self.x[start:stop]]

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        x = self.x
        plan.loop(x if stop - start == x.size else x[start:stop], words, out, plan.numbers)

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        plan.loop(exact, words, out, plan.numbers)

    def round_unbounded(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        plan.loop(exact, words, out, plan.unbounded)

    def round_observed(self, plan: Plan, out: NDArray) -> tuple[NDArray | None, int]:
        plan.loop(self.x, NO_WORDS, out, plan.numbers)
        return self.x, 0

    def count_lost_addends(self, start: int, stop: int, out: NDArray) -> int:
        return 0

    def causes(self, start: int, exact: NDArray, out: NDArray) -> NDArray[np.int64]:
        return causes_of_rounding(exact, out)


class NumbersOfFormat(Elements):
    """Numbers of the format, which are their own results."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        return

    def round_observed(self, plan: Plan, out: NDArray) -> tuple[NDArray | None, int]:
        return self.x, 0


class InFloat64:
    """Exact results of an operation on vectors of one length; a vector of length 1 is a scalar."""

    __slots__ = ("route", "vectors", "size")

    carrier: FloatType = np.float64
    makes_blocks: Any = True
    makes_exact: Any = True

    #: True if a result is written only after its operands have been read for the last time.
    reads_once = True

    @staticmethod
    def loop(kernel: str, device: Device) -> Loop | None:
        """Return the loop that computes and rounds results in one pass, for sources that have one."""
        return None

    def __init__(self, route: Route, vectors: list[NDArray], size: int) -> None:
        self.route, self.vectors, self.size = route, vectors + route.padding, size

    @classmethod
    def round_few(cls, route: Route, vectors: list[NDArray], out: NDArray) -> None:
        """Round all elements of one block, without random bits and events."""
        cls(route, vectors, out.size).round_block(route.plan, 0, out.size, NO_WORDS, out)

    @property
    def cost(self) -> float:
        """The cost of a few instructions, or of a series."""
        return 0.5 if OPERATIONS[self.route.kernel].accuracy == "exact" else 5.0

    def block(self, start: int, stop: int) -> list[NDArray]:
        """Return the three operands of the elements from start to stop."""
        if stop - start == self.size:
            return self.vectors
        return [vector if vector.size == 1 else vector[start:stop] for vector in self.vectors]

    def exact(self, start: int, stop: int) -> NDArray:
        size, route = stop - start, self.route
        exact = scratch("exact", size, np.float64, route.plan.device)
        # Small arrays are one block, and for them every call matters.
        a, b, c = self.vectors if size == self.size else self.block(start, stop)
        route.exact(a, b, c, route.sign, exact)
        return exact

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        plan.loop(self.exact(start, stop), words, out, plan.numbers)

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        plan.loop(exact, words, out, plan.numbers)

    def round_unbounded(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        if plan.overflow_limits[1] < 2.0**1023:
            plan.loop(exact, words, out, plan.unbounded)
        else:  # exact results may exceed the range of float64, so one float64 is not enough
            loop = plan.device.loops.operation_loops.paired_results[self.route.kernel]
            loop(*self.block(start, start + out.size), self.route.sign, words, out, plan.unbounded)

    def round_observed(self, plan: Plan, out: NDArray) -> tuple[NDArray | None, int]:
        return round_for_counts(self, plan, 0, NO_WORDS, out)

    def count_lost_addends(self, start: int, stop: int, out: NDArray) -> int:
        if self.route.kernel == "fma":
            return self._count_lost_in_fma(start, stop, out)
        if self.route.kernel not in SUMS:
            return 0
        a, b, _ = self.vectors if stop - start == self.size else self.block(start, stop)
        sign, either = (-1.0 if self.route.kernel == "subtract" else 1.0), self.route.operation != "update"
        return int(self.route.plan.device.loops.counting.count_unchanged(a, b, out, sign, either))

    @in_usual_environment
    def _count_lost_in_fma(self, start: int, stop: int, out: NDArray) -> int:
        """Return the number of finite a * b + c that lost c, or the product: the difference is then zero."""
        machine = self.route.plan.device
        a, b, c = map(machine.to_device, self.block(start, stop))
        difference = scratch("rest", stop - start, np.float64, machine)
        self.route.exact(
            a, b, (-out).astype(np.promote_types(out.dtype, c.dtype), copy=False), self.route.sign, difference
        )
        lost = ((out == c) & (a != 0) & (b != 0)) | ((difference == 0) & (c != 0))
        return int(np.count_nonzero(lost & np.isfinite(out)))

    def causes(self, start: int, exact: NDArray, out: NDArray) -> NDArray[np.int64]:
        return causes_of_operation(self.route.kernel, self.block(start, start + exact.size), exact, out)


class _NotFromOneFloat64(InFloat64):
    """Results that are not rounded from one float64 value."""

    makes_exact = False

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        self.round_block(plan, start, start + out.size, words, out)

    def round_unbounded(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        self.round_block(plan._replace(numbers=plan.unbounded), start, start + out.size, words, out)


class InFloat64Pairs(_NotFromOneFloat64):
    """Results rounded from pairs of float64 values, because one float64 has too few bits."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        loop = plan.device.loops.operation_loops.paired_results[self.route.kernel]
        loop(*self.block(start, stop), self.route.sign, words, out, plan.numbers)


class _RoundedInFloat32(InFloat64):
    """Results that are computed and rounded in one pass, in lanes of float32."""

    makes_blocks = makes_exact = False

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        self.round_few(self.route, self.vectors if stop - start == self.size else self.block(start, stop), out)

    def round_observed(self, plan: Plan, out: NDArray) -> tuple[NDArray | None, int]:
        self.round_few(self.route, self.vectors, out)
        return None, self.count_lost_addends(0, out.size, out) if self.route.kernel in SUMS else 0

    @staticmethod
    def round_few(route: Route, vectors: list[NDArray], out: NDArray) -> None:
        """Round the results for these operands of the route; missing operands are zeros.

        The loop takes copies of the first operand for missing ones, because a scalar would be turned into a vector.
        """
        a, b, c = vectors if len(vectors) == 3 else vectors + route.padding
        if route.padding and route.plan.device is CPU:
            b, c = a if len(route.padding) == 2 else b, a
        route.loop(a, b, c, *route.sign_argument, out, *route.rounds)


class ByHalfConversion(_RoundedInFloat32):
    """Results in FP16 of operations on float32 operands, rounded by one conversion of the hardware."""

    @staticmethod
    def loop(kernel: str, device: Device) -> Loop:
        return device.loops.converted.converted_results[kernel]


class LookedUp(InFloat64):
    """Results of functions of one float32 operand; results for many 16-bit operands are looked up."""

    reads_once = False

    @property
    def makes_exact(self) -> bool:
        """True until there is a table."""
        return all(table.results is None for table in self.route.tables)

    @property
    def makes_blocks(self) -> bool:
        # Looking up all results in one call saves a fifth of the time of 2^18 results, compared with blocks.
        return self.makes_exact

    @property
    def cost(self) -> float:
        """The cost of a series, if no table exists, or if a sample of the operands is not in its format."""
        if self.makes_exact:
            return super().cost
        x = self.vectors[0]
        some = x[:: max(x.size // SAMPLE, 1)]
        return 0.7 if any(table.is_ready_for(some) for table in self.route.tables) else super().cost

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        if stop - start >= LEAST_LOOKED_UP and out.dtype == np.float32:
            x = self.block(start, stop)[0]
            if any(table.look_up(x, out) for table in self.route.tables):
                return
        for begin in range(start, stop, BLOCK):  # looked-up functions have no random bits
            end = min(begin + BLOCK, stop)
            plan.loop(self.exact(begin, end), words, out[begin - start : end - start], plan.numbers)


class InFloat32Lanes(_RoundedInFloat32):
    """Results of float32 operands in narrower formats, rounded to odd and then again, in lanes of float32."""

    @staticmethod
    def loop(kernel: str, device: Device) -> Loop:
        return device.loops.single.single_results[kernel]


class InFloat64ByKernel(_NotFromOneFloat64):
    """Results in FP64, rounded by a kernel."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        result = scratch("native", stop - start, self.carrier, plan.device)
        loop = plan.device.loops.operation_loops.double_results[self.route.kernel]
        loop(*self.block(start, stop), self.route.sign, result)
        plan.loop(result, words, out, plan.numbers)


class InFloat64ByMode(_NotFromOneFloat64):
    """Results in FP64 in a deterministic mode other than to nearest even."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        loop = plan.device.loops.operation_loops.doubles_in_mode[self.route.kernel]
        loop(*self.block(start, stop), self.route.sign, NO_WORDS, out, plan.numbers)


class ByHardware(_NotFromOneFloat64):
    """Results in FP64, rounded by the hardware."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        # Results for an array of another dtype are computed in their own dtype first.
        is_in_type = out.dtype == self.carrier
        result = out if is_in_type else scratch("native", stop - start, self.carrier, plan.device)
        a, b, c = self.block(start, stop)
        plan.device.loops.operation_loops.native_results[self.route.kernel](a, b, c, result)
        if not (is_in_type and plan.is_copy):
            plan.loop(result, words, out, plan.numbers)


class ByHardwareInFloat32(ByHardware):
    """Results in FP32 of float32 operands, rounded by the hardware."""

    carrier = np.float32


class Route(NamedTuple):
    """The computation and the rounding of the results of an operation."""

    operation: str
    kernel: str  # the operation with the kernel that it uses
    source: type[InFloat64]
    plan: Plan
    exact: Loop  # writes the exact results, rounded to odd
    loop: Any  # the loop of the source that computes and rounds results in one pass
    sign: float  # of an exact zero sum of unlike signs
    padding: list[NDArray]  # zeros for missing operands: kernels take three
    tables: tuple[FunctionTable, ...] = ()  # for a function of 16-bit numbers
    rounds: tuple[Any, ...] = ()  # the packed grid and the kind of rounding for lanes of float32
    sign_argument: tuple[float, ...] = ()  # the sign, which these lanes take before the array of results


@cache
def route_of(operation: str, format: Format, rounding: Rounding, single: bool, device: Device) -> Route:
    """Return the route of an operation on a device; `single` if all operands are float32."""
    kernel = OPERATIONS[operation].computes or operation
    source = _choose_source(kernel, format, rounding, single, device)
    exact = device.loops.operation_loops.exact_results[kernel]
    padding = [ZERO] * (3 - len(OPERATIONS[kernel].operands))
    plan = plan_for(format, rounding, source.carrier, device)
    loop = source.loop(kernel, device)
    route = Route(operation, kernel, source, plan, exact, loop, rounding.zero_sum, padding)
    if source is InFloat32Lanes:
        return route._replace(
            rounds=_float32_lane_rounding(format, rounding, device), sign_argument=(rounding.zero_sum,)
        )
    return route._replace(tables=_tables_of(route)) if source is LookedUp else route


def _float32_lane_rounding(format: Format, rounding: Rounding, device: Device) -> tuple[Any, ...]:
    """Return the packed grid and the kind of rounding, if float32 results rounded to odd are enough; otherwise
    nothing."""
    if not odd_suffices(format, rounding, np.float32):
        return ()
    in_lanes = rounding_in_lanes(format, rounding, device)
    if in_lanes and in_lanes[1] == 0 and device is CPU and kernels.rounding.grid.has_few_bits(format, rounding):
        return in_lanes[0], kernels.rounding.grid.FEW_BITS
    return in_lanes


def rounding_in_lanes(format: Format, rounding: Rounding, device: Device = CPU) -> tuple[Any, ...]:
    """Return the packed grid and the kind of rounding in lanes of float32; empty if it is not possible."""
    plan, loops = plan_for(format, rounding, np.float32, device), device.loops
    kinds = [loops.rounding_loops.round_image, loops.rounding_loops.round_nearest]
    kinds += [loops.rounding_loops.round_directed, loops.rounding_loops.round_to_odd]
    return (plan.numbers, kinds.index(plan.loop)) if plan.loop in kinds else ()


@cache
def lane_rounding(format: Format, rounding: Rounding) -> tuple[Any, ...]:
    """Return the grid and the kind of rounding to nearest even, for formats that the CPU otherwise converts to."""
    return kernels.rounding.grid.pack_grid_below(format, rounding, format.emax, np.float32), 1


def _tables_of(route: Route) -> tuple[FunctionTable, ...]:
    """Return the tables of a function; one is for FP16 numbers if the processor converts to FP16."""

    def compute(x: NDArray[np.float32]) -> NDArray[np.float32]:
        out = np.empty_like(x)
        InFloat64(route, [x], x.size).round_block(route.plan, 0, x.size, NO_WORDS, out)
        return out

    operands = (BFLOAT16, FLOAT16) if route.plan.device.loops.processor.CONVERTS_FP16 else (BFLOAT16,)
    return tuple(FunctionTable(format, compute) for format in operands)


def _choose_source(kernel: str, format: Format, rounding: Rounding, single: bool, device: Device) -> type[InFloat64]:
    is_native = kernel in device.loops.operation_loops.native_results
    if rounding.steps == "nearest" and format == FP64:
        return ByHardware if is_native else InFloat64ByKernel
    if format == FP64 and not rounding.is_stochastic:
        check_precision(format, rounding, OPERATIONS[kernel].accuracy == "exact", kernel)
        return InFloat64ByMode
    if rounding.steps == "nearest" and format == FP32 and single and is_native:
        return ByHardwareInFloat32
    if not odd_suffices(format, rounding):
        return InFloat64Pairs
    if rounding == nearest_even and format == FP16 and single and device.loops.processor.CONVERTS_FP16:
        if kernel in device.loops.converted.converted_results:
            return ByHalfConversion
    if single and kernel in device.loops.single.single_results and _float32_lane_rounding(format, rounding, device):
        return InFloat32Lanes
    has_table = device is CPU and single and len(OPERATIONS[kernel].operands) == 1 and format.fits_float32
    return LookedUp if has_table and not rounding.is_stochastic else InFloat64
