"""One page with all results below a folder: claims, verdicts, figures, tables, configurations and versions.

The limits and sources of a study are read from its Markdown files.

The module also sends a user's function to another process. A function of a module is found there by name. A function of
a notebook, of the main program, or inside another function is sent as code, by cloudpickle.
"""

from __future__ import annotations

import base64
import csv
import importlib
import os
import pickle
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import simfloat as sf
from simfloat.common import file_path
from simfloat.environment import parse_json
from simfloat.studies.state_digest import function_digest
from simfloat.studies.statistics import discoveries
from simfloat.studies.stored import column_names
from simfloat.studies.verdicts import RANKS
from simfloat.studies.workspace import code_digest, import_folder, write_file

#: Parts of a study's notes on the page -> the headings, or initial words in bold type, that mark them.
NOTES = {"limits": "limits?", "sources": "sources?"}

LINK = re.compile(r"\[([^]]+)\]\(([^)\s]+)\)")


def notes_in(markdown: str) -> dict[str, list[str]]:
    """Return the paragraphs on limits and on sources as plain text; a missing part is omitted."""
    paragraphs_by_name = {
        name: _section_paragraphs(markdown, words) or _bold_paragraphs(markdown, words) for name, words in NOTES.items()
    }
    return {name: list(map(plain_text, paragraphs)) for name, paragraphs in paragraphs_by_name.items() if paragraphs}


def plain_text(markdown: str) -> str:
    """Return a paragraph without markup: plain words instead of code and emphasis, and web links with their address."""
    text = LINK.sub(lambda link: f"{link[1]} ({link[2]})" if link[2].startswith("http") else link[1], markdown)
    text = re.sub(r"`([^`]*)`|(?<!\w)[*_]{1,2}([^*_]+)[*_]{1,2}(?!\w)", lambda mark: mark[1] or mark[2] or "", text)
    return " ".join(text.split())


def _section_paragraphs(markdown: str, words: str) -> list[str]:
    """Return the paragraphs of the section with this heading."""
    section = re.search(rf"^#+ (?:{words})\s*\n(.*?)(?=^#+ |\Z)", markdown, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    return [part for part in re.split(r"\n\s*\n", section[1].strip()) if part] if section else []


def _bold_paragraphs(markdown: str, words: str) -> list[str]:
    """Return the paragraphs that begin with this word in bold type, without the word."""
    parts = (re.match(rf"\*\*(?:{words})\.?\*\*\.?\s*(.+)", part, re.DOTALL | re.IGNORECASE)
             for part in re.split(r"\n\s*\n", markdown))  # fmt: skip
    return [part[1] for part in parts if part]


def home_module(function: Any) -> str:
    """Return the module that determines the sources for stored results; "simfloat" if it has no file of its own."""
    function = _innermost(function)
    name = getattr(function, "__module__", None) or type(function).__module__
    module = sys.modules.get(name)
    return name if name != "__main__" and getattr(module, "__file__", None) else "simfloat"


def function_reference(function: Callable[..., Any]) -> dict[str, str]:
    """Return a description by which another process finds a function; raise ValueError if it cannot be sent."""
    name = getattr(function, "__qualname__", "")
    home = home_module(function)
    if home != "simfloat" and getattr(sys.modules[home], name, None) is function and find_spec(home):
        reference = {
            "module": home,
            "name": name,
            "place": str(import_folder(home)),
            "versions": code_digest("simfloat"),
        }
        return {**reference, "digest": function_digest(function)}
    import cloudpickle

    try:
        return {"code": base64.b64encode(cloudpickle.dumps(function)).decode("ascii")}
    except (pickle.PicklingError, TypeError) as error:
        raise ValueError(f"{name or function!r} cannot be sent to another process: {error}") from None


def resolve_function(reference: dict[str, str]) -> Callable[..., Any]:
    """Return the described function; raise RuntimeError if this process has other code or another state of it."""
    if "code" in reference:
        return pickle.loads(base64.b64decode(reference["code"]))
    return _import_function(*(reference[key] for key in ("module", "name", "place", "versions", "digest")))


@cache
def _import_function(module: str, name: str, place: str, versions: str, digest: str) -> Callable[..., Any]:
    """Return a function of a module after a check; the result is cached, because a run may change the module."""
    if place not in sys.path:
        sys.path.insert(0, place)
    if code_digest("simfloat") != versions:
        raise RuntimeError("simfloat has other sources, or other versions of packages, on this worker.")
    function = getattr(importlib.import_module(module), name)
    if function_digest(function) != digest:
        raise RuntimeError(
            f"{module}.{name} computes something else in another process, which imports {module} anew: sources were "
            "changed after they were imported here, or a name that it uses was given another value. Reload the module, "
            "or pass the value as an argument."
        )
    return function


def function_name(function: Any) -> str:
    """Return the name of the function."""
    return getattr(_innermost(function), "__name__", type(function).__name__)


def _innermost(function: Any) -> Any:
    return _innermost(function.func) if isinstance(function, partial) else function


#: Files of a run: its records and its findings. Files of a sweep: its table in two formats, and the request.
METRICS, SUMMARY = "metrics.jsonl", "summary.json"
CSV, PARQUET, SWEEP = "sweep.csv", "sweep.parquet", "sweep.json"

#: Files of a search: its points, and the request with the answer.
SEARCH_POINTS, SEARCH = "search.csv", "search.json"

#: Summary files; their presence marks a folder as the result of a run, a sweep or a search.
SUMMARIES = {SUMMARY: "run", SWEEP: "sweep", SEARCH: "search"}

#: The file next to the results from which the page takes limits and sources.
README = "README.md"

REPORT = "report.html"
TEMPLATE = Path(__file__).with_name("report_page.html.jinja")

#: The verdict on a claim after a tiny run.
UNDECIDED = "no verdict"

VERDICTS = (*reversed(RANKS), UNDECIDED)


#: Media types of the pictures on a page, by file suffix.
PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}

#: The largest number of rows of a table on the page; the file contains all rows.
MOST_ROWS = 1000


class Figure(NamedTuple):
    """A picture as text: its name, a data URI, and the name of the PDF of the same figure, if there is one."""

    name: str
    uri: str
    pdf: str


class Preview(NamedTuple):
    """The first rows of a table, the number of all rows, and the file that contains them."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    total: int
    file: str


class Section(NamedTuple):
    """A run, a sweep or a search: its folder, summary, figures, table, limits and sources."""

    place: str
    kind: str
    summary: dict[str, Any]
    figures: list[Figure]
    listing: Preview
    notes: dict[str, list[str]]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The findings of a run; sweeps and searches have none."""
        return self.summary.get("findings", [])


class Archive(NamedTuple):
    """All sections in the order of their folders, and the damaged files with the reasons."""

    sections: list[Section]
    damaged: list[tuple[str, str]]


def read_archive(root: Path) -> Archive:
    """Read all results below `root`, except hidden folders and summaries that belong to no experiment."""
    sections, damaged = [], []
    for path in summary_paths(root):
        try:
            section = read_section(root, path)
            if section:
                render_page(Archive([section], []))  # results that cannot be rendered count as damaged
        except ImportError:
            raise
        except Exception as error:  # the files may contain anything
            damaged.append((str(path.relative_to(root)), f"{type(error).__name__}: {error}"))
        else:
            sections += [section] if section else []
    return Archive(sections, damaged)


def summary_paths(root: Path) -> Iterator[Path]:
    """Yield the summaries below a folder; several in one folder are in the order of their kinds."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder) / name for name in SUMMARIES if name in files)


def read_section(root: Path, path: Path) -> Section | None:
    """Return the section of a summary; None if the summary belongs to no experiment."""
    summary = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(summary, dict) or not {"experiment", "question", "versions"} <= summary.keys():
        return None
    folder, kind = path.parent, SUMMARIES[path.name]
    # If a folder has both, the pictures belong to the run, because a sweep draws none.
    shared = kind == "sweep" and (folder / SUMMARY).exists()
    tables = {"sweep": CSV, "search": SEARCH_POINTS}
    listing = last_records(folder / METRICS) if kind == "run" else read_table_preview(folder / tables[kind])
    pictures = [] if shared else read_figures(folder)
    return Section(str(folder.relative_to(root)), kind, summary, pictures, listing, study_notes(folder, summary))


def study_notes(folder: Path, summary: dict[str, Any]) -> dict[str, list[str]]:
    """Return the limits and sources from a README.md in the folder, or otherwise from the summary."""
    readme = folder / README
    readme_notes = notes_in(readme.read_text(encoding="utf-8")) if readme.is_file() else {}
    return {name: paragraphs for name in NOTES if (paragraphs := readme_notes.get(name) or summary.get(name))}


def read_figures(folder: Path) -> list[Figure]:
    """Return the pictures in a folder, by name."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in PICTURES and path.is_file())
    return [Figure(path.name, data_uri(path), pdf_name(path)) for path in paths]


def pdf_name(path: Path) -> str:
    """Return the name of the PDF of a picture; empty if there is none."""
    pdf = path.with_suffix(".pdf")
    return pdf.name if pdf.is_file() else ""


def data_uri(path: Path) -> str:
    """Return the content of a file as a data URI."""
    return f"data:{PICTURES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def last_records(path: Path) -> Preview:
    """Return the last record of each run in metrics.jsonl; records with the same texts and seed belong to one run."""
    last: dict[tuple, dict[str, Any]] = {}
    with path.open(encoding="utf-8") as lines:
        for row in map(parse_json, lines):
            last[tuple((k, v) for k, v in row.items() if isinstance(v, str) or k == "seed")] = row
    rows = [{key: value for key, value in row.items() if not isinstance(value, (list, dict))} for row in last.values()]
    columns = column_names(rows)
    return table_preview(
        "Last record of each run", columns, [[row.get(name) for name in columns] for row in rows], path
    )


def read_table_preview(path: Path) -> Preview:
    """Return the table of a sweep or a search."""
    with path.open(encoding="utf-8", newline="") as lines:
        columns, *rows = csv.reader(lines)
    return table_preview("Points", columns, rows, path)


def table_preview(title: str, columns: list[str], rows: Sequence[Sequence[Any]], path: Path) -> Preview:
    """Return the first rows as text."""
    return Preview(title, columns, [list(map(cell_text, row)) for row in rows[:MOST_ROWS]], len(rows), path.name)


def cell_text(value: Any) -> str:
    """Return a value for reading: fractions with six digits, and an empty text for None."""
    if isinstance(value, str) and set(value) <= set("0123456789.e+-") and "." in value:
        try:
            value = float(value)
        except ValueError:
            return value
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def report(folder: str | Path) -> Path:
    """Write report.html about all runs, sweeps and searches below a folder, and return its path.

    The page is one file that loads nothing from the network. It shows, for each study, the question, claims and
    verdicts, figures (PNG or SVG, with the name of a PDF of the same figure), the table, limits, sources, the
    configuration and versions. Limits and sources are read from the README of the experiment, or from a README.md next
    to the results: the text below headings, or after words in bold type, with these names.

    Parameters:
        folder: the folder with the results.

    Returns:
        The path of report.html.

    Raises:
        ValueError: if there are no results.

    Examples:
        >>> table = sf.studies.sweep(lambda seed: seed**2, {"seed": range(3)}, folder=folder)
        >>> sf.studies.report(folder).name
        'report.html'
    """
    return write_report(file_path(folder))[0]


def write_report(folder: Path) -> tuple[Path, Archive]:
    """Write report.html about all results below a folder.

    Parameters:
        folder: the path of the folder.

    Returns:
        The path of the page, and the results that it shows.

    Raises:
        ValueError: if there are no results.
    """
    archive = read_archive(folder)
    if not archive.sections and not archive.damaged:
        raise ValueError(
            f"There are no results below {folder}. Create some by simfloat.studies.sweep with a folder, or by `python "
            "-m experiments run NAME`, which writes to results/NAME or to the folder of --out."
        )
    text = render_page(archive)
    write_file(folder / REPORT, lambda path: path.write_text(text, encoding="utf-8"), folder)
    return folder / REPORT, archive


def render_page(archive: Archive) -> str:
    """Return the page as HTML that loads no other file."""
    from jinja2 import Environment, StrictUndefined  # the import takes a tenth of a second

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
    """Return the number of claims in these sections for each verdict that occurs."""
    counts = Counter(finding.get("verdict") or UNDECIDED for section in sections for finding in section.findings)
    return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


def earlier_verdicts_text(verdicts: Sequence[Sequence[Any]]) -> str:
    """Return the verdicts over fewer seeds as text."""
    return ", ".join(f"{verdict or UNDECIDED} with {number} seeds" for number, verdict in verdicts)


def configuration_text(value: Any) -> str:
    """Return a value of a configuration as text."""
    if isinstance(value, list):
        return ", ".join(map(configuration_text, value)) or "none"
    if isinstance(value, dict):
        parts = (
            f"{key} ({configuration_text(item)})" if isinstance(item, dict) else f"{key}: {configuration_text(item)}"
            for key, item in value.items()
        )
        return "; ".join(parts) or "none"
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)
