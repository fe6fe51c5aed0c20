"""The history of a training: loss, learning rate, scale and norms of every step, and results of evaluations.

`history_difference` compares two histories: the first step at which columns differ, and the size of the difference. The
progress bar of a training uses the package rich.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

import numpy as np

from simfloat.common import Row, Table, did_you_mean, table
from simfloat.environment import in_usual_environment
from simfloat.terminal import is_line_visible, reserve_line

HEAD = ("column", "first", "this", "other", "largest", "at", "this", "other", "last", "this", "other")

Columns = Mapping[str, Sequence[Any]]


def history_difference(pairs: Sequence[tuple[str, Columns, Columns]]) -> Table:
    """Return a table with a row for each column whose values differ: the first, the largest and the last difference.

    `pairs` contains a prefix for the names, and the columns of both histories.
    """
    rows = [
        _row(f"{before}{name}", this[name], other[name])
        for before, this, other in pairs
        for name in this
        if name in other
    ]
    alone = [
        (f"{before}{name}", *("" for _ in HEAD[1:-3]), "only in", *(("this", "") if name in this else ("", "other")))
        for before, this, other in pairs
        for name in (*this, *other)
        if (name in this) != (name in other)
    ]
    return table([HEAD, *(row for row in rows if row is not None), *alone], number_columns=len(HEAD) - 1)


def _row(name: str, this: Sequence[Any], other: Sequence[Any]) -> Row | None:
    """Return the row of a column, or None if both have the same values and lengths."""
    count = min(len(this), len(other))
    mine, theirs = (np.asarray(values[:count], np.float64) for values in (this, other))
    places = np.flatnonzero((mine != theirs) & ~(np.isnan(mine) & np.isnan(theirs)))
    if not len(places):
        lengths = "steps", str(len(this)), str(len(other))
        return None if len(this) == len(other) else (name, *("" for _ in HEAD[1:-3]), *lengths)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(mine[places] - theirs[places]) / np.maximum(np.abs(mine[places]), np.abs(theirs[places]))
    most = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    first, farthest, last = int(places[0]), int(places[most]), count - 1
    largest = "not finite" if np.isnan(apart[most]) else f"{100 * apart[most]:.3g} %"
    shown = [(str(first),), (largest, str(farthest)), (str(last),)]
    cells = [
        (*each, f"{mine[place]:.6g}", f"{theirs[place]:.6g}")
        for each, place in zip(shown, (first, farthest, last), strict=True)
    ]
    return name, *(cell for each in cells for cell in each)


class ProgressBar:
    """A progress bar on standard error with loss, scale and steps per second, drawn by the package rich.

    With `shown` None, the bar is shown if standard error is a terminal and rich is installed. With True and without
    rich, the constructor raises ValueError.
    """

    def __init__(self, shown: bool | None, total: int | None) -> None:
        if shown is not None and not isinstance(shown, bool | np.bool):
            raise ValueError(f"progress must be True, False or None, got {shown!r}.")
        if shown and not find_spec("rich"):
            raise ValueError("progress=True needs the package rich: pip install rich.")
        self._bar: Any = None
        self._line = ExitStack()  # reserves the status line of the terminal while the bar is shown
        if shown or shown is None and is_line_visible() and find_spec("rich"):
            self._bar = _new_bar()
            self._task = self._bar.add_task("", total=total, loss="", scale="", rate="")

    def advance(self, done: int, row: Mapping[str, Any]) -> None:
        """Show the number of steps done, and the values of the latest step."""
        if self._bar is not None:
            speed = self._bar.tasks[0].speed
            rate = f"{speed:.3g} steps/s" if speed else ""
            scale = f"scale {row['scale']:g}"
            self._bar.update(self._task, completed=done, loss=f"loss {row['loss']:.4g}", scale=scale, rate=rate)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._line.enter_context(reserve_line())
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._line.close()


def _new_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    fields = [TextColumn(f"{{task.fields[{name}]}}") for name in ("loss", "scale", "rate")]
    columns = (BarColumn(), MofNCompleteColumn(), *fields, TimeElapsedColumn())
    # Output that is printed meanwhile appears above the bar. Standard output to a file is not redirected.
    redirected = sys.stdout is not None and sys.stdout.isatty()
    return Progress(*columns, console=Console(stderr=True), redirect_stdout=redirected)


#: The columns of every history; metrics are added to them.
COLUMNS = ("loss", "lr", "scale", "skipped", "scaled_norm", "norm")


@in_usual_environment
class History(Mapping[str, list[Any]]):
    """The history of a training: ``history["loss"][i]`` is the loss of step i, and likewise for every column.

    The columns are:

    * loss: the result of loss_fn, not scaled; the mean over the batches of a step. It may be infinite or NaN.
    * lr: the learning rate of the first group of parameters.
    * scale: the factor of the loss, 1 without a scaler.
    * skipped: True if the scaler skipped the update because a gradient was not finite.
    * scaled_norm, norm: the Euclidean norm of all gradients before and after unscaling, before clipping.
    * one more column for every metric.

    `evaluations` contains the results of `evaluate` in the same way; its column ``step`` is the number of steps before
    each call.

    Parameters:
        is_evaluated: True if the training has an `evaluate`.
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
        """The number of steps, including skipped ones."""
        return len(self["loss"])

    @property
    @in_usual_environment
    def success_rate(self) -> float:
        """The share of steps that were not skipped; 1 before the first step."""
        return (self.steps - sum(self["skipped"])) / self.steps if self.steps else 1.0

    @property
    def not_finite(self) -> list[int]:
        """The numbers, counted from 0, of the steps with an infinite or NaN loss."""
        return [step for step, loss in enumerate(self["loss"]) if not math.isfinite(loss)]

    def diff(self, other: History) -> Table:
        """Compare with another history: a row for each column of the steps and of `evaluations` that differs.

        A row has the first step with a different value, the step with the largest relative difference, and the last
        step that both have, each with both values. Columns with equal bits have no row.

        Raises:
            ValueError: if `other` is not a History.
        """
        if not isinstance(other, History):
            raise ValueError(f"diff takes another History, got a {type(other).__name__}.")
        pairs = [("", self._columns, other._columns), ("evaluate: ", self.evaluations, other.evaluations)]
        return history_difference(pairs)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a step."""
        for name, value in row.items():
            self._columns.setdefault(name, []).append(value)

    def add_evaluation(self, values: Mapping[str, Any]) -> None:
        """Append the results of an evaluation after the latest step; raise ValueError if their names have changed."""
        row = {"step": self.steps, **values}
        if self.evaluations and set(self.evaluations) != set(row):
            before = ", ".join(name for name in self.evaluations if name != "step")
            raise ValueError(f"evaluate returned {before} before, and now {', '.join(values) or 'nothing'}.")
        for name, value in row.items():
            self.evaluations.setdefault(name, []).append(value)

    def state_dict(self) -> dict[str, Any]:
        """Return all columns as arrays."""
        return {"steps": _as_arrays(self._columns), "evaluations": _as_arrays(self.evaluations)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `state_dict`."""
        self._columns, self.evaluations = _as_lists(state["steps"]), _as_lists(state["evaluations"])

    def __repr__(self) -> str:
        last = f", loss {self['loss'][-1]:.6g}, success rate {self.success_rate:.4g}" if self.steps else ""
        return f"History({self.steps} steps{last})"


def _as_arrays(columns: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {name: np.array(column) for name, column in columns.items()}


def _as_lists(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: column.tolist() for name, column in columns.items()}
