"""Rounding arrays: which loop serves a format and a mode, block by block on several cores."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.observer import UNCHANGED, Observer, no_events
from simfloat.arithmetic.operands import FloatType, check_no_nan
from simfloat.arithmetic.stream import BitStream
from simfloat.arithmetic.threads import get_threads, run_all, scratch
from simfloat.formats import FP32, FP64, Format, Rounding, nearest_even

if TYPE_CHECKING:
    from simfloat.arithmetic.sources import Source

#: Elements a block: its exact results and random words stay in the second-level cache.
BLOCK = 1 << 16

#: Elements below which a second thread costs more than it saves: waking one takes as long as rounding 10^5 of them.
LEAST_PIECE = 1 << 18

NO_WORDS = np.zeros(1, np.uint32)


class Plan(NamedTuple):
    """How to round to a format in a mode: a loop over a block, and the numbers of the grid that it reads."""

    format: Format
    rounding: Rounding
    loop: Callable[[NDArray, NDArray, NDArray, NDArray], None]  # (x, words, out, numbers)
    numbers: NDArray[np.float64]
    unbounded: NDArray[np.float64]  # the same without a largest number
    has_nan: bool


@cache
def plan_for(format: Format, rounding: Rounding, carrier: FloatType = np.float64) -> Plan:
    """The plan for rounding numbers that travel as `carrier` to `format`."""
    loops, grid = kernels.rounding, kernels.grid
    # Every float32 number is a number of FP32, and every float64 number one of FP64.
    identity = format == FP64 or (format == FP32 and carrier is np.float32)
    if identity and not rounding.saturates:
        loop = loops.copy
    elif carrier is np.float32 and rounding == nearest_even and grid.has_exponents_of_float32(format):
        loop = loops.round_image
    elif not grid.plain(format, rounding):
        loop = loops.round_general
    elif rounding.is_stochastic:
        loop = loops.round_stochastic
    else:
        quick = {"nearest_even": loops.round_nearest, "to_odd": loops.round_to_odd}
        loop = quick.get(rounding.mode, loops.round_directed)
    unbounded = grid.numbers(format, rounding).copy()
    unbounded[grid.Grid._fields.index("max")] = np.inf
    return Plan(format, rounding, loop, grid.numbers(format, rounding), unbounded, format.has_nan)


class Draw(NamedTuple):
    """Where a stochastic call finds its random words."""

    call: int
    seed: int


def take_draw(stream: BitStream | None, *roundings: Rounding) -> Draw | None:
    """The draw of the stream's next call if any of the roundings is stochastic, else None.

    Raises ValueError if one is and there is no stream.
    """
    for rounding in roundings:
        if rounding.mode == "stochastic":
            if stream is None:
                raise ValueError("Stochastic rounding needs random bits: pass stream=simfloat.BitStream(seed).")
            return Draw(stream.take_call(), stream.seed)
    return None


def round_all(
    source: Source,
    out: NDArray,
    plan: Plan,
    *,
    operation: str,
    draw: Draw | None,
    observer: Observer | None,
) -> None:
    """Round the source's numbers into the array `out`, in C order, and tell the observer."""
    results = out.reshape(-1)
    if plan.rounding.mode != "stochastic":
        draw = None
    if results.size <= BLOCK and draw is None and observer is None:
        source.round_block(plan, 0, results.size, NO_WORDS, results)
    else:
        parts = run_all(lambda piece: _round_piece(source, piece, results, plan, draw, observer), pieces(results.size))
        if observer:
            for events in parts[1:]:
                parts[0] += events
            observer.observe(parts[0], operation)
    if not plan.has_nan:
        check_no_nan(out, plan.format)


def _round_piece(
    source: Source, piece: tuple[int, int], results: NDArray, plan: Plan, draw: Draw | None, observer: Observer | None
) -> NDArray[np.int64]:
    """Round the elements of a piece; returns its events if they are observed."""
    events, unbounded = no_events(), plan._replace(numbers=plan.unbounded)
    # Without random words and intermediate results there is nothing to keep in the cache.
    block = BLOCK if draw or observer or source.makes_blocks else max(piece[1] - piece[0], 1)
    for start in range(*piece, block):
        stop = min(start + block, piece[1])
        words = random_words(start, stop, draw) if draw else NO_WORDS
        out = results[start:stop]
        source.round_block(plan, start, stop, words, out)
        if observer:
            chosen = scratch("chosen", stop - start, np.float64)
            source.round_block(unbounded, start, stop, words, chosen)
            kernels.rounding.count_events(source.exact(start, stop), chosen, out, plan.numbers, events)
            events[UNCHANGED] += source.unchanged(start, stop, out)
    return events


def random_words(start: int, stop: int, draw: Draw) -> NDArray[np.uint32]:
    """The words of the elements from start to stop, where start is a multiple of 4."""
    # Words come in fours; a short last block leaves some of them unused.
    words = scratch("words", (stop - start + 3) // 4 * 4, np.uint32)
    kernels.random.fill_words(words, start, draw.call, 0, np.uint64(draw.seed))
    return words[: stop - start]


def pieces(size: int) -> list[tuple[int, int]]:
    """The ranges of elements that the threads take, in whole blocks."""
    count = min(get_threads(), size // LEAST_PIECE)
    if count < 2:
        return [(0, size)]
    length = -(-size // (count * BLOCK)) * BLOCK
    return [(start, min(start + length, size)) for start in range(0, size, length)]
