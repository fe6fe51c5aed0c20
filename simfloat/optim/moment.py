"""Moments of an optimizer, and how many of their elements stall."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.kernels.events import UNCHANGED, no_events
from simfloat.simulation import Arithmetic


def add_observed(arithmetic: Arithmetic, a: NDArray, b: NDArray, before: NDArray, change: NDArray) -> NDArray:
    """a + b, the moment that follows `before`; `change` is what it would differ by, were nothing rounded.

    An observer hears of it as ``moment``. Unchanged are elements that stay as they were though their change is not
    zero: whether the decay was rounded away, the new addend, or one made up for the other.
    """
    heard = _Heard()
    after = arithmetic.heard_by(heard).add(a, b)
    heard.events[UNCHANGED] = np.count_nonzero((after == before) & np.isfinite(after) & (change != 0))
    if arithmetic.target.observer is not None:
        arithmetic.target.observer.observe(heard.events, arithmetic.target.operation)
    return after


def change_of(before: NDArray, keep: float, x: NDArray, take: float) -> NDArray:
    """keep * before + take * x - before, in float64: zero where x is what the average has reached."""
    with np.errstate(all="ignore"):
        return take * x.astype(np.float64) - (1.0 - keep) * before.astype(np.float64)


class _Heard(Observer):
    """An observer that adds up what it hears."""

    def __init__(self) -> None:
        self.events = no_events()

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        self.events += events
