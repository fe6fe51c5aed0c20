"""Sums of lanes, as vector instructions make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfloat.accumulate._sequential import as_accumulator
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.blocked_engines import InterleavedEngine, RunLengths
from simfloat.accumulate.engine import Engine
from simfloat.accumulate.operand_bounds import Problem
from simfloat.accumulate.sums_of_sums import SumOfSums
from simfloat.checks import is_integer
from simfloat.formats.format_names import FormatLike


def lanes(count: int, inner: Accumulator | FormatLike, outer: Accumulator | FormatLike) -> SumOfLanes:
    """Product k goes to lane k mod `count`; each lane is summed from zero by `inner`, the lanes in order by `outer`.

    That is how vector instructions sum: a lane of a register takes every so many-th product, and in the end the lanes
    are added, one after the other (a format as `outer`), pairwise or in the order of a :func:`tree`. Of fewer products
    than lanes each has a lane. Both may be any accumulator but `exact`, and a format means `sequential`.

    Raises ValueError unless `count` is a positive integer; for exact sums, which have no format; and for units that
    read block scales, whose blocks are runs: see :func:`blocked`.

    Examples:
        >>> x = [2048.0, 1.0, 1.0, 1.0]
        >>> sf.sum(x, accumulate=sf.FP16), sf.sum(x, accumulate=sf.lanes(2, sf.FP16, sf.FP16))
        (array(2048.), array(2050.))
    """
    if not is_integer(count, 1):
        raise ValueError(f"count must be a positive integer, the number of lanes; got {count!r}.")
    return SumOfLanes(int(count), inner=as_accumulator(inner), outer=as_accumulator(outer))


@dataclass(frozen=True, repr=False)
class SumOfLanes(SumOfSums):
    """See :func:`lanes`."""

    count: int

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "lanes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.scales:
            raise ValueError(f"Scaled blocks are runs, not lanes: write blocked(size, ...) for {self.inner!r}.")

    def lengths(self, terms: int) -> RunLengths:
        """As many runs as there are lanes."""
        return RunLengths(max(-(-terms // self.count), 1), self.count)

    def engine(self, problem: Problem) -> Engine:
        """Lanes are runs of the products in another order."""
        return InterleavedEngine(self.count, super().engine(problem))
