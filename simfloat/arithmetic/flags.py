"""IEEE exceptions of the results of arrays, which are found while blocks of results are rounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.bit_stream import NO_WORDS, Draw
from simfloat.arithmetic.machines import CPU, GPU, on_cpu
from simfloat.arithmetic.operands import FLOAT32, empty, image_of
from simfloat.arithmetic.plan import Plan, check_out, copied_to_out, plan_for, round_planned
from simfloat.arithmetic.sources import (
    LEAST_LOOKED_UP,
    ByHalfConversion,
    ByHardware,
    ByHardwareInFloat32,
    Elements,
    InFloat32Lanes,
    InFloat64,
    InFloat64ByKernel,
    LookedUp,
    lane_rounding,
    rounding_in_lanes,
)
from simfloat.arithmetic.target import Target, check_inexact
from simfloat.arithmetic.threads import scratch
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, Rounding
from simfloat.formats.exceptions import DIVISION_BY_ZERO, INEXACT, INVALID, OVERFLOW, UNDERFLOW, thresholds_of

Flags = NDArray[np.uint8]

#: Nanoseconds per element for flags.
FLAGGING = 0.5

#: Results are flagged in float32 only if the smallest number of the format is at least 2 to this power: float32 can
#: then represent the thresholds.
LEAST_IN_LANES = -146


@in_usual_environment
def round_flagged(source: Elements | InFloat64, plan: Plan, out: NDArray, target: Target, draw: Draw | None) -> Flags:
    """Round the values of a source on the CPU, by a plan, into `out`; return their flags.

    Raises ValueError for operations in formats in which inexact results cannot be detected.
    """
    flags = empty(out.shape, np.uint8)
    round_planned(flagged_source(source, plan, target, flags.reshape(-1)), plan, out, target, draw)
    return flags


def flagged_source(source: Elements | InFloat64, plan: Plan, target: Target, flags: Flags) -> Flagged:
    """Return the source with flags, which are written with its results; raises ValueError like `round_flagged`."""
    return _flagging_class(source, target)(source, plan, target, flags)


def on_cpu_alone(function: Callable[[Any], Any], arrays: list[NDArray], out: NDArray | None) -> Any:
    """Compute a function of arrays on the CPU, also if they are on a GPU: flags are found only on the CPU."""
    results, flags = function([on_cpu(array) for array in arrays])
    if out is not None:
        check_out(out, arrays, results.dtype, GPU)
    return copied_to_out(GPU.to_device(results), out), GPU.to_device(flags)


def _flagging_class(source: Elements | InFloat64, target: Target) -> type[Flagged]:
    """Return the class that flags the results of a source."""
    format, alone = target.format, target.observer is None
    if not isinstance(source, InFloat64):
        return _flagging_class_of_rounding(source, target) if alone else Flagged
    if source.route.source in (ByHardware, InFloat64ByKernel):
        return FlaggedInFloat64 if source.route.kernel in CPU.loops.flag_loops.double_flags else FlaggedFunction
    check_inexact(format, source.route.operation)
    if alone and source.route.source is ByHardwareInFloat32 and source.route.plan.is_copy:
        return FlaggedByHardware
    if alone and source.route.source is LookedUp:
        return FlaggedLookedUp
    in_lanes = alone and source.route.source in (InFloat32Lanes, ByHalfConversion)
    return FlaggedInFloat32Lanes if in_lanes and _lanes_tell_flags(format, target.rounding) else Flagged


def _flagging_class_of_rounding(source: Elements, target: Target) -> type[Flagged]:
    """Return the class that flags roundings of a vector."""
    if source.x.dtype != FLOAT32 or target.dtype != FLOAT32:
        return Flagged
    plan = plan_for(target.format, target.rounding, np.float32, CPU)
    if plan.is_copy:
        return FlaggedCopy
    if not _lanes_tell_flags(target.format, target.rounding):
        return Flagged
    is_known = plan.loop is CPU.loops.rounding_loops.round_half or rounding_in_lanes(target.format, target.rounding)
    return FlaggedRounding if is_known else Flagged


class Flagged:
    """A source with results that are flagged when they are rounded."""

    makes_blocks = makes_exact = True

    def __init__(self, source: Elements | InFloat64, plan: Plan, target: Target, flags: Flags) -> None:
        self.source, self.plan, self.flags = source, plan, flags
        self.format, self.rounding = target.format, target.rounding
        self.carrier, self.cost = source.carrier, source.cost + FLAGGING
        self.count_lost_addends, self.causes, self.exact = source.count_lost_addends, source.causes, source.exact

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Round and flag the elements from start to stop."""
        self.round_exact(plan, self.exact(start, stop), start, words, out)

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        """Round and flag exact results; other roundings, which observers need, are not flagged."""
        self.source.round_exact(plan, exact, start, words, out)
        if plan is self.plan:
            self.flag(exact, start, words, out, self.flags[start : start + out.size])

    def round_unbounded(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        """Round as if the format had no largest number; these results are not flagged."""
        self.source.round_unbounded(plan, exact, start, words, out)

    def flag(self, exact: NDArray, start: int, words: NDArray, out: NDArray, flags: Flags) -> None:
        """Flag the results from `start`."""
        doubts = 0
        if _results_tell_flags(self.format, self.rounding):
            thresholds = _thresholds(self.format, self.rounding, exact.dtype == out.dtype == FLOAT32)
            others = CPU.loops.flag_loops.flag_results(exact, out, thresholds, flags)
        else:
            thresholds = _thresholds(self.format, self.rounding, False)
            doubts, others = CPU.loops.flag_loops.flag_by_draws(exact, out, thresholds, flags)
        if others:
            self.flag_others(exact, start, out, flags)
        if doubts:
            self.flag_doubts(exact, start, words, flags)

    def flag_doubts(self, exact: NDArray, start: int, words: NDArray, flags: Flags) -> None:
        """Set the flags that exact results do not decide, by rounding without a largest number and without tiny
        ones."""
        # The draws decide, so results are rounded again with the same words. Overflow shows in results without a
        # largest number, and underflow in results with tiny numbers set to zero.
        chosen = scratch("flagged", exact.size, np.float64)
        numbers = np.isfinite(exact) & (flags & INVALID == 0)
        self.source.round_unbounded(self.plan, exact, start, words, chosen)
        least, largest = self.plan.overflow_limits
        flags[numbers & ((chosen > largest) | (chosen < least))] |= OVERFLOW | INEXACT
        if self.format.is_fixed:  # nothing is tiny
            return
        general = self.plan.device.loops.rounding_loops.round_general
        without = self.plan._replace(loop=general, numbers=_without_tiny(self.format, self.rounding))
        self.source.round_exact(without, exact, start, words, chosen)
        flags[numbers & (chosen == 0) & (flags & INEXACT != 0)] |= UNDERFLOW

    def flag_others(self, exact: NDArray, start: int, out: NDArray, flags: Flags) -> None:
        """Flag results that are not finite, or whose exact results are not."""
        at = np.flatnonzero(~np.isfinite(exact) | np.isnan(out))
        before, after, format = exact[at], out[at], self.format
        unknown, infinite = np.isnan(before), np.isinf(before)
        undefined, of_numbers = self._operand_facts(start, out.size, at)
        result_flags = np.where(unknown | infinite, 0, flags[at])
        result_flags[infinite & (after != before)] = OVERFLOW | INEXACT
        no_place = ((before < 0) & (not format.signed)) | ((before == 0) & (not format.has_zero))
        result_flags[(unknown & undefined) | (~unknown & np.isnan(after) & no_place)] = INVALID
        result_flags[infinite & of_numbers] |= DIVISION_BY_ZERO
        flags[at] = result_flags

    def _operand_facts(self, start: int, size: int, at: NDArray) -> tuple[Any, Any]:
        """Return, for elements of a block, whether operands cause a NaN, and whether all are finite; False for a
        rounding."""
        if not isinstance(self.source, InFloat64):
            return False, False
        block = self.source.block(start, start + size)
        a, b, c = (vector if vector.size == 1 else vector[at] for vector in block)
        undefined = ~(np.isnan(a) | np.isnan(b) | np.isnan(c))
        if self.source.route.kernel == "fma":  # 0 * inf is undefined, for every addend
            undefined |= ((a == 0) & np.isinf(b)) | (np.isinf(a) & (b == 0))
        return undefined, np.isfinite(a) & np.isfinite(b) & np.isfinite(c)


class FlaggedCopy(Flagged):
    """Flags numbers of the format, which rounding does not change."""

    makes_blocks = False

    def flag(self, exact: NDArray, start: int, words: NDArray, out: NDArray, flags: Flags) -> None:
        """Flag the results from `start`."""
        flags[:] = 0


class FlaggedRounding(Flagged):
    """Rounds float32 values in lanes of float32 and flags the results, in one loop."""

    makes_blocks = False

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Round and flag the elements from start to stop."""
        x, flags = self.exact(start, stop), self.flags[start:stop]
        thresholds = _thresholds(self.format, self.rounding, True)
        halves = plan.loop is CPU.loops.rounding_loops.round_half
        rounds = lane_rounding(self.format, self.rounding) if halves else rounding_in_lanes(self.format, self.rounding)
        loop = CPU.loops.flag_loops.halved_flags if halves else CPU.loops.flag_loops.rounded_flags
        if loop(x, out, *rounds, thresholds, flags):
            self.flag_others(x, start, out, flags)


class FlaggedInFloat32Lanes(Flagged):
    """Rounds and flags results in one loop, if the exact results rounded to odd fit into float32."""

    source: InFloat64
    makes_blocks = False

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Round and flag the elements from start to stop."""
        route, flags = self.source.route, self.flags[start:stop]
        # If the hardware converts to FP16, the route has no packed grid.
        rounds, kinds = route.rounds, CPU.loops.flag_loops.single_flags
        if not rounds:
            rounds, kinds = lane_rounding(self.format, self.rounding), CPU.loops.flag_loops.converted_flags
        thresholds = _thresholds(self.format, self.rounding, True)
        operands = self.source.block(start, stop)
        if kinds[route.kernel](*operands, route.sign, out, *rounds, thresholds, flags):
            self.flag_others(self.exact(start, stop), start, out, flags)


class FlaggedByHardware(Flagged):
    """Flags results in FP32 that the hardware rounds, in one loop."""

    source: InFloat64
    makes_blocks = False

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Round and flag the elements from start to stop."""
        route, flags = self.source.route, self.flags[start:stop]
        loop, thresholds = (
            CPU.loops.flag_loops.native_flags[route.kernel],
            _thresholds(self.format, self.rounding, False),
        )
        if loop(*self.source.block(start, stop), route.sign, out, thresholds, flags):
            self.flag_others(self.exact(start, stop), start, out, flags)


class FlaggedLookedUp(Flagged):
    """Looks up the flags of functions of 16-bit numbers, together with their results."""

    source: InFloat64

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Round and flag the elements from start to stop."""
        if stop - start >= LEAST_LOOKED_UP and out.dtype == FLOAT32:
            x = self.source.block(start, stop)[0]
            for table in self.source.route.tables:
                if table.look_up(x, out):
                    return table.look_up_flags(x, self.flags[start:stop], self._flags_of)
        return super().round_block(plan, start, stop, words, out)

    def _flags_of(self, x: NDArray) -> Flags:
        """Return the flags of the results of a vector."""
        target = Target(self.format, self.rounding, np.float32)
        source, flags, out = InFloat64(self.source.route, [x], x.size), np.empty(x.size, np.uint8), np.empty_like(x)
        Flagged(source, self.plan, target, flags).round_block(self.plan, 0, x.size, NO_WORDS, out)
        return flags


class FlaggedInFloat64(Flagged):
    """Flags results in FP64, for which float64 cannot represent the exact results."""

    source: InFloat64

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Round and flag the elements from start to stop, without exact results."""
        self.round_exact(plan, out, start, words, out)

    def flag(self, exact: NDArray, start: int, words: NDArray, out: NDArray, flags: Flags) -> None:
        """Flag the results from `start`."""
        route = self.source.route
        loop = CPU.loops.flag_loops.double_flags[route.kernel]
        if loop(*self.source.block(start, start + out.size), route.sign, out, flags):
            self.flag_others(np.where(flags & OVERFLOW, self.format.max, out), start, out, flags)


class FlaggedFunction(Flagged):
    """Flags functions in FP64.

    Their exact results have few bits, or are not float64 values at all. So an odd last bit of a result rounded to odd
    shows that it is inexact.
    """

    def flag(self, exact: NDArray, start: int, words: NDArray, out: NDArray, flags: Flags) -> None:
        """Flag the results from `start`."""
        finite, others = np.isfinite(exact), not np.isfinite(out).all()
        inexact = finite & (image_of(exact) & np.uint64(1) != 0)
        flags[:] = inexact * INEXACT
        # No result is so slightly below the smallest normal number that it is tiny only with more bits.
        flags[inexact & (np.abs(out) < self.format.smallest_normal)] |= UNDERFLOW
        if others:
            flags[finite & np.isinf(out)] |= OVERFLOW
            self.flag_others(exact, start, out, flags)


@cache
def _results_tell_flags(format: Format, rounding: Rounding) -> bool:
    """Return True if exact results decide all flags: no draw and no value beyond the largest float64 matters."""
    thresholds = thresholds_of(format, rounding)
    return thresholds[0::2] == thresholds[1::2]


@cache
def _lanes_tell_flags(format: Format, rounding: Rounding) -> bool:
    """Return True if float32 results rounded to odd decide all flags; larger results are read as its largest number."""
    if not _results_tell_flags(format, rounding) or format.emin - format.mantissa_bits < LEAST_IN_LANES:
        return False
    if not (format.signed and format.has_zero):  # some values become NaN
        return False
    return bool(np.isfinite(_thresholds(format, rounding, True)).all())


@cache
def _thresholds(format: Format, rounding: Rounding, single: bool) -> NDArray[np.floating]:
    """Return the thresholds; for float32 values, the next float32 values at or above them."""
    wide = np.array(thresholds_of(format, rounding), np.float64)
    if not single:
        return wide
    with np.errstate(over="ignore"):
        near = wide.astype(np.float32)
        return np.where(near < wide, np.nextafter(near, np.float32(np.inf)), near)


@cache
def _without_tiny(format: Format, rounding: Rounding) -> NDArray[np.float64]:
    """Return the packed grid of a format in a mode, with tiny results rounded to zero."""
    grid = kernels.rounding.grid
    numbers, lower = grid.pack_grid(format, rounding).copy(), format.emin - 1
    changes = {
        "min_normal": math.ldexp(1.0, lower),
        "low_anchor": math.ldexp(1.0, lower + 52 - format.mantissa_bits),
        "least": format.smallest_normal,
        "small": 0.0,
        "cut": format.smallest_normal if format.tininess == "before_rounding" else 0.0,
        "at_zero": 0.0,
    }
    for name, value in changes.items():
        numbers[grid.Grid._fields.index(name)] = value
    return numbers
