"""A comparison of the counts of two recorders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfloat.table import Table, table
from simfloat.telemetry.entries import COUNT_NAMES, SIZE, Key, counts_by_name

CountedEntries = Sequence[tuple[Key, NDArray[np.int64]]]

HEAD = (*Key._fields, "count", "this", "other", "this", "other")


def count_difference(this: CountedEntries, other: CountedEntries) -> Table:
    """A row for each place and kind of event whose share of all results differs, the largest difference first.

    Each has both counts, and both shares in percent; of places that one of them did not see, the totals.
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
