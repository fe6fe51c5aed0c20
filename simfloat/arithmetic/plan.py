"""Rounding arrays: which kernel serves a format and a mode, block by block on several cores."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.observer import Observer, no_events
from simfloat.arithmetic.stream import BitStream
from simfloat.arithmetic.threads import get_threads, run_all, scratch
from simfloat.formats import FP32, FP64, Format, Rounding

#: Elements a block: its exact results and random words stay in the second-level cache.
BLOCK = 1 << 14

NO_WORDS = np.zeros(1, np.uint32)


class Plan(NamedTuple):
    """How to round to a format in a mode: a loop over a block, and the numbers of the grid that it reads."""

    format: Format
    rounding: Rounding
    loop: Callable[[NDArray, NDArray, NDArray, NDArray], None]  # (x, words, out, numbers)
    numbers: NDArray[np.float64]

    def unbounded(self) -> Plan:
        """The same plan for a format without a largest number."""
        numbers = self.numbers.copy()
        numbers[kernels.grid.Grid._fields.index("max")] = np.inf
        return self._replace(numbers=numbers)


class Source(Protocol):
    """Numbers to be rounded, block by block: exact results of a computation."""

    carrier: type  # float32 or float64, what `exact` gives

    def exact(self, start: int, stop: int) -> NDArray:
        """The exact results of the elements from start to stop, rounded to odd where float64 cannot hold them."""

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Write the rounded results of those elements to `out`."""


class Elements(NamedTuple):
    """The elements of a vector, to be rounded as they are."""

    x: NDArray

    @property
    def carrier(self) -> type:
        """The vector's own type."""
        return self.x.dtype.type

    def exact(self, start: int, stop: int) -> NDArray:
        """A slice of the vector."""
        return self.x[start:stop]

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Round a slice of the vector."""
        plan.loop(self.x[start:stop], words, out, plan.numbers)


@cache
def plan_for(format: Format, rounding: Rounding, carrier: type = np.float64) -> Plan:
    """The plan for rounding numbers that travel as `carrier` to `format`."""
    loops, grid = kernels.rounding, kernels.grid
    # Every float32 number is a number of FP32, and every float64 number one of FP64.
    identity = format == FP64 or (format == FP32 and carrier is np.float32)
    if identity and not rounding.saturates:
        loop = loops.copy
    elif not grid.plain(format, rounding):
        loop = loops.round_general
    elif rounding.is_stochastic:
        loop = loops.round_stochastic
    else:
        loop = loops.round_nearest if rounding.mode == "nearest_even" else loops.round_directed
    return Plan(format, rounding, loop, grid.numbers(format, rounding))


class Draw(NamedTuple):
    """Where a stochastic call finds its random words."""

    call: int
    seed: int


def take_draw(stream: BitStream | None, *roundings: Rounding) -> Draw | None:
    """The draw of the stream's next call if any of the roundings is stochastic, else None.

    Raises ValueError if one is and there is no stream.
    """
    if not any(rounding.is_stochastic for rounding in roundings):
        return None
    if stream is None:
        raise ValueError("Stochastic rounding needs random bits: pass stream=simfloat.BitStream(seed).")
    return Draw(stream.take_call(), stream.seed)


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
    draws = draw if plan.rounding.is_stochastic else None
    unbounded = plan.unbounded() if observer else plan

    def work(piece: tuple[int, int]) -> NDArray | None:
        events = no_events() if observer else None
        for start in range(*piece, BLOCK):
            stop = min(start + BLOCK, piece[1])
            words = random_words(start, stop, draws) if draws else NO_WORDS
            source.round_block(plan, start, stop, words, results[start:stop])
            if events is not None:
                chosen = scratch("chosen", stop - start, np.float64)
                source.round_block(unbounded, start, stop, words, chosen)
                exact = source.exact(start, stop)
                kernels.rounding.count_events(exact, chosen, results[start:stop], plan.numbers, events)
        return events

    counted = run_all(work, pieces(results.size))
    check_no_nan(out, plan.format)
    if observer:
        observer.observe(sum(counted), operation)


def random_words(start: int, stop: int, draw: Draw) -> NDArray[np.uint32]:
    """The words of the elements from start to stop, where start is a multiple of 4."""
    # Words come in fours; a short last block leaves some of them unused.
    words = scratch("words", (stop - start + 3) // 4 * 4, np.uint32)
    kernels.random.fill_words(words, start, draw.call, 0, np.uint64(draw.seed))
    return words[: stop - start]


def pieces(size: int) -> list[tuple[int, int]]:
    """The ranges of elements that the threads take, in whole blocks."""
    count = min(get_threads(), size // (2 * BLOCK))
    if count < 2:
        return [(0, size)]
    length = -(-size // (count * BLOCK)) * BLOCK
    return [(start, min(start + length, size)) for start in range(0, size, length)]


def check_no_nan(out: NDArray, format: Format) -> None:
    """Raise ValueError if there is a NaN among results in a format that has none."""
    if format.has_nan or not np.isnan(out).any():
        return
    place = tuple(int(i) for i in np.argwhere(np.isnan(out))[0])
    what = "NaN" if format.signed else "NaN or negative"
    raise ValueError(f"{format} has no NaN, but the result at index {place} is {what}.")


def result_dtype(operands: list[NDArray], format: Format) -> type:
    """float32 if all operands are float32 and the format fits, else float64."""
    single = format.fits_float32 and all(operand.dtype == np.float32 for operand in operands)
    return np.float32 if single else np.float64
