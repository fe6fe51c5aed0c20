"""Rounding of arrays by a plan: the loop for a format and a mode, blocks for several threads, and the output array.

Results are written to new memory, or to existing memory, the `out` of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.bit_stream import NO_WORDS, Draw, random_words
from simfloat.arithmetic.machines import CPU, Device, is_on_gpu
from simfloat.arithmetic.operands import FloatType, broadcast_shape, empty
from simfloat.arithmetic.target import (
    Observer,
    SumObserver,
    Target,
    WithPath,
    bound_counts,
    is_precise,
    is_wide,
    notify,
)
from simfloat.arithmetic.threads import SMALL, busy_threads, run_all, scratch
from simfloat.environment import in_usual_environment
from simfloat.formats import FP16, FP32, FP64, Format, Rounding, nearest_even
from simfloat.kernels.rounding.events import (
    FIRST_CAUSE,
    NAN,
    OVERFLOW,
    SIZE,
    WIDE,
    add_optional_counts,
    events_for,
)

#: The elements of a block: its exact results and random words stay in the second-level cache.
BLOCK = 1 << 16

#: Threads take multiples of this number of elements, at which every block of random words may start.
GRAIN = 1 << 12

#: Nanoseconds per element for an observer, for random words, and for a rounding in place.
COUNTING, DRAWING, IN_PLACE = 0.5, 0.6, 0.4

#: (start, stop) -> the random words of these elements, or their bytes.
Words = Callable[[int, int], NDArray[np.unsignedinteger]]


class Plan(NamedTuple):
    """The rounding to a format in a mode: a loop over a block, and the packed grid that it reads."""

    loop: Callable[[NDArray, NDArray, NDArray, NDArray], None]  # (x, words, out, numbers)
    numbers: NDArray[np.floating]  # the packed grid, in the dtype in which the loop computes
    unbounded: NDArray[np.floating]  # the same grid without a largest number
    overflow_limits: tuple[float, float]  # the range of results; unbounded results outside of it overflow
    has_nan: bool
    is_copy: bool  # True if all values of the carrier are numbers of the format
    is_wide: bool  # True if the format has the range of FP32
    is_precise: bool  # True if the format has the precision of FP32
    device: Device


class Source(Protocol):
    """Values to be rounded, block by block."""

    @property
    def carrier(self) -> FloatType:
        """float32 or float64: the dtype of the values for the plan's loop."""

    @property
    def makes_blocks(self) -> bool:
        """True if results are first computed into a separate block."""

    @property
    def makes_exact(self) -> bool:
        """True if rounding computes the exact results in any case."""

    @property
    def cost(self) -> float:
        """Nanoseconds per element, roughly: it decides how many threads share the work."""

    def exact(self, start: int, stop: int) -> NDArray:
        """Return the exact results of elements from start to stop, rounded to odd if float64 cannot represent them."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Write the rounded results of these elements to `out`."""

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        """Write the rounded results of a block with known exact results to `out`."""

    def round_unbounded(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        """Write the results that the format would have without a largest number to `out`."""

    def round_observed(self, plan: Plan, out: NDArray) -> tuple[NDArray | None, int]:
        """Write all results to `out`; return exact results if they are known, and the number of lost addends."""

    def count_lost_addends(self, start: int, stop: int, out: NDArray) -> int:
        """Return the number of finite results that equal one addend although the other one is not zero."""

    def causes(self, start: int, exact: NDArray, out: NDArray) -> NDArray[np.int64]:
        """Return the counts of causes of the NaN among the results `out` from `start`, with these exact results."""


@cache
@in_usual_environment
def plan_for(format: Format, rounding: Rounding, carrier: FloatType, device: Device) -> Plan:
    """Return the plan for rounding values of the dtype `carrier` to `format` on a device."""
    rounding.check_overflow(format)
    loops, grid = device.loops, kernels.rounding.grid
    single, numbers = carrier is np.float32, grid.pack_grid(format, rounding)
    # Every float32 value is a number of FP32, and every float64 value is a number of FP64.
    if (format == FP64 or (format == FP32 and single)) and not rounding.saturates:
        loop = loops.rounding_loops.copy
    elif rounding == nearest_even and format == FP16 and loops.processor.CONVERTS_FP16:
        loop = loops.rounding_loops.round_half
    elif (
        single
        and grid.has_exponents_of_float32(format)
        and not rounding.is_stochastic
        and grid.carries_in_images(rounding)
    ):
        loop = loops.rounding_loops.round_image
    elif not grid.has_plain_grid(format, rounding):
        loop = loops.rounding_loops.round_general
    elif rounding.is_stochastic:
        loop = loops.rounding_loops.round_stochastic
    else:
        if single and grid.holds_in_float32(format):
            numbers = grid.pack_grid_below(format, rounding, format.emax, np.float32)
        by_way = {
            "nearest": loops.rounding_loops.round_nearest,
            "directed": loops.rounding_loops.round_directed,
            "sticky": loops.rounding_loops.round_to_odd,
        }
        loop = by_way[grid.way_of(rounding)]
    unbounded = numbers.copy()
    unbounded[grid.Grid._fields.index("max")] = np.inf
    if format.is_fixed:  # values below the numbers of an unsigned format saturate, like values above
        unbounded[grid.Grid._fields.index("lowest")] = -np.inf
    is_copy = loop is loops.rounding_loops.copy
    wide, precise = is_wide(format), is_precise(format)
    return Plan(
        loop, numbers, unbounded, overflow_limits_of_format(format), format.has_nan, is_copy, wide, precise, device
    )


def overflow_limits_of_format(format: Format) -> tuple[float, float]:
    """Return the limits beyond which results overflow, below zero and above.

    Unsigned formats other than fixed point have no limit below, because a negative result is NaN.
    """
    return format.min if format.is_fixed else -format.max, format.max


@in_usual_environment
def round_planned(source: Source, plan: Plan, out: NDArray, target: Target, draw: Draw | None) -> None:
    """Round the values of a source by a plan into `out`, in C order; the target's observer receives the events."""
    results, observer = out if out.ndim == 1 else out.reshape(-1), target.observer
    if draw is not None and target.rounding.mode != "stochastic":
        draw = None
    size = results.size
    if draw is None and (size <= BLOCK or not plan.device.in_pieces):
        if observer is None:
            source.round_block(plan, 0, size, NO_WORDS, results)
        else:
            round_and_count(source, plan, results, observer, target.operation)
    else:
        words = _words_of(draw, size, target.rounding, plan.device)
        work = partial(_round_range, source, results, plan, words, observer)
        cost = source.cost + (COUNTING if observer is not None else 0) + (DRAWING if words else 0)
        parts = run_all(work, element_ranges(size, cost) if plan.device.in_pieces else [(0, size)])
        if observer is not None:
            notify(observer, sum(parts[1:], start=parts[0]), target.operation)
    if not plan.has_nan:
        check_no_nan(out, target.format)


def is_in_place(out: NDArray, x: NDArray) -> bool:
    """Return True if results on the CPU replace their operand, a vector with more than a few elements."""
    return out.size > SMALL and type(out) is np.ndarray and _is_same_memory(out, x)


@in_usual_environment
def round_in_place(x: NDArray, plan: Plan, out: NDArray) -> NDArray:
    """Round a vector into `out`, an array in the same memory, without random bits and without an observer."""
    # A loop that writes to the memory that it reads is not vectorised: rounding to BF16 took ten times as long. If the
    # results are copied from other memory, it takes 1.7 times as long.
    results = out.reshape(-1)

    def work(piece: tuple[int, int]) -> None:
        for start in range(*piece, BLOCK):
            stop = min(start + BLOCK, piece[1])
            part = scratch("in place", stop - start, out.dtype.type)
            plan.loop(x[start:stop], NO_WORDS, part, plan.numbers)
            results[start:stop] = part

    run_all(work, element_ranges(results.size, IN_PLACE))
    return out


def _words_of(draw: Draw | None, size: int, rounding: Rounding, device: Device) -> Words | None:
    """Return a function that returns the words of a block of elements; None without draws."""
    if draw is None:
        return None
    if draw.user_bits is None:
        return partial(random_words, draw, bits=rounding.bits, device=device)
    user_words = device.to_device(draw.user_bits.take_words(size, rounding.bits))
    return lambda start, stop: user_words[start:stop]


def _round_range(
    source: Source, results: NDArray, plan: Plan, words_of: Words | None, observer: Any, piece: tuple[int, int]
) -> NDArray[np.int64]:
    """Round the elements of a piece; return its events if they are observed."""
    events = events_for(observer)
    # Without random words and intermediate results, nothing needs to stay in the cache.
    in_blocks = plan.device.in_pieces and (words_of or observer is not None or source.makes_blocks)
    block = BLOCK if in_blocks else max(piece[1] - piece[0], 1)
    for start in range(*piece, block):
        stop = min(start + block, piece[1])
        words = words_of(start, stop) if words_of else NO_WORDS
        out = results[start:stop]
        if observer is not None:
            _round_and_count(source, plan, start, words, out, events)
        else:
            source.round_block(plan, start, stop, words, out)
    return events


def _round_and_count(
    source: Source, plan: Plan, start: int, words: NDArray, out: NDArray, events: NDArray[np.int64]
) -> None:
    """Round a block and add to its events; exact results are computed if a rounding or a count needs them."""
    exact, lost = round_for_counts(source, plan, start, words, out)
    shown = _add_counts(plan, out, lost, events)
    if shown or events.size > SIZE:
        _add_rare_counts(source, plan, start, words, out, exact, shown, events)


def is_one_block(plan: Plan, size: int, draw: Draw | None) -> bool:
    """Return True if `round_and_count` may round this number of results."""
    return draw is None and plan.has_nan and (size <= BLOCK or not plan.device.in_pieces)


#: The operands of sums of products, and the format of the accumulator.
SumOperands = tuple[tuple[NDArray, NDArray], Format | None]


def round_and_count(
    source: Source,
    plan: Plan,
    out: NDArray,
    observer: Observer,
    operation: str,
    sum_operands: SumOperands | None = None,
) -> None:
    """Round one block without random words into the vector `out`; the observer receives the events.

    An observer that only adds up events receives them in its own vector. A new vector of 17 KB for each call took 15 to
    20 % of an observed step of a small model. If the values are sums of products, `sum_operands` show why one is NaN.
    """
    counts = spare = None
    if plan.device is CPU:
        counts = observer.bound.get(operation) if type(observer) is WithPath else None
        counts = bound_counts(observer, operation) if counts is None else counts
    if counts is None:
        spare = getattr(observer, "_spare_events", None)
        events = spare.pop() if spare else events_for(observer)
        exact, lost = source.round_observed(plan, out)
        shown = _add_counts(plan, out, lost, events)
        is_rare = shown != 0 or events.size > SIZE
    else:
        exact, lost = source.round_observed(plan, out)
        with counts.lock:
            totals = counts.vector()
            shown = CPU.loops.counting.count_results(out, plan.numbers, totals, lost, plan.is_wide, plan.is_precise)
            if not shown % 2 and not counts.observer.more:
                if shown:
                    # Only events of zeros and of subnormal numbers remain, and the loop counts them from exact results.
                    exact = source.exact(0, out.size) if exact is None else exact
                    CPU.loops.counting.count_ends(exact, out, plan.numbers, totals, shown)
                return
        # Results may be NaN, and the observer needs the causes of this call.
        events, is_rare = events_for(counts.observer), True
    if is_rare:
        _add_rare_counts(source, plan, 0, NO_WORDS, out, exact, shown, events)
    if sum_operands is not None and (shown % 2 or spare is None):
        observer = SumObserver(observer, *sum_operands)
    notify(observer, events, operation)


def round_for_counts(
    source: Source, plan: Plan, start: int, words: NDArray, out: NDArray
) -> tuple[NDArray | None, int]:
    """Round a block; return its exact results, if they were computed, and the number of lost addends."""
    exact, stop = None, start + out.size
    if source.makes_exact:
        exact = source.exact(start, stop)
        source.round_exact(plan, exact, start, words, out)
    else:
        source.round_block(plan, start, stop, words, out)
    return exact, source.count_lost_addends(start, stop, out)


def _add_counts(plan: Plan, out: NDArray, lost: int, events: NDArray[np.int64]) -> int:
    """Add the events that results show without the exact ones, and the number of lost addends.

    Return 0 if `_add_rare_counts` has nothing to add. Otherwise the number is odd if results may be infinite or NaN.
    """
    loops = plan.device.loops
    shown: int = loops.counting.count_results(out, plan.numbers, events, lost, plan.is_wide, plan.is_precise)
    return shown


@in_usual_environment
def _add_rare_counts(
    source: Source, plan: Plan, start: int, words: NDArray, out: NDArray, exact: NDArray | None, shown: int,
    events: NDArray[np.int64],
) -> None:  # fmt: skip
    """Add the events at both ends of the range, the causes of NaN, and the optional counts."""
    stop, chosen = start + out.size, None
    exact = source.exact(start, stop) if exact is None else exact
    is_unclear = plan.device.loops.counting.count_ends(exact, out, plan.numbers, events, shown)
    if plan.overflow_limits[1] == FP64.max:  # an exact result of this size may be any larger one
        is_unclear = is_unclear or bool((np.abs(out) == FP64.max).any())
    if is_unclear:
        # Some results became the largest number. Rounding without that bound shows which of them overflowed.
        chosen = scratch("chosen", out.size, np.float64, plan.device)
        source.round_unbounded(plan, exact, start, words, chosen)
        beyond = (
            ((chosen > plan.overflow_limits[1]) | (chosen < plan.overflow_limits[0]))
            & np.isfinite(exact)
            & ~np.isinf(out)
        )
        events[OVERFLOW] += int(np.count_nonzero(beyond))
    if shown % 2 and events[NAN]:
        events[FIRST_CAUSE:WIDE] += source.causes(start, exact, out)
    if events.size > SIZE:
        add_optional_counts(exact, out, chosen, plan.overflow_limits, events)


def is_one_piece(source: Source, size: int) -> bool:
    """Return True if this thread rounds all elements in one call, if nothing is drawn or observed."""
    return size <= BLOCK or (not source.makes_blocks and busy_threads(size * source.cost) < 2)


def check_no_nan(out: NDArray, format: Format) -> None:
    """Raise ValueError if there is a NaN among results in a format without NaN."""
    if not np.isnan(out).any():
        return
    place = tuple(int(i) for i in np.argwhere(np.isnan(out))[0])
    what = "NaN" if format.signed else "NaN or negative"
    raise ValueError(f"{format} has no NaN, but the result at index {place} is {what}.")


def element_ranges(size: int, cost: float) -> list[tuple[int, int]]:
    """Return the ranges of elements for the threads, if an element takes `cost` nanoseconds."""
    count = busy_threads(size * cost)
    if count < 2:
        return [(0, size)]
    length = -(-size // (count * GRAIN)) * GRAIN
    return [(start, min(start + length, size)) for start in range(0, size, length)]


Results = NDArray[np.floating]


def check_out(out: Any, operands: Sequence[NDArray], dtype: FloatType, device: Device) -> None:
    """Raise ValueError unless `out` is an array for the results of these operands."""
    if not isinstance(out, np.ndarray) and not is_on_gpu(out):
        raise ValueError(f"out must be an array to write to, got {type(out).__name__}.")
    if is_on_gpu(out) != (device is not CPU):
        places = ("the CPU", "a GPU")
        raise ValueError(
            f"out must be on the device of the operands, {places[device is not CPU]}; it is on another one."
        )
    shape = broadcast_shape(list(operands))
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"out must have the results' shape and type, {shape} and {np.dtype(dtype)}; it has {out.shape} and "
            f"{out.dtype}."
        )
    if device is CPU and not out.flags.writeable:
        raise ValueError("out must be writeable, got a read-only array; pass a copy.")


def output_array(
    out: Results | None,
    shape: tuple[int, ...],
    vectors: Sequence[NDArray],
    plan: Plan,
    target: Target,
    reads_once: bool,
) -> Results:
    """Return the array to which results of these vectors are written: `out` itself if possible, otherwise another one.

    `reads_once` is True if a result is written only after its operands have been read for the last time. Then `out` may
    be one of the vectors. If a NaN is an error, `out` must not be changed by it.
    """
    if out is None:
        return empty(shape, target.dtype, plan.device)
    if plan.device is CPU and plan.has_nan and out.flags.carray:
        is_free = reads_once and target.observer is None
        if all(not np.may_share_memory(out, x) or (is_free and _is_same_memory(out, x)) for x in vectors):
            return out
    if out.size == 0 or plan.device is not CPU:
        return empty(shape, target.dtype, plan.device)
    return scratch("results", out.size, target.dtype).reshape(shape)


def copied_to_out(results: Results, out: Results | None) -> Results:
    """Return the results, copied to `out` if that is given."""
    if out is None or results is out:
        return results
    out[...] = results
    return out


def _is_same_memory(out: NDArray, x: NDArray) -> bool:
    """Return True if a vector has the elements of an array, in the same memory."""
    same = out.__array_interface__["data"] == x.__array_interface__["data"]
    return same and out.size == x.size and out.dtype == x.dtype
