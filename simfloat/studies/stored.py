"""Results on disk, and plain values for processes and files.

Raw results are stored as Parquet, so that claims can be judged again without a run; other results are tables, CSV and
strict JSON. Plain values represent formats, accumulators, policies and numbers.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from errno import ENOENT
from pathlib import Path
from typing import Any

import numpy as np

from simfloat.environment import parse_json
from simfloat.policy import Policy
from simfloat.policy.text import parse
from simfloat.studies.executors import Result

#: A row by the names of its columns; a missing value is an empty cell.
Row = dict[str, Any]

#: The file of raw results, in the folder of a run and next to the README of an experiment.
RESULTS_FILE = "results.parquet"

#: Separates the name of a field from the name of a list inside it: the columns of a trace are "trace.scale" and so on.
FIELD_SEPARATOR = "."

#: The metadata key of a Parquet file with the axes of a sweep.
AXES_KEY = "simfloat.axes"

#: The metadata that marks a text column as JSON.
JSON_MARK = {b"encoding": b"json"}


def write_stored(results: Sequence[Result], path: Path) -> None:
    """Write raw results to a Parquet file; numbers are stored exactly, including NaN and infinities.

    Parameters:
        results: the results, dictionaries.
        path: the path of the file.
    """
    # The import takes half a second, so it happens only when a table is written or read.
    import pyarrow
    from pyarrow.parquet import write_table

    rows = [flatten_result(result) for result in results]
    fields, columns = [], []
    for name in column_names(rows):
        values = [row.get(name) for row in rows]
        is_plain = _has_one_type(values)
        cells = values if is_plain else [None if value is None else json.dumps(value) for value in values]
        columns.append(pyarrow.array(cells))
        fields.append(pyarrow.field(name, columns[-1].type, metadata=None if is_plain else JSON_MARK))
    with path.open("wb") as file:
        write_table(pyarrow.table(columns, pyarrow.schema(fields)), file, compression="zstd", compression_level=19)


def read_stored(path: Path) -> list[Result]:
    """Return the results in a Parquet file.

    Parameters:
        path: the path of a file that `write_stored` wrote.

    Returns:
        The results in the order in which they were written.
    """
    from pyarrow.parquet import read_table

    table = read_table(path)
    columns = {field.name: table.column(field.name).to_pylist() for field in table.schema}
    for field in table.schema:
        if (field.metadata or {}).get(b"encoding") == b"json":
            columns[field.name] = [None if text is None else parse_json(text) for text in columns[field.name]]
    return [
        nest_row({name: column[row] for name, column in columns.items() if column[row] is not None})
        for row in range(table.num_rows)
    ]


def flatten_result(result: Result) -> dict[str, Any]:
    """Return the result with a column for each list of numbers inside a field."""
    row: dict[str, Any] = {}
    for name, value in result.items():
        is_traces = isinstance(value, dict) and value and all(map(_is_list, value.values()))
        row |= {f"{name}{FIELD_SEPARATOR}{key}": item for key, item in value.items()} if is_traces else {name: value}
    return row


def nest_row(row: dict[str, Any]) -> Result:
    """Return the result that was flattened to this row."""
    result: Result = {}
    for name, value in row.items():
        field, inside, key = name.partition(FIELD_SEPARATOR)
        if inside:
            result.setdefault(field, {})[key] = value
        else:
            result[name] = value
    return result


def _has_one_type(values: list[Any]) -> bool:
    """True if all values of a column have one type: text, boolean, number, or list of such numbers."""
    kinds = {_column_kind(value) for value in values if value is not None}
    return len(kinds) < 2 and None not in kinds


def _column_kind(value: Any) -> Any:
    """Return the kind of a value, which is equal in all cells of a typed column; None if it fits no typed column."""
    if _is_list(value):
        return list, _column_kind(value[0])
    return type(value) if isinstance(value, str | bool) else float if _is_number(value) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and len({type(item) for item in value}) == 1 and _is_number(value[0])


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, float)) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def column_names(rows: Sequence[Row]) -> list[str]:
    """Return the names of all columns of rows.

    Parameters:
        rows: dictionaries by the names of columns.

    Returns:
        The names in the order of first appearance.
    """
    return list(dict.fromkeys(name for row in rows for name in row))


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write rows below a header, as CSV; numbers can be read back exactly, NaN is nan, and a missing value is empty.

    Parameters:
        rows: the rows, dictionaries by the names of columns.
        path: the path of the file.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, column_names(rows), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write rows as Parquet, with one type for each column; a column with numbers and texts becomes text, as in CSV.

    The file also contains the names of the axes, if `rows` is a `StudyTable`.

    Parameters:
        rows: the rows, dictionaries by the names of columns.
        path: the path of the file.
    """
    from pyarrow.parquet import write_table

    with path.open("wb") as file:
        write_table(arrow_table(rows), file)


def arrow_table(rows: Sequence[Row]) -> Any:
    """Return the `pyarrow.Table` of rows, with one type for each column; its metadata names the axes."""
    from pyarrow import table

    columns = {name: [row.get(name) for row in rows] for name in column_names(rows)}
    for name, values in columns.items():
        if not _has_one_type(values):
            columns[name] = [None if value is None else str(value) for value in values]
    return table(columns).replace_schema_metadata({AXES_KEY: json.dumps(list(getattr(rows, "axes", ())))})


def read_parquet(path: Path) -> tuple[list[Row], tuple[str, ...]]:
    """Return the rows of a table from `write_parquet`, and its axes, as far as the file contains them.

    Raises OSError if the file is missing, and ValueError, naming it, if it is of another kind.
    """
    from pyarrow.lib import ArrowException
    from pyarrow.parquet import read_table

    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the Parquet file of a table, such as {path / 'sweep.parquet'}.")
    if not path.exists():
        raise FileNotFoundError(ENOENT, "There is no such file", str(path))
    try:
        table = read_table(path)
        axes = parse_json((table.schema.metadata or {}).get(AXES_KEY.encode(), b"[]"))
    except (ArrowException, ValueError) as error:
        raise ValueError(f"{path} is not a Parquet file of a table: {str(error).partition(chr(10))[0]}") from None
    is_known = isinstance(axes, list) and all(name in table.column_names for name in axes)
    return table.to_pylist(), tuple(axes) if is_known else ()


def as_json(value: Any, indent: int | None = None) -> str:
    """Return strict JSON, in which NaN and infinity are null.

    Parameters:
        value: dictionaries, lists, tuples and plain values.
        indent: the number of spaces per level; None for one line.

    Returns:
        The text.

    Raises:
        TypeError: if a value is not a JSON type, such as a NumPy scalar.
    """
    return json.dumps(replace_non_finite(value), indent=indent, allow_nan=False)


def replace_non_finite(value: Any) -> Any:
    """Return the value with None for every number that JSON cannot represent."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


#: Keys of values that are not plain: a policy as a dictionary, anything else as the text from which it is parsed.
POLICY_KEY, TEXT_KEY = "policy", "made"


def as_plain(value: Any) -> Any:
    """Return the value as JSON types: a number, a text or None unchanged, anything else as text that can be parsed.

    Raises ValueError for a value without such a text.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Policy):
        return {POLICY_KEY: value.to_dict()}
    return {TEXT_KEY: _parseable_text(value)}


def from_plain(plain: Any) -> Any:
    """Return the value that `as_plain` converted."""
    if not isinstance(plain, dict):
        return plain
    return Policy.from_dict(plain[POLICY_KEY]) if POLICY_KEY in plain else parse(plain[TEXT_KEY])


def label_of(value: Any) -> str | int | float | None:
    """Return the label of a value in a table: a number or a text unchanged, the name of a policy, otherwise text."""
    plain = as_plain(value)
    if not isinstance(plain, dict):
        return plain
    return value.name or repr(value) if isinstance(value, Policy) else plain[TEXT_KEY]


def as_label(value: Any) -> Any:
    """Return the label of a value, or the value itself if it has none."""
    try:
        return label_of(value)
    except ValueError:
        return value


def _parseable_text(value: Any) -> str:
    """Return the shortest text from which the value can be parsed."""
    for write in (str, repr):
        try:
            if parse(text := write(value)) == value:
                return text
        except (ValueError, RecursionError):
            continue
    raise ValueError(
        f"A study takes formats, accumulators, roundings, policies, numbers and texts, got {value!r} of type "
        f"{type(value).__name__}."
    )
