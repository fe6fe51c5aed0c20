"""Observers: what receives the events of roundings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.environment import in_callers_environment
from simfloat.kernels.events import SIZE, wants_optional_counts


class Observer(ABC):
    """Receives the events of every rounding it is passed to; anything with its method `observe` serves.

    One that has `state_dict` and `load_state_dict`, or `state` and `load_state`, is part of a training's checkpoints.

    Events come as a vector of counts, in the order that `simfloat.kernels.events` lists. An observer whose `more` is
    true receives the counts of saturated and of inexact results behind them.
    """

    #: Whether saturated and inexact results are to be counted too.
    more: bool = False

    def wants(self, path: str, phase: str) -> bool:
        """Whether events of this path and phase are of use; the roundings of others then run at full speed."""
        return True

    @abstractmethod
    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Take the events of one call: `operation` on the tensor at `path` during `phase`.

        The array belongs to the observer from then on.
        """

    def follow_policy(self, policy: Any) -> None:
        """Take the policy under which a simulation makes the results that follow."""
        return

    def step(self, /, **values: float) -> None:
        """Take the end of a step of a training, and numbers of it by name; `simfloat.train.fit` calls it."""
        return


def check_observer(observer: Any) -> None:
    """Raise ValueError unless `observer` is None or has the method `observe`."""
    if observer is None:
        return
    if isinstance(observer, type) or not callable(getattr(observer, "observe", None)):
        raise ValueError(
            f"observer must be an object with a method observe, for example simfloat.Recorder(); got {observer!r}."
        )


def wants(observer: Observer | None, path: str, phase: str) -> bool:
    """Whether there is an observer that has use for events of this path and phase."""
    if observer is None:
        return False
    return bool(getattr(observer, "wants", _always)(path, phase))


def _always(path: str, phase: str) -> bool:
    return True


def notify(observer: Observer, events: NDArray[np.int64], operation: str, *where: str) -> None:
    """Give events to an observer; to a user's own one in the floating-point environment of the user's call."""
    if _is_ours(type(observer)):
        observer.observe(events, operation, *where)
    else:
        in_callers_environment(observer.observe, events, operation, *where)


@cache
def _is_ours(kind: type) -> bool:
    """Whether a class of observers is one of this package's."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


class ObserverGroup(Observer):
    """Passes events on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers
        self.more = any(map(wants_optional_counts, observers))

    def wants(self, path: str, phase: str) -> bool:
        """Whether one of them has use for events of this path and phase."""
        return any(wants(observer, path, phase) for observer in self.observers)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Give each observer events of its own, as many as it counts."""
        for observer in self.observers:
            notify(
                observer,
                events.copy() if wants_optional_counts(observer) else events[:SIZE].copy(),
                operation,
                path,
                phase,
            )


#: Finds the observer of the simulation in force. Simulations add it, since they are built on this package.
_finders: list[Callable[[], Observer | None]] = []


def set_observer_finder(find: Callable[[], Observer | None]) -> None:
    """Observe operations that follow no policy by the observer that `find` returns at that time."""
    _finders.append(find)


def observer_in_force() -> Observer | None:
    """The observer of the simulation in force; None outside of any."""
    return _finders[0]() if _finders else None
