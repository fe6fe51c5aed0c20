"""Tables that print as text and that notebooks show as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest

Row = Sequence[str]


class Table(str):
    """The text of a table, in the eyes of Python too: a str whose repr is itself, and which notebooks draw."""

    rows: tuple[tuple[str, ...], ...] = ()
    number_columns: int = 0  # so many columns, the last ones, stand on the right
    has_head: bool = False  # whether the first row names the columns

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        lines = [self._line(row, "th" if self.has_head and row is self.rows[0] else "td") for row in self.rows]
        return f"<table>{''.join(lines)}</table>"

    def _line(self, row: Row, cell: str) -> str:
        sides = ["left"] * (len(row) - self.number_columns) + ["right"] * self.number_columns
        cells = zip(row, sides, strict=True)
        html_cells = (f'<{cell} style="text-align: {side}">{_cell_html(text)}</{cell}>' for text, side in cells)
        return f"<tr>{''.join(html_cells)}</tr>"


def _cell_html(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def table(rows: Iterable[Row], *, number_columns: int = 0, has_head: bool = True) -> Table:
    """Align rows of as many cells each in columns as wide as their widest cell; columns of numbers come last.

    A cell may have several lines.
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
