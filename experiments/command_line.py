"""The commands: list, claims, run, sweep, report and paper."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

import simfloat as sf
from experiments import interrupts
from experiments import sweep as sweeps
from experiments.catalog import EXPERIMENTS
from experiments.conduct import conduct, file_names
from experiments.display import progress_of, show_findings
from experiments.experiment import Experiment
from experiments.options import Options, named_policy
from simfloat.common import did_you_mean
from simfloat.studies import (
    ATTEMPTS,
    SWEEP_FILES,
    SWEEP_HIDDEN,
    Executor,
    JobError,
    Workspace,
    in_processes,
    on_scheduler,
    write_report,
)
from simfloat.terminal import run_command

#: Enough for any test over seeds, and for any computer; a larger number is a typing error.
MOST_SEEDS, MOST_WORKERS = 10_000, 1024


class CommandLine(click.Group):
    """Commands with exit code 0, 1, 2 for mistakes of the user, and 130 after an interrupt."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and end with its exit code."""
        raise SystemExit(run_command(lambda: self._code(*args, **{**extra, "standalone_mode": False})))

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Return the named command, or raise an error that lists the commands."""
        if (name := args[0]) not in self.commands and not name.startswith("-"):
            hint = f" Did you mean 'run {name}'?" if name in EXPERIMENTS else did_you_mean(name, self.commands)
            raise click.UsageError(f"No such command {name!r}. Commands: {', '.join(self.commands)}.{hint}", context)
        return super().resolve_command(context, args)

    def _code(self, *args: Any, **extra: Any) -> int:
        try:
            code = super().main(*args, **extra)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except click.Abort:
            raise KeyboardInterrupt from None
        return code if isinstance(code, int) else 0


@click.group(cls=CommandLine)
def main() -> None:
    """Experiments with narrow floating-point arithmetic."""


@main.command("list")
def list_experiments() -> None:
    """Print one line for each experiment, its name first."""
    width = max(len(name) for name in EXPERIMENTS)
    for experiment in EXPERIMENTS.values():
        click.echo(f"{experiment.name:{width}}  {experiment.question}")


@main.command("claims")
@click.option("--page", "renew", is_flag=True, help="Also write the page of claims, docs/claims.md.")
def list_claims(renew: bool) -> None:
    """Print one line for each claim of the source documents, its verdict first."""
    from experiments import claims

    click.echo(claims.listed())
    if renew:
        claims.PAGE.write_text(claims.page(), encoding="utf-8")
        click.echo(claims.PAGE)


def policy_option(context: click.Context, option: click.Parameter, name: str | None) -> sf.Policy | None:
    """Return the named policy, or raise an error."""
    try:
        return None if name is None else named_policy(name)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


#: The option for the number of processes.
workers_option = click.option(
    "--workers", type=click.IntRange(1, MOST_WORKERS), help="Number of processes. [one per core]"
)


@main.command()
@click.argument("name")
@click.option("--tiny", is_flag=True, help="A test run of a few seconds, without verdicts.")
@click.option(
    "--seeds", type=click.IntRange(1, MOST_SEEDS), help="Number of random seeds. [the experiment's; 2 if tiny]"
)
@click.option(
    "--policy",
    metavar="NAME|FILE.toml",
    callback=policy_option,
    help="A policy that replaces the experiment's own policies.",
)
@click.option("--out", type=Path, metavar="DIR", help="Folder for results. [results/NAME]")
@workers_option
@click.pass_obj
def run(
    executor: Executor | None,
    name: str,
    tiny: bool,
    seeds: int | None,
    policy: sf.Policy | None,
    out: Path | None,
    workers: int | None,
) -> None:
    """Run the experiment NAME: print its findings, write its results and figures."""
    experiment = find(name)
    options = Options(tiny, seeds or (2 if tiny else experiment.seeds), policy)
    folder = out or Path("results") / experiment.name
    executor = executor or partial(in_processes, workers=workers)
    workspace = Workspace(folder, experiment.run.__module__, file_names(experiment))
    with one_message(workspace):
        if policy is not None:
            experiment.check(policy)
        with workspace, progress_of(experiment.name) as progress:
            findings, written = conduct(experiment, options, workspace, executor, progress)
    show_findings(experiment, findings)
    show_files(written)


@main.command()
@click.argument("name")
@click.argument("axes", nargs=-1, required=True, metavar="AXIS=a,b,c ...")
@click.option("--tiny", is_flag=True, help="Short runs, as a test.")
@click.option("--out", type=Path, metavar="DIR", help="Folder for the table. [results/NAME]")
@workers_option
@click.option("--scheduler", metavar="tcp://...", help="Address of a Dask scheduler; its workers run the points.")
@click.pass_obj
def sweep(
    executor: Executor | None,
    name: str,
    axes: tuple[str, ...],
    tiny: bool,
    out: Path | None,
    workers: int | None,
    scheduler: str | None,
) -> None:
    """Run the experiment NAME at every combination of values on its axes; the table is sweep.csv and sweep.parquet."""
    experiment = find(name)
    executor = executor or swept_by(workers, scheduler)
    folder = out or Path("results") / experiment.name
    workspace = Workspace(folder, experiment.run.__module__, SWEEP_FILES, SWEEP_HIDDEN)
    with one_message(workspace):
        plan = sweeps.planned(experiment, axes, tiny)
        with workspace, progress_of(experiment.name) as progress:
            written = sweeps.conduct(plan, workspace, executor, progress)
    click.echo(f"{len(plan.jobs)} points of {experiment.name}")
    show_files(written)


@main.command()
@click.option("--out", type=Path, default=Path("results"), metavar="DIR", help="Folder of results. [results]")
def report(out: Path) -> None:
    """Write one page, report.html, about all runs and sweeps below the folder."""
    try:
        path, archive = write_report(out)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"The report cannot be written: {error}") from None
    for file, reason in archive.damaged:
        click.echo(f"{out / file} cannot be read: {reason}", err=True)
    click.echo(f"{len(archive.sections)} results")
    show_files([path])


@main.command()
@click.option("--out", type=Path, default=Path("results/paper.html"), metavar="FILE", help="[results/paper.html]")
def paper(out: Path) -> None:
    """Write one document of all claims, methods, pictures and limits, as HTML and, with a browser, as PDF."""
    from experiments.paper import write_paper

    if out.suffix != ".html":
        raise click.UsageError(f"--out must end with .html, or browsers do not read the page; got {out}.")
    try:
        show_files(files := write_paper(out))
        if len(files) == 1:
            click.echo("No PDF: no browser was found. Install Chromium or Chrome: apt-get install chromium.", err=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise click.ClickException(f"The document cannot be written: {error}") from None


def swept_by(workers: int | None, scheduler: str | None) -> Executor:
    """Return the executor of a sweep: local processes, which are replaced when they die, or a Dask cluster."""
    if scheduler is None:
        return partial(in_processes, workers=workers, attempts=ATTEMPTS)
    if workers is not None:
        raise click.UsageError("--workers is for local processes; a Dask scheduler has its own. Pass only one of them.")
    try:
        return on_scheduler(scheduler)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def show_files(paths: Iterable[Path]) -> None:
    """Print where the results are."""
    for path in paths:
        click.echo(path)


def find(name: str) -> Experiment:
    """Return the experiment with that name, or raise an error that suggests similar names."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    raise click.UsageError(
        f"Unknown experiment {name!r}. Experiments: {', '.join(EXPERIMENTS)}.{did_you_mean(name, EXPERIMENTS)}"
    )


@contextmanager
def one_message(workspace: Workspace) -> Iterator[None]:
    """End the command with one message if Ctrl-C, a failed job, a full disk or a wrong value ends the block."""
    try:
        with interrupts.raised():
            yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted. {remains(workspace)}", err=True)
        raise click.exceptions.Exit(interrupts.INTERRUPTED) from None
    except JobError as error:
        kind = click.UsageError if error.refused else click.ClickException
        raise kind(f"{error}\n{remains(workspace)}") from None
    except OSError as error:
        raise click.ClickException(f"The run stopped: {error}\n{remains(workspace)}") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def remains(workspace: Workspace) -> str:
    """Return a message about the files that a run left when it ended early."""
    kept = workspace.count_finished_jobs()
    if not kept:
        return "No job was finished."
    return f"Finished jobs ({kept}) are kept in {workspace.hidden}; run the same command again to continue."
