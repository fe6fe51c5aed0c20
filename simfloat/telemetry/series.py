"""Step by step: what was counted between one end of a step and the next, without the histograms, and other numbers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels.events import COUNTS
from simfloat.telemetry.entries import COUNT_NAMES, Key

#: Where the counts that are kept stand in an event vector.
COUNT_PLACES = np.array([COUNTS.index(kind) for kind in COUNT_NAMES])


class Series:
    """For each path, operation and phase a row of counts a step, from the first step on in which it was seen."""

    def __init__(self) -> None:
        self.steps = 0
        self._before: dict[Key, NDArray[np.int64]] = {}  # what had been counted when the last step ended
        self._first: dict[Key, int] = {}
        self._rows: dict[Key, array[int]] = {}  # 48 bytes a step

    def end_step(self, events: Iterable[tuple[Key, NDArray[np.int64]]]) -> None:
        """End a step after which so much has been counted in all."""
        for key, total in events:
            now = total[COUNT_PLACES]
            if key not in self._rows:
                self._first[key], self._rows[key] = self.steps, array("q")
            self._rows[key].frombytes((now - self._before.get(key, 0)).tobytes())
            self._before[key] = now
        self.steps += 1

    def __iter__(self) -> Iterator[tuple[Key, NDArray[np.int64]]]:
        """Each key with its counts (steps, kinds), zeros in the steps before it was first seen."""
        for key, rows in self._rows.items():
            counts = np.zeros((self.steps, len(COUNT_NAMES)), np.int64)
            counts[self._first[key] :] = np.array(rows).reshape(-1, len(COUNT_NAMES))
            yield key, counts

    def total_of(self, kind: str, steps: NDArray[np.bool_]) -> dict[Key, int]:
        """The count of a kind in the steps that are chosen, by key."""
        return {key: int(counts[steps, COUNT_NAMES.index(kind)].sum()) for key, counts in self}

    def copy(self) -> Series:
        """Return a copy that counts on independently."""
        return deepcopy(self)

    @property
    def state(self) -> dict[str, Any]:
        """How many steps there were, and the keys with their rows (steps since the first, kinds)."""
        rows = [np.array(counts).reshape(-1, len(COUNT_NAMES)) for counts in self._rows.values()]
        return {"steps": self.steps, "keys": [list(key) for key in self._rows], "rows": rows}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Series:
        """Return the series whose `state` this is."""
        series = cls()
        series.steps = state["steps"]
        for names, rows in zip(state["keys"], state["rows"], strict=True):
            key, counts = Key(*names), np.asarray(rows, np.int64).reshape(-1, len(COUNT_NAMES))
            series._rows[key] = array("q", counts.tobytes())
            series._first[key], series._before[key] = series.steps - len(counts), counts.sum(axis=0)
        return series


class Scalars:
    """Numbers of steps by name, such as the loss; NaN in steps without one."""

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {}

    def end_step(self, step: int, values: Mapping[str, float]) -> None:
        """Note the numbers of a step; steps come in ascending order."""
        for name, value in values.items():
            column = self._columns.setdefault(name, array("d"))
            column.extend([math.nan] * (step - len(column)))
            column.append(value)

    def columns(self, steps: int) -> dict[str, NDArray[np.float64]]:
        """Each name with its numbers (steps,)."""
        columns_by_name = {}
        for name, column in self._columns.items():
            columns_by_name[name] = np.full(steps, math.nan)
            columns_by_name[name][: len(column)] = column
        return columns_by_name

    def copy(self) -> Scalars:
        """Return a copy that takes further steps independently."""
        return deepcopy(self)

    @property
    def state(self) -> dict[str, NDArray[np.float64]]:
        """Each name with its numbers, up to the last step that had one."""
        return {name: np.array(column) for name, column in self._columns.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray]) -> Scalars:
        """Return the numbers whose `state` this is."""
        scalars = cls()
        scalars._columns = {
            name: array("d", np.asarray(column, np.float64).tobytes()) for name, column in state.items()
        }
        return scalars
