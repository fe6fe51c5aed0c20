"""Two trainings beside one another: from which step on, and how far, the columns of their histories differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simfloat.table import Row, Table, table

HEAD = ("column", "first", "this", "other", "largest", "at", "this", "other", "last", "this", "other")

Columns = Mapping[str, Sequence[Any]]


def history_difference(pairs: Sequence[tuple[str, Columns, Columns]]) -> Table:
    """A row for each column whose values differ: where first, where most, and at the last step that both have.

    pairs has the columns of both, and what is set before their names.
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
    """The row of a column; None where all that both have is the same, and they have as much."""
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
