"""The table of a study: a row for each of its points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from simfloat.checks import check_parent, did_you_mean, file_path
from simfloat.studies.plain_values import as_label
from simfloat.studies.stored import Row, column_names, write_csv, write_parquet
from simfloat.table import Table
from simfloat.table import table as aligned

#: Rows that are printed of a longer table: so many from its beginning, and as many from its end.
SHOWN_ROWS = 15


class StudyTable(Sequence[Row]):
    """Rows by the names of their columns, those of `axes` first; ``table["loss"]`` is a column, ``table[0]`` a row.

    A column that a row lacks is None there. `where` selects rows, `to_csv` and `to_parquet` write files that are read
    back to the last bit.

    Examples:
        >>> table = sf.studies.StudyTable([{"seed": 0, "loss": 0.5}, {"seed": 1, "loss": 0.25}], axes=["seed"])
        >>> table["loss"], table.where(seed=1)[0]
        ([0.5, 0.25], {'seed': 1, 'loss': 0.25})
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], axes: Sequence[str] = ()) -> None:
        self.rows = [dict(row) for row in rows]
        self.axes = tuple(axes)
        self.columns = tuple(column_names(self.rows)) or self.axes

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> StudyTable: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, str):
            if key not in self.columns:
                raise ValueError(
                    f"The table has no column {key!r}. Columns: {', '.join(self.columns)}."
                    f"{did_you_mean(key, self.columns)}"
                )
            return [row.get(key) for row in self.rows]
        return StudyTable(self.rows[key], self.axes) if isinstance(key, slice) else self.rows[key]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __eq__(self, other: object) -> bool:
        return self.rows == other.rows if isinstance(other, StudyTable) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def where(self, **values: Any) -> StudyTable:
        """The rows that have these values: a format, an accumulator or a policy stands for its label, NaN for NaN.

        Raises ValueError for a column that there is not.
        """
        chosen = self.rows
        for name, value in values.items():
            self[name]
            wanted = as_label(value)
            chosen = [row for row in chosen if _is_same(row.get(name), wanted)]
        return StudyTable(chosen, self.axes)

    def to_csv(self, path: str | Path) -> None:
        """Write the rows below a header; numbers are read back as they are."""
        write_csv(self.rows, _target_path(path))

    def to_parquet(self, path: str | Path) -> None:
        """Write the same as Parquet, each column of one type."""
        write_parquet(self, _target_path(path))

    def _printed_table(self) -> Table:
        cells = [tuple(_cell(row.get(name)) for name in self.columns) for row in self.rows]
        if len(cells) > 2 * SHOWN_ROWS:
            cells = [*cells[:SHOWN_ROWS], ("...",) * len(self.columns), *cells[-SHOWN_ROWS:]]
        return aligned([self.columns, *cells], number_columns=max(0, len(self.columns) - len(self.axes)))

    def __repr__(self) -> str:
        return str(self._printed_table()) if self.columns else "StudyTable([])"

    def _repr_html_(self) -> str:
        return self._printed_table()._repr_html_() if self.columns else repr(self)


def _target_path(path: str | Path) -> Path:
    """Return the path of a file to write; raise OSError, naming the folder, where the folder does not exist."""
    file = file_path(path)
    check_parent(file)
    return file


def _is_same(value: Any, wanted: Any) -> bool:
    """Whether they are equal, or both NaN."""
    return bool(value == wanted) or (value != value and wanted != wanted)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
