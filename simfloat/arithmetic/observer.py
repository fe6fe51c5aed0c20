"""Observers: what receives the events of roundings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Observer(ABC):
    """Receives the events of every rounding it is passed to; anything with its method `observe` serves.

    One that has `state_dict` and `load_state_dict`, or `state` and `load_state`, is part of a training's checkpoints.

    Events come as a vector of counts, laid out as `simfloat.kernels.events` says; behind them, for an observer whose
    `more` is true, as `simfloat.kernels.events` says.
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
    return bool(getattr(observer, "wants", _everything)(path, phase))


def _everything(path: str, phase: str) -> bool:
    return True
