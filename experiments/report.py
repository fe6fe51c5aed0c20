"""One page of all results: claims, verdicts, figures, tables, configurations and versions, in one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

import simfloat as sf
from experiments.archive import Archive, Section, read_archive
from experiments.discoveries import discoveries
from experiments.verdicts import RANKS
from experiments.workspace import write_file

REPORT = "report.html"
TEMPLATE = Path(__file__).with_name("report.html.jinja")

#: A claim that a tiny run looked at.
UNDECIDED = "no verdict"

VERDICTS = (*reversed(RANKS), UNDECIDED)


def write_report(folder: Path) -> tuple[Path, Archive]:
    """Write report.html about all results below the folder; returns its path and what it is about.

    Raises ValueError if there are none.
    """
    archive = read_archive(folder)
    if not archive.sections and not archive.damaged:
        raise ValueError(
            f"There are no results below {folder}. `python -m experiments run NAME` makes some, in results/NAME; "
            "other folders are named by --out."
        )
    text = page(archive)
    write_file(folder / REPORT, lambda path: path.write_text(text, encoding="utf-8"), folder)
    return folder / REPORT, archive


def page(archive: Archive) -> str:
    """The page as HTML, which needs no other file and asks for none."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"tally": tally, "plain": plain, "earlier": earlier}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        archive=archive,
        total=tally(archive.sections),
        found=discoveries(finding.get("p") for section in archive.sections for finding in section.findings),
        undecided=UNDECIDED,
        version=sf.__version__,
    )


def tally(sections: Sequence[Section]) -> dict[str, int]:
    """How many claims of these sections have which verdict, for every verdict that one has."""
    counts = Counter(finding.get("verdict") or UNDECIDED for section in sections for finding in section.findings)
    return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


def earlier(verdicts: Sequence[Sequence[Any]]) -> str:
    """The verdicts over fewer seeds as text."""
    return ", ".join(f"{verdict or UNDECIDED} with {number} seeds" for number, verdict in verdicts)


def plain(value: Any) -> str:
    """A value of a configuration as text."""
    if isinstance(value, list):
        return ", ".join(map(plain, value)) or "none"
    if isinstance(value, dict):
        parts = (
            f"{key} ({plain(item)})" if isinstance(item, dict) else f"{key}: {plain(item)}"
            for key, item in value.items()
        )
        return "; ".join(parts) or "none"
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)
