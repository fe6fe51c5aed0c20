"""Moments of an optimizer, and how many of their elements stall."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.kernels.events import UNCHANGED, events_for, wants_more
from simfloat.simulation.arithmetic import Arithmetic


class Average(NamedTuple):
    """What a moment is made of: keep * before + take * x."""

    before: NDArray
    keep: float
    x: NDArray
    take: float

    def stalled(self, after: NDArray) -> int:
        """How many elements stay as they were, though keep * before + take * x is something else."""
        same = after == self.before
        before, x = self.before[same].astype(np.float64), self.x[same].astype(np.float64)
        with np.errstate(all="ignore"):
            changes = self.take * x != (1.0 - self.keep) * before
        return int(np.count_nonzero(changes & np.isfinite(before)))


def add_observed(arithmetic: Arithmetic, a: NDArray, b: NDArray, average: Average) -> NDArray:
    """a + b, the products of an average whose observer is told, as of a ``moment``, how many elements stalled.

    These count as unchanged: whether the decay was rounded away, the new addend, or one made up for the other.
    """
    heard = _Heard(arithmetic.target.observer)
    after = arithmetic.heard_by(heard).add(a, b)
    heard.events[UNCHANGED] = average.stalled(after)
    if arithmetic.target.observer is not None:
        arithmetic.target.observer.observe(heard.events, arithmetic.target.operation)
    return after


class _Heard(Observer):
    """An observer that adds up what it hears."""

    def __init__(self, observer: Observer | None) -> None:
        self.events, self.more = events_for(observer), wants_more(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        self.events += events
