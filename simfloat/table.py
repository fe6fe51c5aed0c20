"""Tables that print as text and that notebooks show as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

Row = Sequence[str]


class Table(str):
    """The text of a table, in the eyes of Python too: a str whose repr is itself, and which notebooks draw."""

    rows: tuple[tuple[str, ...], ...] = ()
    numbers: int = 0  # so many columns, the last ones, stand on the right
    headed: bool = False  # whether the first row names the columns

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        lines = [self._line(row, "th" if self.headed and row is self.rows[0] else "td") for row in self.rows]
        return f"<table>{''.join(lines)}</table>"

    def _line(self, row: Row, cell: str) -> str:
        sides = ["left"] * (len(row) - self.numbers) + ["right"] * self.numbers
        cells = zip(row, sides, strict=True)
        drawn = (f'<{cell} style="text-align: {side}">{escape(text)}</{cell}>' for text, side in cells)
        return f"<tr>{''.join(drawn)}</tr>"


def table(rows: Iterable[Row], *, numbers: int = 0, headed: bool = True) -> Table:
    """Rows of as many cells each, in columns as wide as their widest cell; the last `numbers` stand on the right."""
    known = tuple(map(tuple, rows))
    widths = [max(map(len, column)) for column in zip(*known, strict=True)]
    names = len(widths) - numbers
    text = Table(
        "\n".join(
            "  ".join(
                cell.ljust(width) if column < names else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in known
        )
    )
    text.rows, text.numbers, text.headed = known, numbers, headed
    return text
