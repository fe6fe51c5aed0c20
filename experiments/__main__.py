"""The command line: python -m experiments list | run NAME [options]."""

from __future__ import annotations

import difflib
import signal
import sys
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import simfloat as sf
from experiments import EXPERIMENTS
from experiments.experiment import Experiment, Finding, Options
from experiments.runner import run_jobs, write_results

#: What a shell reports for a program ended by Ctrl-C.
INTERRUPTED = 130


@click.group()
def main() -> None:
    """Experiments with narrow floating-point arithmetic."""


@main.command("list")
def list_experiments() -> None:
    """Print one line for each experiment, its name first."""
    width = max(len(name) for name in EXPERIMENTS)
    for experiment in EXPERIMENTS.values():
        click.echo(f"{experiment.name:{width}}  {experiment.question}")


@main.command()
@click.argument("name")
@click.option("--tiny", is_flag=True, help="A few seconds' worth, to see that it works.")
@click.option("--seeds", type=click.IntRange(min=1), help="How many random seeds. [3, or 2 if tiny]")
@click.option("--policy", "policy_name", metavar="NAME|FILE.toml", help="One policy instead of the experiment's own.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for results. [results/NAME]")
def run(name: str, tiny: bool, seeds: int | None, policy_name: str | None, out: Path | None) -> None:
    """Run the experiment NAME: print its findings, write its results and figures."""
    experiment = find(name)
    options = Options(tiny, seeds or (2 if tiny else 3), None if policy_name is None else load_policy(policy_name))
    folder = out or Path("results") / experiment.name
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        jobs = experiment.jobs(options)
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    results = []
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with progress_bar(console) as progress:
            task = progress.add_task(experiment.name, total=len(jobs))
            for result in run_jobs(experiment, jobs, folder):
                results.append(result)
                progress.advance(task)
        findings = experiment.findings(results)
        written = write_results(experiment, options, results, findings, folder)
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted with {len(results)} of {len(jobs)} jobs done. They are kept in {folder / 'jobs'}; "
            "run the same command again to go on from there.",
            err=True,
        )
        sys.exit(INTERRUPTED)
    console.print(findings_table(experiment, findings))
    for path in written:
        click.echo(path)


def find(name: str) -> Experiment:
    """The experiment of that name, or an error with the nearest ones."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise click.UsageError(f"Unknown experiment {name!r}. Experiments: {', '.join(EXPERIMENTS)}.{hint}")


def load_policy(name: str) -> sf.Policy:
    """The preset of that name, or the policy in that TOML file."""
    if name in sf.policies:
        return sf.policies[name]
    if not name.endswith(".toml"):
        raise click.UsageError(f"Unknown policy {name!r}. Policies: {', '.join(sf.policies)}; or a FILE.toml.")
    try:
        policy = sf.Policy.from_toml(Path(name).read_text())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{name}: {error}") from None
    return policy if policy.name else sf.Policy.from_dict({**policy.to_dict(), "name": Path(name).stem})


def progress_bar(console: Console) -> Progress:
    """A bar that counts jobs."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def findings_table(experiment: Experiment, findings: list[Finding]) -> Table:
    """Claim, expectation, what was measured, and the verdict."""
    table = Table(title=experiment.question, show_lines=True, title_justify="left")
    for column in ("claim", "expectation", "measured (mean ± standard deviation over seeds)", "verdict"):
        table.add_column(column)
    for finding in findings:
        style = "green" if finding.holds else "red"
        table.add_row(finding.claim, finding.expectation, finding.measured, f"[{style}]{finding.verdict}[/{style}]")
    return table


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(prog_name="python -m experiments")
