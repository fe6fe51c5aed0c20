"""One page of all results below a folder: claims, verdicts, figures, tables, configurations and versions."""

from __future__ import annotations

import base64
import csv
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import simfloat as sf
from simfloat.checks import file_path
from simfloat.studies.intervals import discoveries
from simfloat.studies.notes import NOTES, notes_in
from simfloat.studies.stored import column_names
from simfloat.studies.verdicts import RANKS
from simfloat.studies.workspace import write_file

#: What a run leaves: its records and what it found; what a sweep leaves: its table, twice, and what was asked.
METRICS, SUMMARY = "metrics.jsonl", "summary.json"
CSV, PARQUET, SWEEP = "sweep.csv", "sweep.parquet", "sweep.json"

#: What a search leaves: its points, and what was asked and found.
SEARCH_POINTS, SEARCH = "search.csv", "search.json"

#: What stands beside the results of a run, a sweep and a search, and tells that there are some.
SUMMARIES = {SUMMARY: "run", SWEEP: "sweep", SEARCH: "search"}

#: What tells of a study, beside its results: the page takes limits and sources from it.
README = "README.md"

REPORT = "report.html"
TEMPLATE = Path(__file__).with_name("report_page.html.jinja")

#: A claim that a tiny run looked at.
UNDECIDED = "no verdict"

VERDICTS = (*reversed(RANKS), UNDECIDED)


#: Kinds of pictures that a page can hold, by the ends of their files' names.
PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}

#: More rows of a table are not for reading; the file has them all.
MOST_ROWS = 1000


class Figure(NamedTuple):
    """A picture as text: its name and a data URI, and the name of the same figure as PDF, if that lies beside it."""

    name: str
    uri: str
    pdf: str


class Preview(NamedTuple):
    """The first rows of a table, the number of all, and the file that has them."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    total: int
    file: str


class Section(NamedTuple):
    """A run, a sweep or a search: where it lies, its summary, its figures, its table, its limits and sources."""

    place: str
    kind: str
    summary: dict[str, Any]
    read_figures: list[Figure]
    table_preview: Preview
    notes: dict[str, list[str]]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The findings of a run; others have none."""
        return self.summary.get("findings", [])


class Archive(NamedTuple):
    """All sections, in the order of their places, and what could not be read: pairs of a file and the reason."""

    sections: list[Section]
    damaged: list[tuple[str, str]]


def read_archive(root: Path) -> Archive:
    """Read all results below `root`. Hidden folders, and summaries that belong to no experiment, are passed over."""
    sections, damaged = [], []
    for path in summary_paths(root):
        try:
            section = read_section(root, path)
            if section:
                render_page(Archive([section], []))  # what cannot be shown is as good as damaged
        except ImportError:
            raise
        except Exception as error:  # whatever else stands in these files
            damaged.append((str(path.relative_to(root)), f"{type(error).__name__}: {error}"))
        else:
            sections += [section] if section else []
    return Archive(sections, damaged)


def summary_paths(root: Path) -> Iterator[Path]:
    """The summaries below a folder, those of one folder in the order of their kinds."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder) / name for name in SUMMARIES if name in files)


def read_section(root: Path, path: Path) -> Section | None:
    """The section that a summary stands for; None if it is none of an experiment."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(summary, dict) or not {"experiment", "question", "versions"} <= summary.keys():
        return None
    folder, kind = path.parent, SUMMARIES[path.name]
    # Pictures belong to the run where there are both: a sweep draws none.
    shared = kind == "sweep" and (folder / SUMMARY).exists()
    tables = {"sweep": CSV, "search": SEARCH_POINTS}
    listing = last_records(folder / METRICS) if kind == "run" else read_table_preview(folder / tables[kind])
    pictures = [] if shared else read_figures(folder)
    return Section(str(folder.relative_to(root)), kind, summary, pictures, listing, study_notes(folder, summary))


def study_notes(folder: Path, summary: dict[str, Any]) -> dict[str, list[str]]:
    """The limits and sources that a summary has, or a README.md beside it, whose words count first."""
    readme = folder / README
    readme_notes = notes_in(readme.read_text(encoding="utf-8")) if readme.is_file() else {}
    return {name: paragraphs for name in NOTES if (paragraphs := readme_notes.get(name) or summary.get(name))}


def read_figures(folder: Path) -> list[Figure]:
    """The pictures in a folder, by name."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in PICTURES and path.is_file())
    return [Figure(path.name, data_uri(path), pdf_name(path)) for path in paths]


def pdf_name(path: Path) -> str:
    """The name of the PDF of a picture; nothing if there is none."""
    pdf = path.with_suffix(".pdf")
    return pdf.name if pdf.is_file() else ""


def data_uri(path: Path) -> str:
    """The file's bytes inside of an address."""
    return f"data:{PICTURES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def last_records(path: Path) -> Preview:
    """The last record of each run in metrics.jsonl: records that have the same texts and seed are of one run."""
    last: dict[tuple, dict[str, Any]] = {}
    with path.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            last[tuple((k, v) for k, v in row.items() if isinstance(v, str) or k == "seed")] = row
    rows = [{key: value for key, value in row.items() if not isinstance(value, (list, dict))} for row in last.values()]
    columns = column_names(rows)
    return table_preview(
        "Last record of each run", columns, [[row.get(name) for name in columns] for row in rows], path
    )


def read_table_preview(path: Path) -> Preview:
    """The table of a sweep or a search."""
    with path.open(encoding="utf-8", newline="") as lines:
        columns, *rows = csv.reader(lines)
    return table_preview("Points", columns, rows, path)


def table_preview(title: str, columns: list[str], rows: Sequence[Sequence[Any]], path: Path) -> Preview:
    """The first of the rows as texts."""
    return Preview(title, columns, [list(map(cell_text, row)) for row in rows[:MOST_ROWS]], len(rows), path.name)


def cell_text(value: Any) -> str:
    """A value as a table to read has it: fractions with six digits, nothing for None."""
    if isinstance(value, str) and set(value) <= set("0123456789.e+-") and "." in value:
        try:
            value = float(value)
        except ValueError:
            return value
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def report(folder: str | Path) -> Path:
    """Make report.html of all that runs, sweeps and searches have left below the folder; returns its path.

    It is one file, which asks for nothing on the network: of each study its question, claims and verdicts, figures (PNG
    or SVG; a PDF that lies beside one is named), its table, limits, sources, configuration and versions. Limits and
    sources are those of the experiment's README, or of a README.md that lies beside the results: what stands below
    headings, or behind words in bold type, that say so.

    Raises ValueError if there are no results.

    Examples:
        >>> table = sf.studies.sweep(lambda seed: seed**2, {"seed": range(3)}, folder=folder)
        >>> sf.studies.report(folder).name
        'report.html'
    """
    return write_report(file_path(folder))[0]


def write_report(folder: Path) -> tuple[Path, Archive]:
    """Write report.html about all results below the folder; returns its path and what it is about.

    Raises ValueError if there are none.
    """
    archive = read_archive(folder)
    if not archive.sections and not archive.damaged:
        raise ValueError(
            f"There are no results below {folder}. simfloat.studies.sweep with a folder makes some, and `python -m "
            "experiments run NAME`, in results/NAME or the folder that --out names."
        )
    text = render_page(archive)
    write_file(folder / REPORT, lambda path: path.write_text(text, encoding="utf-8"), folder)
    return folder / REPORT, archive


def render_page(archive: Archive) -> str:
    """The page as HTML, which loads no other file."""
    from jinja2 import Environment, StrictUndefined  # a tenth of a second

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"tally": count_verdicts, "plain": configuration_text, "earlier": earlier_verdicts_text}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        archive=archive,
        total=count_verdicts(archive.sections),
        found=discoveries(finding.get("p") for section in archive.sections for finding in section.findings),
        undecided=UNDECIDED,
        version=sf.__version__,
    )


def count_verdicts(sections: Sequence[Section]) -> dict[str, int]:
    """How many claims of these sections have which verdict, for every verdict that one has."""
    counts = Counter(finding.get("verdict") or UNDECIDED for section in sections for finding in section.findings)
    return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


def earlier_verdicts_text(verdicts: Sequence[Sequence[Any]]) -> str:
    """The verdicts over fewer seeds as text."""
    return ", ".join(f"{verdict or UNDECIDED} with {number} seeds" for number, verdict in verdicts)


def configuration_text(value: Any) -> str:
    """A value of a configuration as text."""
    if isinstance(value, list):
        return ", ".join(map(configuration_text, value)) or "none"
    if isinstance(value, dict):
        parts = (
            f"{key} ({configuration_text(item)})" if isinstance(item, dict) else f"{key}: {configuration_text(item)}"
            for key, item in value.items()
        )
        return "; ".join(parts) or "none"
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)
