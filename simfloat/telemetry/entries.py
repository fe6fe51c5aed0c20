"""The entries of a recorder, and functions that read them: queries, differences, exports and series.

Entries are event vectors by path, operation and phase. A query has shell patterns of paths and operations, and a
phase. The counts of two recorders can be compared. The exports are a table, JSON lines, comma-separated values, and
an event file for TensorBoard. A series contains the counts of every step, without histograms, and other values.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import common
from simfloat.common import Table, check_parent, did_you_mean, matches, select_rows, table
from simfloat.common import table as aligned
from simfloat.kernels.rounding.events import (
    CAUSES,
    COUNTS,
    EVENTS,
    FIRST_CAUSE,
    INFINITE,
    LOWEST_EXPONENT,
    NAN_OPERAND,
    OPTIONAL_COUNTS,
    OVERFLOW,
    PRECISE,
    SIZE,
    SUM_BEYOND,
    SUM_OVERFLOW,
    TOTAL,
    WIDE,
    ZERO,
)

#: The counts that `Recorder.counts` returns; the number of zeros is in the histogram.
COUNT_NAMES = tuple(kind for kind in COUNTS if kind != "zero")


class Key(NamedTuple):
    """The key of an entry."""

    path: str
    operation: str
    phase: str


def counts_by_name(events: NDArray[np.int64]) -> dict[str, int]:
    """Return the counts of an event vector by name."""
    return {kind: int(events[COUNTS.index(kind)]) for kind in COUNT_NAMES}


def more_counts(events: NDArray[np.int64]) -> dict[str, int]:
    """Return the optional counts at the end of an event vector, if there are any."""
    return dict(zip(OPTIONAL_COUNTS, events[SIZE:].tolist(), strict=False))


def resize_events(events: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return a copy of an event vector with `size` entries; new entries are zero."""
    copy = np.zeros(size, np.int64)
    copy[: events.size] = events[:size]
    return copy


def exponent_counts(events: NDArray[np.int64]) -> dict[int | str, int]:
    """Return the histogram of an event vector: the number of results for each exponent."""
    occurrences = events[len(COUNTS) : EVENTS]
    return {int(place) + LOWEST_EXPONENT: int(occurrences[place]) for place in np.flatnonzero(occurrences)}


def count_zeros(events: NDArray[np.int64]) -> int:
    """Return the number of zeros in an event vector."""
    return int(events[ZERO])


def count_infinities(events: NDArray[np.int64]) -> int:
    """Return the number of infinite results that did not overflow."""
    return int(events[INFINITE] - events[OVERFLOW])


def count_overflowed_sums(events: NDArray[np.int64]) -> int:
    """Return the number of results that are infinite or NaN because their sums overflowed in a narrow format."""
    return int(events[FIRST_CAUSE + SUM_OVERFLOW])


def count_sums_beyond_fp32(events: NDArray[np.int64]) -> int:
    """Return the number of results that are infinite or NaN because their sums were beyond the range of FP32."""
    return int(events[FIRST_CAUSE + SUM_BEYOND])


def cause_of_nan(events: NDArray[np.int64]) -> str:
    """Return the cause of NaN in an event vector: the one that made most NaN from operands that are not NaN."""
    counts = events[FIRST_CAUSE:WIDE]
    most_frequent = int(counts[NAN_OPERAND + 1 :].argmax()) + NAN_OPERAND + 1
    return CAUSES[most_frequent if counts[most_frequent] else NAN_OPERAND]


def are_wide(events: NDArray[np.int64]) -> bool:
    """True if the results of an event vector were rounded to formats with the range of FP32."""
    return 0 < events[TOTAL] == events[WIDE]


def are_precise(events: NDArray[np.int64]) -> bool:
    """True if the results of an event vector were rounded to formats with the precision of FP32."""
    return 0 < events[TOTAL] == events[PRECISE]


PHASES = ("forward", "backward", "update")


class Query(NamedTuple):
    """Shell patterns of a path and an operation, and a phase; None for any."""

    path: str | None
    phase: str | None
    operation: str | None

    def is_match(self, key: Key) -> bool:
        """True if the key matches."""
        return (
            self.phase in (None, key.phase) and matches(self.path, key.path) and matches(self.operation, key.operation)
        )

    def check(self, keys: Iterable[Key]) -> None:
        """Raise ValueError for an unknown phase, and for patterns that match none of the keys (if there are any
        keys).
        """
        check_phase(self.phase)
        seen_keys = list(keys)
        check_pattern("path", self.path, (key.path for key in seen_keys))
        check_pattern("operation", self.operation, (key.operation for key in seen_keys))

    def select(self, entries: Entries) -> Entries:
        """Return the entries that match; no entries for a phase that did not occur.

        Raises ValueError if the entries have the phase, but all patterns together match none of them.
        """
        keys = [key for key, _ in entries]
        if self.phase not in (None, *(key.phase for key in keys)):
            return []
        return select_rows(
            entries,
            path=(self.path, [key.path for key in keys]),
            operation=(self.operation, [key.operation for key in keys]),
            phase=(self.phase, [key.phase for key in keys]),
        )

    def warn_if_apart(self, keys: Sequence[Key]) -> None:
        """Issue a warning if the path and the operation match keys, but no key, of any phase, matches both."""
        paths, operations = [key.path for key in keys], [key.operation for key in keys]
        try:
            select_rows(keys, path=(self.path, paths), operation=(self.operation, operations))
        except ValueError as error:
            common.warn(f"All counts are 0: {error}")


def check_phase(phase: str | None) -> None:
    """Raise ValueError, with the nearest name, if the phase is unknown."""
    if phase is not None and phase not in PHASES:
        raise ValueError(f"Unknown phase {phase!r}. Phases: {', '.join(PHASES)}.{did_you_mean(phase, PHASES, 3)}")


def check_pattern(what: str, pattern: str | None, names: Iterable[str] = ()) -> None:
    """Raise ValueError if a pattern is not text, or matches none of the names (if there are any names)."""
    hint = f" {pattern!r} is a phase: pass phase={pattern!r}." if pattern in PHASES else ""
    common.check_pattern(what, pattern, names, hint)


#: The message about counts that only some recorders have.
NOT_COUNTED = f"Only simfloat.Recorder(more=True) counts {', '.join(OPTIONAL_COUNTS)}."


def check_kind(kind: str | None, more: bool) -> None:
    """Raise ValueError if the kind of event is unknown, or is an optional count without `more`."""
    if kind in OPTIONAL_COUNTS and not more:
        raise ValueError(NOT_COUNTED)
    kinds = COUNT_NAMES + (OPTIONAL_COUNTS if more else ())
    if kind is not None and kind not in kinds:
        raise ValueError(f"Unknown kind {kind!r}. Kinds: {', '.join(kinds)}.{did_you_mean(kind, kinds)}")


CountedEntries = Sequence[tuple[Key, NDArray[np.int64]]]

HEAD = (*Key._fields, "count", "this", "other", "this", "other")


def count_difference(this: CountedEntries, other: CountedEntries) -> Table:
    """Return a table with a row for each place and kind of event whose share of all results differs.

    The largest difference comes first. Each row has both counts and both shares in percent; for places that only one
    recorder counted, the totals.
    """
    mine, theirs = dict(this), dict(other)
    rows: list[tuple[float, tuple[str, ...]]] = []
    for key in dict.fromkeys((*mine, *theirs)):
        counts = [counts_by_name(events.get(key, np.zeros(SIZE, np.int64))) for events in (mine, theirs)]
        totals = [count["total"] for count in counts]
        for kind in COUNT_NAMES:
            occurrences = [count[kind] for count in counts]
            shares = [number / total if total else 0.0 for number, total in zip(occurrences, totals, strict=True)]
            if shares[0] != shares[1]:
                texts = [f"{100 * share:.3g} %" for share in shares]
                cells = (key.path or "-", key.operation, key.phase, kind, *map(str, occurrences), *texts)
                rows.append((abs(shares[0] - shares[1]), cells))
    return table([HEAD, *(cells for _, cells in sorted(rows, key=lambda row: -row[0]))], number_columns=4)


Entries = list[tuple[Key, NDArray[np.int64]]]


def count_table(entries: Entries, kind: str | None = None) -> Table:
    """Return a table with a header and a line for each entry.

    If there is a `kind`, entries without such events have no line. Names are left-aligned, counts right-aligned.
    """
    kinds = _count_names(entries)
    rows = [(*Key._fields, *kinds)]
    for key, events in entries:
        if kind is not None and not _all_counts(events)[kind]:
            continue
        rows.append(
            (key.path or "-", key.operation, key.phase, *(str(count) for count in _all_counts(events).values()))
        )
    return aligned(rows, number_columns=len(kinds))


def _all_counts(events: NDArray[np.int64]) -> dict[str, int]:
    return counts_by_name(events) | more_counts(events)


def _count_names(entries: Entries) -> tuple[str, ...]:
    """Return the names of the counts, as in the first entry."""
    return tuple(_all_counts(entries[0][1])) if entries else COUNT_NAMES


def json_lines(entries: Entries) -> str:
    """Return one JSON object per line for each entry: its names, its counts, and its histogram by exponent."""
    lines = []
    for key, events in entries:
        entry = {
            **key._asdict(),
            **_all_counts(events),
            "zero": count_zeros(events),
            "histogram": exponent_counts(events),
        }
        lines.append(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")
    return "".join(lines)


def comma_separated(entries: Entries, steps: Entries | None = None) -> str:
    """Return a header and a line for each entry; with `steps`, a line for each step in which anything was counted.

    `steps` are the counts (steps, kinds) of each entry.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    if steps is None:
        writer.writerow((*Key._fields, *_count_names(entries), "zero"))
        writer.writerows((*key, *_all_counts(events).values(), count_zeros(events)) for key, events in entries)
        return lines.getvalue()
    writer.writerow(("step", *Key._fields, *COUNT_NAMES))
    rows = ((step, key, counts[step]) for key, counts in steps for step in np.flatnonzero(counts.any(axis=1)).tolist())
    writer.writerows((step, *key, *counts.tolist()) for step, key, counts in sorted(rows, key=lambda row: row[0]))
    return lines.getvalue()


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically: it is never visible half-written."""
    if path.exists() and not path.is_file():  # a pipe or a terminal is written directly
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    check_parent(path)
    path = path.resolve()  # the target of a link, not the link
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


#: The positions of the counts of a series in an event vector.
COUNT_PLACES = np.array([COUNTS.index(kind) for kind in COUNT_NAMES])


class Series:
    """The counts of each step, by path, operation and phase, starting with the step of their first occurrence."""

    def __init__(self) -> None:
        self.steps = 0
        self._before: dict[Key, NDArray[np.int64]] = {}  # the counts at the end of the last step
        self._first: dict[Key, int] = {}
        self._rows: dict[Key, array[int]] = {}  # 48 bytes a step

    def end_step(self, events: Iterable[tuple[Key, NDArray[np.int64]]]) -> None:
        """End a step; `events` are the total counts so far."""
        for key, total in events:
            now = total[COUNT_PLACES]
            if key not in self._rows:
                self._first[key], self._rows[key] = self.steps, array("q")
            self._rows[key].frombytes((now - self._before.get(key, 0)).tobytes())
            self._before[key] = now
        self.steps += 1

    def __iter__(self) -> Iterator[tuple[Key, NDArray[np.int64]]]:
        """Yield each key with its counts (steps, kinds); zeros in the steps before its first occurrence."""
        for key, rows in self._rows.items():
            counts = np.zeros((self.steps, len(COUNT_NAMES)), np.int64)
            counts[self._first[key] :] = np.array(rows).reshape(-1, len(COUNT_NAMES))
            yield key, counts

    def total_of(self, kind: str, steps: NDArray[np.bool_]) -> dict[Key, int]:
        """Return the count of a kind in the chosen steps, by key."""
        return {key: int(counts[steps, COUNT_NAMES.index(kind)].sum()) for key, counts in self}

    def copy(self) -> Series:
        """Return an independent copy."""
        return deepcopy(self)

    @property
    def state(self) -> dict[str, Any]:
        """The number of steps, and the keys with their rows (steps since the first occurrence, kinds)."""
        rows = [np.array(counts).reshape(-1, len(COUNT_NAMES)) for counts in self._rows.values()]
        return {"steps": self.steps, "keys": [list(key) for key in self._rows], "rows": rows}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Series:
        """Return the series with this `state`."""
        series = cls()
        series.steps = state["steps"]
        for names, rows in zip(state["keys"], state["rows"], strict=True):
            key, counts = Key(*names), np.asarray(rows, np.int64).reshape(-1, len(COUNT_NAMES))
            series._rows[key] = array("q", counts.tobytes())
            series._first[key], series._before[key] = series.steps - len(counts), counts.sum(axis=0)
        return series


class Scalars:
    """Values of steps by name, such as the loss; NaN for steps without a value."""

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {}

    def end_step(self, step: int, values: Mapping[str, float]) -> None:
        """Store the values of a step; steps must ascend."""
        for name, value in values.items():
            column = self._columns.setdefault(name, array("d"))
            column.extend([math.nan] * (step - len(column)))
            column.append(value)

    def columns(self, steps: int) -> dict[str, NDArray[np.float64]]:
        """Return each name with its values (steps,)."""
        columns_by_name = {}
        for name, column in self._columns.items():
            columns_by_name[name] = np.full(steps, math.nan)
            columns_by_name[name][: len(column)] = column
        return columns_by_name

    def copy(self) -> Scalars:
        """Return an independent copy."""
        return deepcopy(self)

    @property
    def state(self) -> dict[str, NDArray[np.float64]]:
        """Each name with its values, up to the last step that had one."""
        return {name: np.array(column) for name, column in self._columns.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray]) -> Scalars:
        """Return the scalars with this `state`."""
        scalars = cls()
        scalars._columns = {
            name: array("d", np.asarray(column, np.float64).tobytes()) for name, column in state.items()
        }
        return scalars


#: A phase and a path.
Place = tuple[str, str]


def write_tensorboard(folder: Path, entries: Entries, steps: Entries, scalars: Mapping[str, NDArray]) -> None:
    """Write an event file: scalars (steps,) by name, counts (steps, kinds), and the histograms over all steps."""
    summary_writer = _writer_class()
    folder.mkdir(parents=True, exist_ok=True)
    by_step = steps or [(key, events[np.newaxis, COUNT_PLACES]) for key, events in entries]
    with summary_writer(logdir=str(folder)) as writer:
        for name, column in scalars.items():
            _write_column(writer, f"training/{name}", column)
        for (phase, path), counts in _by_place(by_step).items():
            total = counts[:, COUNT_NAMES.index("total")]
            for kind, column in zip(COUNT_NAMES, counts.T, strict=True):
                if kind != "total" and column.any():
                    share = np.divide(column, total, out=np.full(len(total), np.nan), where=total > 0)
                    _write_column(writer, f"{kind}/{phase}/{path}", share)
        last = max((len(counts) for _, counts in by_step), default=1) - 1
        for (phase, path), events in _by_place(entries).items():
            _write_exponents(writer, f"exponents/{phase}/{path}", exponent_counts(events), last)


def _writer_class() -> Any:
    """Return the writer class; ImportError names the extra if tensorboardX is missing."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        message = "Event files for TensorBoard need tensorboardX: pip install 'simfloat[tensorboard]'."
        raise ImportError(message) from None
    return SummaryWriter


def _by_place(entries: Entries) -> dict[Place, NDArray[np.int64]]:
    """Sum over the operations of each phase and path."""
    places: dict[Place, NDArray[np.int64]] = {}
    for key, counts in entries:
        place = key.phase, key.path or "-"
        places[place] = places[place] + counts if place in places else counts
    return places


def _write_column(writer: Any, tag: str, column: NDArray) -> None:
    """Write a scalar for each step with a finite value."""
    for step in np.flatnonzero(np.isfinite(column)).tolist():
        writer.add_scalar(tag, float(column[step]), step)


def _write_exponents(writer: Any, tag: str, histogram: Mapping[int | str, int], step: int) -> None:
    """Write a histogram with one bucket for each binade: [e, e + 1) for exponent e."""
    if not histogram:
        return
    numbers = {int(exponent): number for exponent, number in histogram.items()}
    first, last = min(numbers), max(numbers)
    binades = range(first, last + 1)
    counts = [0, *(numbers.get(exponent, 0) for exponent in binades)]  # the first bucket ends below the binades
    total = sum(exponent * number for exponent, number in numbers.items())
    squares = sum(exponent**2 * number for exponent, number in numbers.items())
    writer.add_histogram_raw(
        tag, min=first, max=last + 1, num=sum(counts), sum=total, sum_squares=squares,
        bucket_limits=[first, *(exponent + 1 for exponent in binades)], bucket_counts=counts, global_step=step,
    )  # fmt: skip
