"""The budget of roads, sources and prose: python -m benchmarks.budget.

`budget.toml` has a number for each thing that `roads.py`, `shape.py` and `prose.py` measure. A larger number exceeds
the budget, and so does a smaller share of comments. If a number is far below its line, the line is to be lowered. With
`--write` every line becomes the measured number, rounded up a little, so that a change of a few lines of code changes
no line of the budget.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks import prose, roads, shape

FILE = Path(__file__).with_name("budget.toml")
COMMAND = "python -m benchmarks.budget --write"

Numbers = dict[str, dict[str, float]]

TITLES = {
    "calls": "Calls of simfloat's functions that one warm call makes; of a step, for each parameter.",
    "files": "Files that these calls pass.",
    "shape": "simfloat/ as a whole.",
    "code": 'Lines of code by folder; "." are the files beside the folders.',
    "comments": "Lines that are comments, at least, in percent: of all files, and of the three largest folders.",
    "documents": "Habits that make sentences hard to read, for each 1000 words of the pages (benchmarks/prose.py).",
    "docstrings": "These habits in docstrings.",
    "comment texts": "These habits in comments.",
    "public docstrings": "Public functions and classes.",
}

#: Tables of which no number may be smaller. No number of the other ones may be larger.
LEAST = ("comments",)

#: Tables of rates, which are small numbers.
RATES = ("documents", "docstrings", "comment texts")

#: A number may be better than its line by this share of the line, and at least by this much: a count, a percentage.
SLACK, LEAST_SLACK = 0.1, (3, 0.5)


def measure() -> Numbers:
    """Return every number of the budget, measured now."""
    return roads.measure() | shape.measure() | prose.measure()


def line(table: str, number: float) -> float:
    """The line of the budget for a number: rounded up, where little changes often, or down where it is the least."""
    if table in LEAST:
        return math.floor(number * 10) / 10
    if number != int(number) or table in RATES:
        return max(math.ceil(number * 10) / 10, 0.1)  # a habit may occur now and then
    step = 1 if table not in ("calls", "code") or number <= 100 else 10 if number <= 1000 else 50
    return math.ceil(number / step) * step


def complaints(measured: Numbers, budget: Numbers) -> Iterator[str]:
    """A sentence for every number that does not keep to its line."""
    for table in sorted(measured.keys() | budget.keys()):
        numbers, lines = measured.get(table, {}), budget.get(table, {})
        for name in sorted(numbers.keys() ^ lines.keys()):
            place = "the budget" if name in lines else "the sources"
            yield f"[{table}] {name!r} stands in {place} only; run {COMMAND}."
        for name in sorted(numbers.keys() & lines.keys()):
            yield from _complaint(table, name, numbers[name], lines[name])


def _complaint(table: str, name: str, number: float, line: float) -> Iterator[str]:
    is_least = table in LEAST
    excess = round(line - number if is_least else number - line, 2)
    if excess > 0:
        change, move = ("explain more", "lower") if is_least else ("make it shorter", "raise")
        yield (
            f"[{table}] {name!r} is {number:g}, {excess:g} {'below' if is_least else 'above'} its line of {line:g}: "
            f"{change}, or {move} the line in benchmarks/{FILE.name} and say why in the commit."
        )
    elif -excess > max(SLACK * line, LEAST_SLACK[is_least or table in RATES or "%" in name]):
        yield f"[{table}] {name!r} is {number:g}, {-excess:g} better than its line of {line:g}: run {COMMAND}."


def text(numbers: Numbers) -> str:
    """The file of the budget for numbers."""
    tables = []
    for table, title in TITLES.items():
        lines = [f"{_key(name)} = {line(table, number):g}" for name, number in numbers[table].items()]
        tables.append("\n".join((f"# {title}", f"[{_key(table)}]", *lines, "")))
    return "\n".join(tables)


def _key(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'


def read() -> Numbers:
    """The lines of the budget."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


@click.command()
@click.option("--write", is_flag=True, help=f"Write the measured numbers to {FILE.name}.")
def main(write: bool) -> None:
    """Measure, and print what does not keep to the budget, or write the budget."""
    measured = measure()
    if write:
        FILE.write_text(text(measured), encoding="utf-8")
    print("\n".join(complaints(measured, read())) or "Every number keeps to its line.")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.budget")
