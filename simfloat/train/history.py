"""The history of a training: loss, learning rate, scale and norms of every step, and what was evaluated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simfloat.checks import did_you_mean
from simfloat.environment import in_usual_environment
from simfloat.table import Table
from simfloat.train.history_difference import history_difference

#: What is known of every step; metrics come beside it.
COLUMNS = ("loss", "lr", "scale", "skipped", "scaled_norm", "norm")


@in_usual_environment
class History(Mapping[str, list[Any]]):
    """The course of a training: ``history["loss"][i]`` is the loss of step i, and so for every column.

    * loss: as loss_fn gave it, not scaled; the mean over the batches of a step. It may be infinite or NaN.
    * lr: the learning rate of the step, that of the first group of parameters.
    * scale: the factor of the loss in the step, 1 without a scaler.
    * skipped: whether the scaler skipped the update, since a gradient was not finite.
    * scaled_norm, norm: the Euclidean norm of all gradients before and after unscaling, before they are clipped.
    * one more for every metric.

    `evaluations` holds, in the same way, what `evaluate` gave, and under ``step`` after how many steps it did so.
    `is_evaluated` says whether the training that goes on evaluates.
    """

    def __init__(self, *, is_evaluated: bool = False) -> None:
        self.is_evaluated = is_evaluated
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.evaluations: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._columns:
            raise KeyError(f"A history has no {name!r}. It has {', '.join(self)}.{did_you_mean(name, self)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def steps(self) -> int:
        """How many steps were made, those that were skipped among them."""
        return len(self["loss"])

    @property
    def success_rate(self) -> float:
        """The share of steps that were not skipped; 1 before the first."""
        return (self.steps - sum(self["skipped"])) / self.steps if self.steps else 1.0

    @property
    def not_finite(self) -> list[int]:
        """The numbers, from 0 on, of the steps whose loss was infinite or NaN."""
        return [step for step, loss in enumerate(self["loss"]) if not math.isfinite(loss)]

    def diff(self, other: History) -> Table:
        """Where another training differs: a row for each column of `evaluations` and steps that is not the same.

        It has the first step with another value, the step with the largest relative difference, and the last step that
        both have, each with both values. Columns that are the same to the last bit have none. Raises ValueError for
        what is no history.
        """
        if not isinstance(other, History):
            raise ValueError(f"diff takes another History, got a {type(other).__name__}.")
        pairs = [("", self._columns, other._columns), ("evaluate: ", self.evaluations, other.evaluations)]
        return history_difference(pairs)

    def add(self, row: Mapping[str, Any]) -> None:
        """Note a step."""
        for name, value in row.items():
            self._columns.setdefault(name, []).append(value)

    def add_evaluation(self, values: Mapping[str, Any]) -> None:
        """Note what was evaluated after the latest step; ValueError where other values come than before."""
        row = {"step": self.steps, **values}
        if self.evaluations and set(self.evaluations) != set(row):
            before = ", ".join(name for name in self.evaluations if name != "step")
            raise ValueError(f"evaluate gave {before} before, and now {', '.join(values) or 'nothing'}.")
        for name, value in row.items():
            self.evaluations.setdefault(name, []).append(value)

    def state_dict(self) -> dict[str, Any]:
        """All columns as arrays."""
        return {"steps": _as_arrays(self._columns), "evaluations": _as_arrays(self.evaluations)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._columns, self.evaluations = _as_lists(state["steps"]), _as_lists(state["evaluations"])

    def __repr__(self) -> str:
        last = f", loss {self['loss'][-1]:.6g}, success rate {self.success_rate:.4g}" if self.steps else ""
        return f"History({self.steps} steps{last})"


def _as_arrays(columns: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {name: np.array(column) for name, column in columns.items()}


def _as_lists(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: column.tolist() for name, column in columns.items()}
