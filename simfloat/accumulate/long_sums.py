"""Sums that take long: on a terminal they are made in pieces, which are counted, with a bar that shows how many."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.engine import Engine, Region, takes_stacks
from simfloat.accumulate.given_draws import UserDrawsEngine
from simfloat.accumulate.product_plan import PreparedSum
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.operands import FloatType
from simfloat.status_line import is_line_visible, status

#: Nanoseconds of work from which on sums may take seconds: costs of engines are rough.
LEAST_WATCHED_WORK = 1e8

#: Nanoseconds of a piece: many beside what an engine does once a call, as to bring the right operand into its form.
PIECE_WORK = 1e8

#: Nanoseconds a product of a single sum, whose steps wait for one another.
SINGLE_SUM_COST = 5.0

#: Seconds between two looks at the bar, and characters of it.
REFRESH_SECONDS, BAR_WIDTH = 0.25, 20


def with_progress_bar(
    sum_up: Callable[[PreparedSum], NDArray], work: PreparedSum, count: int, depth: int, accumulator: Accumulator
) -> NDArray:
    """What `sum_up(work)` returns, `count` sums of `depth` products, with a bar where that takes long and is watched.

    Sums have the same bits in pieces: of several rows, or of a single one where its sum resumes.
    """
    engine = work.engine
    if (
        max(count * engine.cost, SINGLE_SUM_COST) * depth < LEAST_WATCHED_WORK
        or work.device is not CPU
        or not is_line_visible()
    ):
        return sum_up(work)
    if isinstance(engine, UserDrawsEngine):  # takes the user's draws for all its sums at once
        return sum_up(work)
    chunk = accumulator.chunk if accumulator.resumes and work.scales is None else None
    metered = Metered(engine, chunk or 0)
    total, named = (
        count * depth,
        f"{count:,} sums of {depth:,} products" if count > 1 else f"a sum of {depth:,} products",
    )
    with status(
        lambda: f"simfloat {progress_bar(sum(metered.done) / total, metered.seconds)}: {named}", every=REFRESH_SECONDS
    ):
        return sum_up(work._replace(engine=metered))


def progress_bar(share: float, seconds: float) -> str:
    """A bar for what is done of something, after so many seconds."""
    full = int(share * BAR_WIDTH)
    left = f", {seconds / share - seconds:.0f} s left" if share else ""
    return f"[{'#' * full}{'-' * (BAR_WIDTH - full)}] {share:.0%}, {seconds:.0f} s{left}"


@dataclass(eq=False)
class Metered:
    """An engine that works in pieces, and counts the products of those that are done."""

    engine: Engine
    chunk: int  # products that the running sum takes at a time, if it resumes, else 0
    done: list[int] = field(default_factory=list)  # threads append to it
    begun: float | None = None
    is_stopped: bool = False

    @property
    def seconds(self) -> float:
        """Since its first piece began."""
        return 0.0 if self.begun is None else time.monotonic() - self.begun

    @property
    def carrier(self) -> FloatType:
        return self.engine.carrier

    @property
    def cost(self) -> float:
        return self.engine.cost

    @property
    def takes_stacks(self) -> bool:
        return takes_stacks(self.engine)

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        self.begun = self.begun or time.monotonic()
        try:
            for piece in self._pieces(a, b, out, region):
                if self.is_stopped:  # an error or Ctrl-C in another thread
                    return
                self.engine.run(*piece)
                self.done.append(piece[0].size * out.shape[1])
        except BaseException:
            self.is_stopped = True
            raise

    def _pieces(
        self, a: NDArray, b: NDArray, out: NDArray, region: Region
    ) -> Iterator[tuple[NDArray, NDArray, NDArray, Region]]:
        """The calls of the engine that make these sums."""
        rows, depth = a.shape
        if len(b) != depth:  # a stack of matrices
            yield a, b, out, region
        elif rows > 1:
            height = max(int(PIECE_WORK / max(out.shape[1] * depth * self.cost, 1.0)), 1)
            for first in range(0, rows, height):
                part = slice(first, min(first + height, rows))
                scales = region.scales and (region.scales[0][part], region.scales[1])
                start = region.first + first * region.row_step
                yield a[part], b, out[part], region._replace(first=start, scales=scales)
        else:
            steps = max(int(PIECE_WORK / max(out.shape[1] * self.cost, SINGLE_SUM_COST)), 1)
            steps = math.ceil(steps / self.chunk) * self.chunk if self.chunk else max(depth, 1)
            for first in range(0, depth, steps):
                yield a[:, first : first + steps], b[first : first + steps], out, region
