"""Extensions written by a newcomer: new files, rows of tables, and the guarantees that follow."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

#: What a copy of the sources needs to be worked on.
COPIED = ("simfloat", "experiments", "tests", "docs", "benchmarks", "pyproject.toml", "README.md", "CONTRIBUTING.md")


class Row(NamedTuple):
    """A text that is written below the only line of a file that begins so, apart from its indentation."""

    path: str
    below: str
    text: str


class Extension(NamedTuple):
    """One addition, written as the table of CONTRIBUTING says."""

    adds: str  # the beginning of the table's row
    promise: Callable[[], None]  # run in the copy, in a process of its own
    rows: tuple[Row, ...] = ()
    new: dict[str, str] = {}  # files by their paths


def copied(to):
    """A copy of the sources in an empty folder, with what Python has compiled of them."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("*.kernel", "*.function", "*.ipynb"))
        else:
            shutil.copy(source, to / name)


def written(extension, to):
    """Write an extension into a copy of the sources."""
    for path, text in extension.new.items():
        assert not (to / path).exists(), f"{path} is there already"
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        (to / path).write_text(text, encoding="utf-8")
    for row in extension.rows:
        lines = (to / row.path).read_text(encoding="utf-8").splitlines(keepends=True)
        places = [i for i, line in enumerate(lines) if line.strip().startswith(row.below)]
        assert len(places) == 1, f"{row.path} has {len(places)} lines that begin with {row.below!r}"
        lines.insert(places[0] + 1, row.text + "\n")
        (to / row.path).write_text("".join(lines), encoding="utf-8")
