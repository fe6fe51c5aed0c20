"""When a training has got as far as it will."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simfloat.formats.integers import is_integer
from simfloat.train.history import History


@dataclass(frozen=True)
class EarlyStop:
    """Says that training is to stop: `monitor` has not improved for `patience` evaluations, or steps.

    monitor names a value that `evaluate` gives, or else a column of the history. Better is less, with mode="max" more,
    by more than min_delta. It follows from the history alone, so that a resumed training stops at the same step.
    """

    monitor: str = "loss"
    patience: int = 10
    min_delta: float = 0.0
    mode: str = "min"

    def __post_init__(self) -> None:
        if not is_integer(self.patience, 1):
            raise ValueError(f"patience must be an integer of at least 1, got {self.patience!r}.")
        if self.mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {self.mode!r}.")

    def __call__(self, history: History) -> bool:
        """Whether to stop."""
        if not history.steps:
            return False
        values = history.evaluations.get(self.monitor)
        if values is None and self.monitor in history:
            values = history[self.monitor]
        if values is None:
            return self._without(history)
        best, waited = math.inf, 0
        for value in values:
            signed = value if self.mode == "min" else -value
            is_better = signed < best - self.min_delta
            best, waited = (signed, 0) if is_better else (best, waited + 1)
        return waited >= self.patience

    def _without(self, history: History) -> bool:
        """False as long as nothing was evaluated; then there is nothing of this name."""
        if not history.evaluations:
            return False
        known = [*(name for name in history.evaluations if name != "step"), *history]
        raise ValueError(f"EarlyStop monitors {self.monitor!r}; there is {', '.join(known)}.")
