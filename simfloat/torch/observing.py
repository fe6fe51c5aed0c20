"""What an observer hears of a parameter's gradient: at the parameter's path, once it is complete."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.arithmetic.observer import wants
from simfloat.kernels.events import TOTAL, wants_more
from simfloat.simulation.arithmetic import Arithmetic, Located
from simfloat.simulation.place import Place


class HeldEvents(Observer):
    """An observer that keeps what it hears of one operation, to be passed on later."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._events: list[tuple[NDArray[np.int64], str]] = []
        self.more = wants_more(place.observer)

    @property
    def count(self) -> int:
        """How many results the last rounding had."""
        return int(self._events[-1][0][TOTAL]) if self._events else 0

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Keep the events of one call."""
        self._events.append((events, operation))

    def tell(self, path: str | None = None) -> None:
        """Pass on what was heard: the last rounding as one at `path`, all others at the layer's own."""
        observer, last = self._place.observer, len(self._events) - 1
        for number, (events, operation) in enumerate(self._events):
            where = path if number == last and path is not None else self._place.path
            if observer is not None and wants(observer, where, "backward"):
                observer.observe(events, operation, where, "backward")
        self._events.clear()


class Renamed(Observer):
    """An observer that hears of every operation by one name."""

    def __init__(self, observer: Observer, name: str) -> None:
        self._observer, self._name = observer, name
        self.more = wants_more(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass the events on."""
        self._observer.observe(events, self._name, path, phase)


def held_events(place: Place, path: str) -> HeldEvents | None:
    """Who hears of the gradient of the parameter at `path`, if the place's observer wants to."""
    observer = place.observer
    if observer is None:
        return None
    is_wanted = wants(observer, path, "backward") or wants(observer, place.path, "backward")
    return HeldEvents(place) if is_wanted else None


def observed_at(path: str, place: Place, arithmetic: Arithmetic) -> Arithmetic:
    """The same arithmetic, of which the place's observer hears at another path, if it wants to."""
    observer = place.observer
    if observer is None or not wants(observer, path, "backward"):
        return arithmetic.observed_by(None)
    return arithmetic.observed_by(Located(observer, path, "backward", wants_more(observer)))
