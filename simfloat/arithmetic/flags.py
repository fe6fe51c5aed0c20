"""IEEE exceptions of the results of arrays, which are found while blocks of results are rounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.bit_stream import NO_WORDS, Draw
from simfloat.arithmetic.machines import CPU, GPU, Loop, on_cpu
from simfloat.arithmetic.operands import FLOAT32, empty, image_of
from simfloat.arithmetic.plan import Plan, check_out, copied_to_out, round_for_counts, round_planned
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
    round_planned(Flagged(source, plan, target, flags.reshape(-1)), plan, out, target, draw)
    return flags


def on_cpu_alone(function: Callable[[Any], Any], arrays: list[NDArray], out: NDArray | None) -> Any:
    """Compute a function of arrays on the CPU, also if they are on a GPU: flags are found only on the CPU."""
    results, flags = function([on_cpu(array) for array in arrays])
    if out is not None:
        check_out(out, arrays, results.dtype, GPU)
    return copied_to_out(GPU.to_device(results), out), GPU.to_device(flags)


class Flagged:
    """A source with results that are flagged when they are rounded.

    A loop writes flags beside the results, or exact results are flagged. Raises ValueError like `round_flagged`.
    """

    makes_exact = True

    def __init__(self, source: Elements | InFloat64, plan: Plan, target: Target, flags: Flags) -> None:
        self.source, self.plan, self.flags = source, plan, flags
        self.format, self.rounding = target.format, target.rounding
        self.carrier, self.cost = source.carrier, source.cost + FLAGGING
        self.count_lost_addends, self.causes, self.exact = source.count_lost_addends, source.causes, source.exact
        self.route = source.route if isinstance(source, InFloat64) else None
        self.is_in_fp64 = self.route is not None and self.route.source in (ByHardware, InFloat64ByKernel)
        self.double_loop: Loop | None = None
        if self.route is not None and self.is_in_fp64:
            self.double_loop = CPU.loops.flag_loops.double_flags.get(self.route.kernel)
        elif self.route is not None:
            check_inexact(target.format, self.route.operation, "Compute without flags=True")
        # An observer reads exact results in any case.
        self.loop = None if target.observer is not None else _loop_beside_results(source, plan, target)
        self.makes_blocks = self.loop is None or source.makes_blocks

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Round and flag the elements from start to stop."""
        flags = self.flags[start:stop]
        others = None if self.loop is None else self.loop(self.source.block(start, stop), out, flags)
        if others is None:
            self.round_exact(plan, out if self.double_loop else self.exact(start, stop), start, words, out)
        elif others:
            self._flag_special_results(self.exact(start, stop), start, out, flags)

    def round_observed(self, plan: Plan, out: NDArray) -> tuple[NDArray | None, int]:
        """Round and flag all results; return the exact ones, and the number of lost addends."""
        return round_for_counts(self, plan, 0, NO_WORDS, out)

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        """Round and flag exact results; other roundings, which observers need, are not flagged."""
        self.source.round_exact(plan, exact, start, words, out)
        flags = self.flags[start : start + out.size]
        if plan is self.plan and self.is_in_fp64:
            if not self.rounding.saturates:
                self._flag_in_fp64(exact, start, out, flags)
                return
            # Results that saturate no longer show an overflow.
            unbounded = scratch("unbounded", out.size, np.float64)
            self.source.round_unbounded(plan, exact, start, words, unbounded)
            self._flag_in_fp64(exact, start, unbounded, flags)
            flags[np.isinf(unbounded)] |= OVERFLOW | INEXACT
        elif plan is self.plan:
            self._flag(exact, start, words, out, flags)

    def round_unbounded(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        """Round as if the format had no largest number; these results are not flagged."""
        self.source.round_unbounded(plan, exact, start, words, out)

    def _flag(self, exact: NDArray, start: int, words: NDArray, out: NDArray, flags: Flags) -> None:
        """Flag the results from `start`."""
        doubts, loops = 0, CPU.loops
        if _results_tell_flags(self.format, self.rounding):
            thresholds = _thresholds(self.format, self.rounding, exact.dtype == out.dtype == FLOAT32)
            others = loops.flag_loops.flag_results(exact, out, thresholds, flags)
        else:
            doubts, others = loops.flag_loops.flag_by_draws(
                exact, out, _thresholds(self.format, self.rounding, False), flags
            )
        if others:
            self._flag_special_results(exact, start, out, flags)
        if doubts:
            self._flag_doubts(exact, start, words, flags)

    def _flag_in_fp64(self, exact: NDArray, start: int, out: NDArray, flags: Flags) -> None:
        """Flag the results from `start` in FP64, for which float64 cannot represent all exact results.

        Exact results of functions have few bits, or are not float64 values at all. So an odd last bit of a result
        rounded to odd shows that it is inexact, except of 2^-1074. Other operations have a loop that reads their
        operands.
        """
        if self.double_loop and self.route:
            if self.double_loop(*self.source.block(start, start + out.size), self.route.sign, out, flags):
                self._flag_special_results(np.where(flags & OVERFLOW, self.format.max, out), start, out, flags)
            return
        finite, others = np.isfinite(exact), not np.isfinite(out).all()
        inexact = finite & (image_of(exact) & np.uint64(1) != 0)
        if self.route and self.route.kernel == "exp2":
            inexact &= self.source.block(start, start + out.size)[0] != -1074
        flags[:] = inexact * INEXACT
        # No result is so slightly below the smallest normal number that it is tiny only with more bits.
        flags[inexact & (np.abs(out) < self.format.smallest_normal)] |= UNDERFLOW
        if others:
            flags[finite & np.isinf(out)] |= OVERFLOW
            self._flag_special_results(exact, start, out, flags)

    def _flag_doubts(self, exact: NDArray, start: int, words: NDArray, flags: Flags) -> None:
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

    def _flag_special_results(self, exact: NDArray, start: int, out: NDArray, flags: Flags) -> None:
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
        if self.route is None:
            return False, False
        block = self.source.block(start, start + size)
        a, b, c = (vector if vector.size == 1 else vector[at] for vector in block)
        undefined = ~(np.isnan(a) | np.isnan(b) | np.isnan(c))
        if self.route.kernel == "fma":  # 0 * inf is undefined, for every addend
            undefined |= ((a == 0) & np.isinf(b)) | (np.isinf(a) & (b == 0))
        return undefined, np.isfinite(a) & np.isfinite(b) & np.isfinite(c)


#: A loop (operands, out, flags) that writes results and their flags. It returns None if it cannot, and true if some
#: results are infinite or NaN, or come from such operands.
LoopBesideResults = Callable[[list[NDArray], NDArray, Flags], Any]


def _loop_beside_results(source: Elements | InFloat64, plan: Plan, target: Target) -> LoopBesideResults | None:
    """Return the loop that writes flags beside the results of a source, if there is one."""
    format, rounding, loops = target.format, target.rounding, CPU.loops
    sign: tuple[float, ...] = ()
    if isinstance(source, Elements):
        if not source.x.dtype == target.dtype == FLOAT32:
            return None
        if plan.is_copy:
            return partial(_copy, plan)
        is_half = plan.loop is loops.rounding_loops.round_half
        loop = loops.flag_loops.halved_flags if is_half else loops.flag_loops.rounded_flags
        rounds = lane_rounding(format, rounding) if is_half else rounding_in_lanes(format, rounding)
    else:
        route, sign = source.route, (source.route.sign,)
        if route.source is LookedUp:
            return partial(_look_up, source, plan, target)
        if route.source is ByHardwareInFloat32 and plan.is_copy:
            native, thresholds = loops.flag_loops.native_flags[route.kernel], _thresholds(format, rounding, False)
            return lambda operands, out, flags: native(*operands, *sign, out, thresholds, flags)
        if route.source not in (InFloat32Lanes, ByHalfConversion):
            return None
        # If the hardware converts to FP16, the route has no packed grid.
        loop = (loops.flag_loops.single_flags if route.rounds else loops.flag_loops.converted_flags)[route.kernel]
        rounds = route.rounds or lane_rounding(format, rounding)
    if not rounds or not _lanes_tell_flags(format, rounding):
        return None
    limits = _thresholds(format, rounding, True)
    return lambda operands, out, flags: loop(*operands, *sign, out, *rounds, limits, flags)


def _copy(plan: Plan, operands: list[NDArray], out: NDArray, flags: Flags) -> bool:
    """Copy numbers of the format, which raise no flags."""
    plan.loop(operands[0], NO_WORDS, out, plan.numbers)
    flags[:] = 0
    return False


def _look_up(
    source: InFloat64, plan: Plan, target: Target, operands: list[NDArray], out: NDArray, flags: Flags
) -> bool | None:
    """Look up the results of a function of 16-bit numbers, and their flags."""

    def flags_of(x: NDArray) -> Flags:
        flagged = Flagged(InFloat64(source.route, [x], x.size), plan, target, np.empty(x.size, np.uint8))
        flagged.round_exact(plan, flagged.exact(0, x.size), 0, NO_WORDS, np.empty_like(x))
        return flagged.flags

    x = operands[0]
    if out.size >= LEAST_LOOKED_UP and out.dtype == FLOAT32:
        for table in source.route.tables:
            if table.look_up(x, out):
                table.look_up_flags(x, flags, flags_of)
                return False
    return None


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
