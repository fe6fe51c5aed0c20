"""One page of all results below a folder: claims, verdicts, figures, tables, configurations and versions.

The limits and the sources of a study are read out of its Markdown.

A user's function travels to another process. A function of a module is found there by its name; one of a notebook, of
the program itself or inside of another function travels as its code, by cloudpickle.
"""

from __future__ import annotations

import base64
import csv
import importlib
import json
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
from simfloat.studies.state_digest import function_digest
from simfloat.studies.statistics import discoveries
from simfloat.studies.stored import column_names
from simfloat.studies.verdicts import RANKS
from simfloat.studies.workspace import code_digest, import_folder, write_file

#: What a page shows of them, by the headings, or the words in bold type, under which they stand.
NOTES = {"limits": "limits?", "sources": "sources?"}

LINK = re.compile(r"\[([^]]+)\]\(([^)\s]+)\)")


def notes_in(markdown: str) -> dict[str, list[str]]:
    """The paragraphs on limits and on sources, as plain text; what is not there is left out."""
    paragraphs_by_name = {
        name: _section_paragraphs(markdown, words) or _bold_paragraphs(markdown, words) for name, words in NOTES.items()
    }
    return {name: list(map(plain_text, paragraphs)) for name, paragraphs in paragraphs_by_name.items() if paragraphs}


def plain_text(markdown: str) -> str:
    """A paragraph without marks: code and emphasis as the words alone, links with their address if it is on the web."""
    text = LINK.sub(lambda link: f"{link[1]} ({link[2]})" if link[2].startswith("http") else link[1], markdown)
    text = re.sub(r"`([^`]*)`|(?<!\w)[*_]{1,2}([^*_]+)[*_]{1,2}(?!\w)", lambda mark: mark[1] or mark[2] or "", text)
    return " ".join(text.split())


def _section_paragraphs(markdown: str, words: str) -> list[str]:
    """The paragraphs of the section of that name."""
    section = re.search(rf"^#+ (?:{words})\s*\n(.*?)(?=^#+ |\Z)", markdown, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    return [part for part in re.split(r"\n\s*\n", section[1].strip()) if part] if section else []


def _bold_paragraphs(markdown: str, words: str) -> list[str]:
    """The paragraphs that begin with that word in bold type, without it."""
    parts = (re.match(rf"\*\*(?:{words})\.?\*\*\.?\s*(.+)", part, re.DOTALL | re.IGNORECASE)
             for part in re.split(r"\n\s*\n", markdown))  # fmt: skip
    return [part[1] for part in parts if part]


def home_module(function: Any) -> str:
    """The module by whose sources a function's results are kept; simfloat alone where it has no file of its own."""
    function = _innermost(function)
    name = getattr(function, "__module__", None) or type(function).__module__
    module = sys.modules.get(name)
    return name if name != "__main__" and getattr(module, "__file__", None) else "simfloat"


def function_reference(function: Callable[..., Any]) -> dict[str, str]:
    """Describe a function so that another process can find it. Raises ValueError for one that cannot be sent."""
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
    """The function that was meant. Raises RuntimeError where another process has other code or another state of it."""
    if "code" in reference:
        return pickle.loads(base64.b64decode(reference["code"]))
    return _import_function(*(reference[key] for key in ("module", "name", "place", "versions", "digest")))


@cache
def _import_function(module: str, name: str, place: str, versions: str, digest: str) -> Callable[..., Any]:
    """A function of a module, which is looked at once: it may change its module while it runs."""
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
    figures: list[Figure]
    listing: Preview
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
