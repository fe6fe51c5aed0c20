"""What roundings did, as counts that an observer receives."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: The first entries of an event vector; the rest is the histogram of floor(log2|result|) from LOWEST_EXPONENT on.
KINDS = ("total", "overflow", "underflow", "subnormal", "nan", "unchanged", "zero")
LOWEST_EXPONENT = -1074
EVENTS = len(KINDS) + 1024 - LOWEST_EXPONENT

UNCHANGED = KINDS.index("unchanged")


class Observer(Protocol):
    """Receives the events of every rounding it is passed to."""

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Take the event vector of one call: `operation` on the tensor at `path` during `phase`."""


def wants(observer: Observer | None, path: str, phase: str) -> bool:
    """Whether there is an observer that has use for events of this path and phase; one may have a method to say so."""
    return observer is not None and getattr(observer, "wants", _everything)(path, phase)


def _everything(path: str, phase: str) -> bool:
    return True


def no_events() -> NDArray[np.int64]:
    """An event vector of zeros."""
    return np.zeros(EVENTS, np.int64)
