"""What a run shows in a terminal: a bar while it runs, its findings at the end."""

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

#: Narrower terminals get the fields of a finding below one another.
TABLE_WIDTH = 110

#: The width of output that goes to a file.
FILE_WIDTH = 160


@contextmanager
def progress_of(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that counts jobs, on standard error and only if that is a terminal; gives what moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    # What is printed meanwhile goes above the bar where both are seen; standard output that is a file is left alone.
    redirected = sys.stdout is not None and sys.stdout.isatty()
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, redirect_stdout=redirected, disable=not is_terminal)
    with reserve_line(), bar:
        task = bar.add_task(name, total=None)
        yield lambda done, jobs: bar.update(task, completed=done, total=jobs)


def show_findings(experiment: Experiment, findings: list[Finding]) -> None:
    """Print claim, expectation, what was measured, the test and the verdict; nothing is ever cut off.

    Below them stands how many of the verdicts may be false.
    """
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if is_terminal else FILE_WIDTH)
    console.print(Text(experiment.question, style="italic"))
    console.print(as_table(findings) if console.width >= TABLE_WIDTH else as_list(findings))
    console.print(Text(str(discoveries(finding.p for finding in findings))))


def cells(finding: Finding) -> list[Text]:
    """The fields of a finding as they are: brackets in a policy's name are no markup."""
    fields = (finding.claim, finding.expectation, finding.measured, finding.test)
    style = STYLES.get(finding.verdict or "", "")
    return [*(Text(field) for field in fields), Text(verdict_text(finding), style=style)]


def as_table(findings: list[Finding]) -> RenderableType:
    """A row for each finding."""
    table = Table(show_lines=True)
    for column in COLUMNS:
        table.add_column(column, overflow="fold", min_width=len(NOT_REPRODUCED) if column == "verdict" else None)
    for finding in findings:
        table.add_row(*cells(finding))
    return table


def as_list(findings: list[Finding]) -> RenderableType:
    """A line for each field, and an empty one between findings."""
    table = Table.grid(padding=(0, 1))
    table.add_column(overflow="fold", style="bold")
    table.add_column(overflow="fold")
    for finding in findings:
        for name, cell in zip(COLUMNS, cells(finding), strict=True):
            table.add_row(name.split()[0], cell)
        table.add_row("", "")
    return table
