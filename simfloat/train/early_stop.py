"""Early stopping: ends a training once a monitored value has stopped improving."""

from __future__ import annotations

import math
from collections.abc import Iterable

from simfloat.checks import check_count
from simfloat.environment import in_usual_environment
from simfloat.optim.optimizer_options import number_from_zero
from simfloat.train.history import History


@in_usual_environment
class EarlyStop:
    """Says that training is to stop: `monitor` has not improved for `patience` evaluations, or steps.

    monitor names a value that `evaluate` gives, or else a column of the history. Where `fit` evaluates, nothing is
    watched before the first evaluation: "loss" is the loss that `evaluate` gives, if it gives one, and not that of the
    training beside it. Better is less, with mode="max" more, by more than min_delta. It follows from the history alone,
    so that a resumed training stops at the same step.

    Raises ValueError for a patience that is no integer above zero, a negative min_delta and an unknown mode; when it is
    asked, for a monitor that is not in the history, and from `fit` at once where nothing is evaluated.

    Examples:
        >>> sf.train.EarlyStop("accuracy", patience=3, mode="max")
        EarlyStop('accuracy', 3, min_delta=0.0, mode='max')
    """

    def __init__(self, monitor: str = "loss", patience: int = 10, min_delta: float = 0.0, mode: str = "min") -> None:
        check_count("patience", patience)
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}.")
        if not isinstance(monitor, str):
            raise ValueError(f"monitor is the name of what is watched, got {monitor!r}.")
        number_from_zero("min_delta", min_delta)
        self.monitor, self.patience, self.min_delta, self.mode = monitor, patience, min_delta, mode
        self._values: list[float] = []  # those that were looked at
        self._seen, self._best, self._waited = 0, math.inf, 0

    def __call__(self, history: History) -> bool:
        """Whether to stop."""
        values = self._monitored_values(history)
        if values is not self._values:  # of another history
            self._values, self._seen, self._best, self._waited = values, 0, math.inf, 0
        for value in values[self._seen :]:
            signed = value if self.mode == "min" else -value
            is_better = signed < self._best - self.min_delta
            self._best, self._waited = (signed, 0) if is_better else (self._best, self._waited + 1)
        self._seen = len(values)
        return self._waited >= self.patience

    def check_monitor(self, columns: Iterable[str]) -> None:
        """Raise ValueError unless what is monitored is one of the columns of a history without evaluations."""
        names = list(columns)
        if self.monitor not in names:
            raise ValueError(f"EarlyStop monitors {self.monitor!r}; there is {', '.join(names)}, and no evaluate.")

    def _monitored_values(self, history: History) -> list[float]:
        """Return the monitored values; none before the first evaluation."""
        if history.is_evaluated and not history.evaluations:
            return []  # what evaluate gives is not known yet
        for columns in (history.evaluations, history):
            if self.monitor in columns:
                return columns[self.monitor]
        if not history.steps or not history.evaluations:
            return []
        names = [*(name for name in history.evaluations if name != "step"), *history]
        raise ValueError(f"EarlyStop monitors {self.monitor!r}; there is {', '.join(names)}.")

    def __repr__(self) -> str:
        return f"EarlyStop({self.monitor!r}, {self.patience}, min_delta={self.min_delta!r}, mode={self.mode!r})"
