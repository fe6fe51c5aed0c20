"""The terminal output of a run: a progress bar, and its findings at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from experiments.experiment import Experiment
from simfloat.studies import Finding, discoveries, verdict_text
from simfloat.studies.verdicts import BETTER, EQUAL, INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED, WITHIN, WORSE
from simfloat.terminal import reserve_line

COLUMNS = ("claim", "expectation", "measured (mean ± standard deviation over seeds)", "test", "verdict")
STYLES = {
    **dict.fromkeys((REPRODUCED, EQUAL, BETTER, WITHIN), "green"),
    **dict.fromkeys((NOT_REPRODUCED, WORSE), "red"),
    INCONCLUSIVE: "yellow",
}

#: In narrower terminals, the fields of a finding are printed below one another.
TABLE_WIDTH = 110

#: The width of output to a file.
FILE_WIDTH = 160


@contextmanager
def progress_of(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar that counts jobs, if standard error is a terminal; yield the function that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    # If both are terminals, other output is printed above the bar; standard output to a file is left unchanged.
    redirected = sys.stdout is not None and sys.stdout.isatty()
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, redirect_stdout=redirected, disable=not is_terminal)
    with reserve_line(), bar:
        task = bar.add_task(name, total=None)
        yield lambda done, jobs: bar.update(task, completed=done, total=jobs)


def show_findings(experiment: Experiment, findings: list[Finding]) -> None:
    """Print claim, expectation, measurement, test and verdict, without truncation.

    A line below says how many of the verdicts may be false.
    """
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if is_terminal else FILE_WIDTH)
    console.print(Text(experiment.question, style="italic"))
    console.print(as_table(findings) if console.width >= TABLE_WIDTH else as_list(findings))
    console.print(Text(str(discoveries(finding.p for finding in findings))))


def cells(finding: Finding) -> list[Text]:
    """Return the fields of a finding with brackets escaped, which would be markup in rich."""
    fields = (finding.claim, finding.expectation, finding.measured, finding.test)
    style = STYLES.get(finding.verdict or "", "")
    return [*(Text(field) for field in fields), Text(verdict_text(finding), style=style)]


def as_table(findings: list[Finding]) -> RenderableType:
    """Return a table with a row for each finding."""
    table = Table(show_lines=True)
    for column in COLUMNS:
        table.add_column(column, overflow="fold", min_width=len(NOT_REPRODUCED) if column == "verdict" else None)
    for finding in findings:
        table.add_row(*cells(finding))
    return table


def as_list(findings: list[Finding]) -> RenderableType:
    """Return a line for each field, and an empty line between findings."""
    table = Table.grid(padding=(0, 1))
    table.add_column(overflow="fold", style="bold")
    table.add_column(overflow="fold")
    for finding in findings:
        for name, cell in zip(COLUMNS, cells(finding), strict=True):
            table.add_row(name.split()[0], cell)
        table.add_row("", "")
    return table
