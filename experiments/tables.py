"""A tidy table in two files: CSV for people and spreadsheets, Parquet for programs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: A row by the names of its columns; a column that a row lacks is empty there.
Row = dict[str, Any]


def column_names(rows: Sequence[Row]) -> list[str]:
    """Every column of any row, in the order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write the rows below a header: numbers so that they are read back as they are, NaN as nan, nothing as nothing."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, column_names(rows), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write the same columns, each of one type."""
    # Half a second to import, which only a sweep takes.
    from pyarrow import table
    from pyarrow.parquet import write_table

    columns = {name: [row.get(name) for row in rows] for name in column_names(rows)}
    with path.open("wb") as file:
        write_table(table(columns), file)
