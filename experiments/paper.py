"""One document of all claims, methods, pictures and limits: HTML, and PDF if a browser that prints is installed.

Its parts are the rules of verdicts, the page of claims, every experiment's README with its pictures, the resolution of
its tests, and the commands that repeat everything. It loads nothing from the network.
"""

from __future__ import annotations

import html
import itertools
import math
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import NamedTuple

from experiments import claims
from experiments.catalog import EXPERIMENTS
from experiments.experiment import Experiment
from experiments.readme import folder_of
from simfloat.studies import versions
from simfloat.studies.report import data_uri
from simfloat.studies.verdicts import EQUAL, INCONCLUSIVE, WITHIN

#: Browsers that print to PDF without a window, and the seconds that one may take.
BROWSERS, PATIENCE = ("chromium", "chromium-browser", "google-chrome", "chrome"), 120

#: The number of pixels of a browser in an inch.
INCH = 96

#: The verdicts that depend on the resolution of a test, and the power of the resolution.
OPEN, POWER = (EQUAL, WITHIN, INCONCLUSIVE), 0.8

#: The interval of a paired test in the description of a finding.
INTERVAL = re.compile(r"(ratio|difference) in \[([^,\]]+), ([^\]]+)\]: paired t.*?n = (\d+)")

IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
HEADING = re.compile(r"<h2>(.*?)</h2>")
LOCAL_LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\((?!http)[^)\s]+\)")

STYLE = """\
body { font: 16px/1.5 Georgia, serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2, h3, h4 { break-after: avoid; } tr, img, pre { break-inside: avoid; } p:has(> img) { break-after: avoid; }
nav { columns: 2; } nav a { display: block; color: inherit; }
table { border-collapse: collapse; font: 13px/1.35 sans-serif; display: block; overflow-x: auto; }
td, th { border: 1px solid #ccc; padding: 0.2rem 0.5rem; text-align: left; vertical-align: top; }
img { max-width: 100%; } pre { background: #f5f5f5; padding: 0.5rem; overflow-x: auto; }
@page { size: A4; margin: 16mm; @bottom-center { content: counter(page); font: 9px sans-serif; } }
@media print {
  body { font-size: 11px; margin: 0; padding: 0; } h2 { break-before: page; }
  table { display: table; width: 100%; font-size: 9px; } td { overflow-wrap: break-word; }
}
"""

REPEAT = """\
```sh
python -m experiments run NAME           # runs an experiment, and judges it
python -m experiments.readme NAME        # judges the stored results again
python -m experiments claims --page      # writes the page of claims
python -m experiments.independent        # repeats main findings without simfloat
python -m experiments paper              # writes this document
```
"""


class Resolution(NamedTuple):
    """The smallest effect that a test shows with a power of 80 %, and the number of its runs."""

    effect: float
    runs: int
    is_ratio: bool

    def __str__(self) -> str:
        return f"{100 * math.expm1(self.effect):.2g} %" if self.is_ratio else f"{self.effect:.2g}"


def resolutions(test: str) -> list[Resolution]:
    """Return the resolution of each paired test in a description."""
    from scipy.special import stdtrit

    made = []
    for kind, low, high, runs in INTERVAL.findall(test):
        ends, n = (float(low), float(high)), int(runs)
        is_ratio = kind == "ratio"
        if is_ratio and min(ends) <= 0 or not all(map(math.isfinite, ends)):
            continue
        least, most = map(math.log, ends) if is_ratio else ends
        quantile = float(stdtrit(n - 1, 0.975))
        effect = (most - least) / 2 * (1 + float(stdtrit(n - 1, POWER)) / quantile)
        made.append(Resolution(effect, n, is_ratio))
    return made


def resolution_table(name: str) -> str:
    """Return a table of the claims of an experiment that are equal or open, with the resolution of their tests."""
    rows = []
    for row in claims.all_found():
        if row.experiment == name and row.verdict.partition(" (")[0] in OPEN and (tests := resolutions(row.test)):
            effects = ", ".join(map(str, tests))
            claim = row.claim.replace("|", r"\|").replace("*", r"\*")
            rows.append(f"| {claim} | {row.verdict} | {effects} | {tests[0].runs} |")
    if not rows:
        return ""
    head = ["| claim | verdict | smallest effect with a power of 80 % | runs |", "|---|---|---|---|"]
    return "\n".join(["### Resolution", "", *head, *rows, ""])


def chapter(experiment: Experiment) -> str:
    """Return the README of an experiment as a chapter with embedded pictures and the resolution of its tests."""
    folder = folder_of(experiment)
    text = lower_headings((folder / "README.md").read_text(encoding="utf-8"), 1)
    text = IMAGE.sub(lambda image: picture(folder / image[2], image[1]), text)
    return f"{text}\n\n{resolution_table(experiment.name)}"


def picture(path: Path, text: str) -> str:
    """Return a picture as HTML with its content, in the size for which it was drawn."""
    from PIL import Image

    with Image.open(path) as image:
        width = round(INCH * image.width / image.info["dpi"][0])
    return f'<img alt="{html.escape(text)}" width="{width}" src="{data_uri(path)}">'


def with_contents(page: str) -> str:
    """Return a page with a list of its chapters before the first one."""
    titles = HEADING.findall(page)
    links = "\n".join(f'<a href="#{number}">{title}</a>' for number, title in enumerate(titles, 1))
    numbers = itertools.count(1)
    page = HEADING.sub(lambda heading: f'<h2 id="{next(numbers)}">{heading[1]}</h2>', page)
    return page.replace("<h2 ", f"<nav>\n{links}\n</nav>\n<h2 ", 1)


def lower_headings(markdown: str, levels: int) -> str:
    """Move the headings of a text down by some levels."""
    return re.sub(r"^(#+ )", "#" * levels + r"\1", markdown, flags=re.MULTILINE)


def rules() -> str:
    """Return the rules of verdicts from the README of the experiments."""
    text = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## Verdicts\n.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    return section[0] if section else ""


def abstract() -> str:
    """Return the number of claims and findings by their verdicts, and the versions of all programs."""
    counts = Counter(row.verdict.partition(" (")[0] for row in claims.all_found())
    found = ", ".join(f"{word} ({count})" for word, count in counts.most_common())
    sources, listed = claims.read_claims()
    programs = ", ".join(f"{name} {version}" for name, version in versions().items())
    return (
        f"{len(listed)} claims of {len(sources)} sources on training with narrow numbers are tested by "
        f"{len(EXPERIMENTS)} experiments with {sum(counts.values())} findings: {found}. "
        f"Written on {date.today().isoformat()} with {programs}."
    )


def document() -> str:
    """Return the whole document as Markdown."""
    parts: Iterable[str] = (
        "# Claims on training with narrow numbers, tested bit for bit",
        abstract(),
        rules(),
        lower_headings(claims.page(), 1),
        *(chapter(experiment) for experiment in EXPERIMENTS.values()),
        "## Repeat",
        REPEAT,
    )
    return LOCAL_LINK.sub(r"\1", "\n\n".join(parts))


def write_paper(path: Path) -> list[Path]:
    """Write the document as HTML, and as PDF beside it if a browser can print; return the files."""
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark").enable("table")
    renderer.validateLink = lambda url: True  # type: ignore[method-assign]  # pictures are inside of the page
    head = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Claims</title><style>{STYLE}</style>\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    page = with_contents(renderer.render(document()))
    path.write_text(f"{head}<body>\n{page}</body></html>\n", encoding="utf-8")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    return [path, *([print_to_pdf(path, browser)] if browser else [])]


def print_to_pdf(path: Path, browser: str) -> Path:
    """Print a page to a PDF beside it."""
    pdf = path.with_suffix(".pdf")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={pdf}"]
    subprocess.run([browser, *options, path.resolve().as_uri()], check=True, capture_output=True, timeout=PATIENCE)
    return pdf
