"""Counting what roundings do."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.observer import EVENTS, KINDS, LOWEST_EXPONENT

COUNTED = tuple(kind for kind in KINDS if kind != "zero")


class Recorder:
    """An observer that counts the events of every rounding by tensor path, operation and phase.

    Pass it as ``observer=`` to `simulate` or to any function that rounds. Counted are results:

    * total: all of them; nan: those that are NaN;
    * overflow: a finite exact result was rounded beyond the format's max, clamped or not;
    * underflow: a nonzero exact result became zero;
    * subnormal: a nonzero result lies below the format's smallest normal number;
    * unchanged: an addend that was not zero left the other operand as it was, as when an update is cancelled.

    Phases are ``forward``, ``backward`` and ``update``. A parameter's path holds its gradient (backward, each element
    once) and its update; what else an optimizer computes is found below the parameter's path.

    With `path` (a shell pattern) or `phase` it counts only what matches; the rest runs at full speed.
    """

    def __init__(self, path: str | None = None, phase: str | None = None) -> None:
        self._path, self._phase = path, phase
        self._events: dict[tuple[str, str, str], NDArray[np.int64]] = {}

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Take the events of one call."""
        if not self.wants(path, phase):
            return
        key = (path, operation, phase)
        if key in self._events:
            self._events[key] += events
        else:
            self._events[key] = np.array(events)  # a copy: the caller's array stays as it is

    def wants(self, path: str, phase: str) -> bool:
        """Whether events of this path and phase are counted."""
        return self._phase in (None, phase) and (self._path is None or fnmatchcase(path, self._path))

    def counts(self, path: str | None = None, phase: str | None = None) -> dict[str, int]:
        """The counts of each kind over all calls whose path (a shell pattern) and phase match."""
        events = self._sum(path, phase)
        return {kind: int(events[KINDS.index(kind)]) for kind in COUNTED}

    def histogram(self, path: str | None = None, phase: str | None = None) -> dict[int | str, int]:
        """How many finite nonzero results have which exponent, floor(log2|result|), and under "zero" how many zeros."""
        events = self._sum(path, phase)
        exponents = events[len(KINDS) :]
        counts: dict[int | str, int] = {int(i) + LOWEST_EXPONENT: int(exponents[i]) for i in np.flatnonzero(exponents)}
        return counts | {"zero": int(events[KINDS.index("zero")])}

    def table(self) -> str:
        """The counts as text: a line for each path, operation and phase, in the order they were first seen."""
        rows = [("path", "operation", "phase", *COUNTED)]
        for (path, operation, phase), events in self._events.items():
            rows.append((path or "-", operation, phase, *(str(events[KINDS.index(kind)]) for kind in COUNTED)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i < 3 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )

    def to_jsonl(self, path: str | Path) -> None:
        """Write one JSON object a line for each path, operation and phase: its counts and its histogram."""
        import json

        lines = []
        for (where, operation, phase), events in self._events.items():
            counts = {kind: int(events[KINDS.index(kind)]) for kind in KINDS}
            exponents = events[len(KINDS) :]
            histogram = {int(i) + LOWEST_EXPONENT: int(exponents[i]) for i in np.flatnonzero(exponents)}
            entry = {"path": where, "operation": operation, "phase": phase, **counts, "histogram": histogram}
            lines.append(json.dumps(entry))
        Path(path).write_text("\n".join(lines) + ("\n" if lines else ""))

    def _sum(self, path: str | None, phase: str | None) -> NDArray[np.int64]:
        total = np.zeros(EVENTS, np.int64)
        for (where, _, when), events in self._events.items():
            if phase in (None, when) and (path is None or fnmatchcase(where, path)):
                total += events
        return total
