"""The counts of a recorder as text: a table, lines of JSON, and comma-separated values."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simfloat.checks import check_parent
from simfloat.table import Table
from simfloat.table import table as aligned
from simfloat.telemetry.entries import COUNT_NAMES, Key, count_zeros, counts_by_name, exponent_counts, more_counts

Entries = list[tuple[Key, NDArray[np.int64]]]


def count_table(entries: Entries) -> Table:
    """A head and a line for each entry; names stand on the left of their columns, counts on the right."""
    kinds = _count_names(entries)
    rows = [(*Key._fields, *kinds)]
    for key, events in entries:
        rows.append(
            (key.path or "-", key.operation, key.phase, *(str(count) for count in _all_counts(events).values()))
        )
    return aligned(rows, number_columns=len(kinds))


def _all_counts(events: NDArray[np.int64]) -> dict[str, int]:
    return counts_by_name(events) | more_counts(events)


def _count_names(entries: Entries) -> tuple[str, ...]:
    """Return the names of the counts, which the first entry tells."""
    return tuple(_all_counts(entries[0][1])) if entries else COUNT_NAMES


def json_lines(entries: Entries) -> str:
    """One JSON object a line for each entry: its names, its counts, and its histogram by exponent."""
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
    """A head and a line for each entry; given counts (steps, kinds), a line for each step that counted anything."""
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
    """Write a file in UTF-8 so that at no time half of it stands under its name."""
    if path.exists() and not path.is_file():  # a pipe or a terminal takes what comes
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    check_parent(path)
    path = path.resolve()  # what a link points to, not the link
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
