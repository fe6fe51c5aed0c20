"""Scatter-add of rows, as for gradients of embeddings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.arithmetic.observer import notify
from simfloat.kernels.events import events_for, wants_optional_counts
from simfloat.simulation.arithmetic import Arithmetic


def add_rows(u: Arithmetic, g: NDArray, places: NDArray[np.integer], shape: tuple[int, int]) -> NDArray:
    """The rows of g, one for each of `places`, added into an array of `shape`; rows that none names are zero.

    Rows of one place are added in their order; there is nothing to add where a place is named once.
    """
    count, width = shape
    rows, full = g.reshape(len(places), width), np.zeros(shape, g.dtype, like=g)
    uses = np.bincount(places, minlength=count)
    if (uses < 2).all():
        full[places] = rows
        return u.round(full)
    observer = u.target.observer
    together = _SummedEvents(observer)
    summing = u.with_observer(together) if observer is not None else u
    order, times = np.argsort(places, kind="stable"), uses[places]
    full[places[times == 1]] = rows[times == 1]
    result = np.empty(shape, u.target.dtype, like=g)
    result[uses < 2] = summing.round(full[uses < 2])
    for number in np.unique(times[times > 1]).tolist():
        named = uses == number
        stacked = rows[order[times[order] == number]].reshape(int(np.count_nonzero(named)), number, width)
        result[named] = summing.sum(stacked, (1,))
    if observer is not None:
        notify(observer, together.events, u.target.operation)
    return result


class _SummedEvents(Observer):
    """Adds up the events of several roundings, which make one result."""

    def __init__(self, observer: Observer | None) -> None:
        self.events, self.more = events_for(observer), wants_optional_counts(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        self.events += events
