"""Provide what all subpackages use: the version, immutable values, checks of arguments, and tables.

Immutable values are compared, and used as keys of dictionaries, on every call. Checks raise the errors of invalid
arguments. Tables print as text, and notebooks show them as tables.
"""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import fields
from errno import ENOENT, ENOTDIR
from fnmatch import fnmatchcase
from fractions import Fraction
from html import escape
from itertools import compress, permutations, zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__version__ = "0.1.0"


T = TypeVar("T")


def store_as_pythons(value: Any) -> None:
    """Convert NumPy integers and booleans in the fields of a new value to Python's, which print as literals."""
    for name, field_value in vars(value).copy().items():
        object.__setattr__(
            value, name, field_value.item() if isinstance(field_value, np.integer | np.bool) else field_value
        )


def stored_hash(value: Any) -> int:
    """Return the hash of a frozen dataclass: of its class and the fields that are compared, computed once."""
    try:
        return value._hash
    except AttributeError:
        content = tuple(getattr(value, field.name) for field in fields(value) if field.compare)
        object.__setattr__(value, "_hash", hash((type(value), content)))
        return value._hash


def state_of_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, without the values that it has cached: the state for a pickle."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def hashed_once(cls: type[T]) -> type[T]:
    """Let a frozen dataclass compute its hash once, and skip the comparison of an object with itself.

    The hash is not pickled, because hashes of strings differ between processes.
    """
    equals: Any = cls.__eq__

    def __eq__(self: Any, other: object) -> bool:
        return self is other or equals(self, other)

    cls.__hash__ = stored_hash  # type: ignore[method-assign, assignment]
    cls.__eq__ = __eq__  # type: ignore[method-assign]
    cls.__getstate__ = state_of_fields  # type: ignore[method-assign, assignment]
    return cls


#: The largest number of axes of a NumPy array.
MOST_AXES = 64

#: Number of characters of a text or a number in a message.
SHOWN_CHARACTERS = 40


def is_integer(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """True if `value` is a Python or NumPy integer from `least` to `most`; booleans do not count."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)


def message_text(x: Any) -> str:
    """Return a number as text for a message, abbreviated if it is long: Python prints no integer of 5000 digits."""
    if isinstance(x, str):
        return repr(x) if len(x) <= SHOWN_CHARACTERS else f"a text of {len(x)} characters, {x[:SHOWN_CHARACTERS]!r}..."
    if isinstance(x, int) and x.bit_length() > 4 * SHOWN_CHARACTERS:
        return f"an integer of {x.bit_length()} bits"
    if isinstance(x, Fraction) and max(x.numerator.bit_length(), x.denominator.bit_length()) > 4 * SHOWN_CHARACTERS:
        return "a Fraction of " + " and ".join(f"{part.bit_length()} bits" for part in (x.numerator, x.denominator))
    if type(x).__name__ == "mpz" and x.bit_length() > 4 * SHOWN_CHARACTERS:
        return f"an integer of {x.bit_length()} bits"
    if isinstance(x, Fraction):
        return str(x)
    text = repr(x)
    return text if len(text) <= 2 * SHOWN_CHARACTERS else text[: 2 * SHOWN_CHARACTERS] + "..."


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError with the name of the argument if it is not an integer of at least `least`."""
    if not is_integer(value, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {message_text(value)}.")


def check_flags(**flags: Any) -> None:
    """Raise ValueError with the name of the first argument that is not a boolean; a text such as "False" is not."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool):
            raise ValueError(f"{name} must be True or False, got {value!r}.")


def as_rectangular_array(x: Any, name: str, dtype: Any = None) -> NDArray:
    """Convert an argument to a NumPy array; ValueError reports the first row of another length."""
    try:
        return np.asarray(x, dtype)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be a rectangular array of numbers{first_uneven_row(x)}.") from None


def one_number(x: Any) -> float | None:
    """Return the only number of an array or a sequence as a float; None if there is not exactly one."""
    try:
        array = np.asarray(x)
    except ValueError:  # rows of different lengths
        return None
    return float(array.item()) if array.size == 1 and array.dtype.kind in "biuf" else None


def first_uneven_row(x: Any) -> str:
    """Return text about the first row whose length differs from the first row of its list; empty if there is none."""
    mismatch: list[str] = []

    def shape_of(part: Any, path: tuple[int, ...]) -> tuple[int, ...]:
        if not isinstance(part, list | tuple) or len(path) > MOST_AXES:
            return tuple(getattr(part, "shape", ()))
        first: tuple[int, ...] = ()
        for i, row in enumerate(part):
            shape = shape_of(row, (*path, i))
            if i == 0:
                first = shape
            elif shape != first and not mismatch:
                rows = (f"row {_index_text((*path, k))} {_shape_text(size)}" for k, size in ((i, shape), (0, first)))
                mismatch.append(": " + ", and ".join(rows))
        return len(part), *first

    shape_of(x, ())
    return mismatch[0] if mismatch else ""


def _index_text(path: tuple[int, ...]) -> str:
    """Return the index of a row as text."""
    return str(path[0]) if len(path) == 1 else str(path)


def _shape_text(shape: tuple[int, ...]) -> str:
    """Return the size of a row as the end of a sentence."""
    if len(shape) != 1:
        return f"has the shape {shape}" if shape else "is a single number"
    return f"has {shape[0]} element{'' if shape[0] == 1 else 's'}"


def check_loss_function(loss_fn: Any) -> None:
    """Raise ValueError if the argument cannot be called as a loss of results and targets."""
    if not callable(loss_fn):
        raise ValueError(f"loss_fn is called as loss_fn(model(x), y); got a {type(loss_fn).__name__}.")
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise ValueError(f"loss_fn is called as loss_fn(model(x), y); got the class {name}: give one of it, {name}().")


def is_torch_model(model: Any) -> bool:
    """True if a model is a PyTorch module; PyTorch is not imported for the check."""
    return "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module)


def file_path(path: Any) -> Path:
    """Return the path of a file or a folder; raise ValueError if it is neither text nor a path."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(f"A path is text or a pathlib.Path, got {path!r}.")
    return Path(path)


def check_parent(path: Path) -> None:
    """Raise FileNotFoundError or NotADirectoryError with the name of the folder if a file cannot be written to it."""
    folder = path.parent
    if not folder.exists():
        raise FileNotFoundError(ENOENT, f"There is no folder {folder}, make it first", str(path))
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, f"{folder} is a file, and no folder", str(path))


def did_you_mean(name: object, names: Iterable[str], most: int = 1) -> str:
    """Return a sentence that suggests the most similar known names, with a space before it; empty if there are none."""
    from difflib import get_close_matches  # imported only after a mistake

    near = get_close_matches(str(name), list(names), n=most)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def matches(pattern: str | None, name: str) -> bool:
    """True if a name equals or matches the pattern, or if there is no pattern."""
    return pattern is None or name == pattern or fnmatchcase(name, pattern)


def check_pattern(what: str, pattern: str | None, names: Iterable[str] = (), hint: str = "") -> None:
    """Raise ValueError if a pattern is not text, or matches none of the names (if there are any names)."""
    if pattern is not None and not isinstance(pattern, str):
        raise ValueError(f"{what} must be a text, such as 'hidden.*', got {pattern!r}.")
    seen_names = list(dict.fromkeys(names))
    if pattern is None or not seen_names or any(matches(pattern, name) for name in seen_names):
        return
    shown = ", ".join(name or "''" for name in seen_names)
    raise ValueError(
        f"{what} {pattern!r} matches nothing that was seen.{hint}{did_you_mean(pattern, seen_names, 3)} Seen: {shown}."
    )


def select_rows(rows: Sequence[T], **columns: tuple[str | None, Sequence[str]]) -> list[T]:
    """Return the rows that match all patterns.

    A keyword is the name of a column. Its value is a pattern, or None, and the text of the column in every row. Raises
    ValueError if there are rows, but one pattern, or all patterns together, match none of them. The message contains
    the rows that each single pattern matches.
    """
    with_pattern = {column: value for column, value in columns.items() if value[0] is not None}
    for column, (pattern, texts) in with_pattern.items():
        check_pattern(column, pattern, texts)
    is_match = {column: [matches(pattern, text) for text in texts] for column, (pattern, texts) in with_pattern.items()}
    selected = [row for row, *columns_match in zip(rows, *is_match.values(), strict=True) if all(columns_match)]
    if selected or not rows:
        return selected
    options = {column: f"{column} {pattern!r}" for column, (pattern, _) in with_pattern.items()}
    single_matches = [
        f"{options[column]} matches rows with {other} "
        + ", ".join(dict.fromkeys(text or repr(text) for text in compress(with_pattern[other][1], is_match[column])))
        for column, other in permutations(with_pattern, 2)
    ]
    raise ValueError(f"{' and '.join(options.values())} match no row together: {'; '.join(single_matches)}.")


def type_name(value: object) -> str:
    """Return the type of a value as text, with "torch." for PyTorch types, as some share a name with ours."""
    package = type(value).__module__.partition(".")[0]
    return f"{package}.{type(value).__name__}" if package == "torch" else type(value).__name__


def warn(message: str) -> None:
    """Issue a UserWarning that points at the user's line that called the library."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


Row = Sequence[str]


class Table(str):
    """The text of a table: a string that is its own repr, and that notebooks show as a table."""

    rows: tuple[tuple[str, ...], ...] = ()
    number_columns: int = 0  # the number of last columns that are aligned on the right
    has_head: bool = False  # True if the first row has the names of the columns

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        lines = [self._line(row, "th" if self.has_head and row is self.rows[0] else "td") for row in self.rows]
        return f"<table>{''.join(lines)}</table>"

    def _line(self, row: Row, cell: str) -> str:
        sides = ["left"] * (len(row) - self.number_columns) + ["right"] * self.number_columns
        cells = zip(row, sides, strict=True)
        html_cells = (f'<{cell} style="text-align: {side}; {WRAP}">{_cell_html(text)}</{cell}>' for text, side in cells)
        return f"<tr>{''.join(html_cells)}</tr>"


#: Cells are wrapped, so that all columns of a wide table fit on a page.
WRAP = "white-space: normal; vertical-align: top"

#: A long name or call may be wrapped after these characters.
BREAKS = re.compile(r"([._=])(?=[A-Za-z&])")


def _cell_html(text: str) -> str:
    """Return the text of a cell as HTML, with places at which long names and calls may be wrapped."""
    return BREAKS.sub(r"\1<wbr>", escape(text)).replace("\n", "<br>")


def table(rows: Iterable[Row], *, number_columns: int = 0, has_head: bool = True) -> Table:
    """Return rows as a table with aligned columns; the last `number_columns` columns are aligned on the right.

    All rows have the same number of cells. A cell may have several lines.
    """
    cell_rows = tuple(map(tuple, rows))
    lines = [line for row in cell_rows for line in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    names = len(widths) - number_columns
    text = Table(
        "\n".join(
            "  ".join(
                cell.ljust(width) if column < names else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
    )
    text.rows, text.number_columns, text.has_head = cell_rows, number_columns, has_head
    return text
