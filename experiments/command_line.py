"""The commands: list and run."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

import simfloat as sf
from experiments import interrupts
from experiments.catalog import EXPERIMENTS
from experiments.conduct import conduct
from experiments.display import progress_bar, show_findings
from experiments.executors import Executor, JobError, in_processes
from experiments.experiment import Experiment, Options
from experiments.results import file_names
from experiments.workspace import Workspace
from simfloat.terminal import guarded

#: Enough for any test over seeds; more is a slip of the hand.
MOST_SEEDS = 10_000


class CommandLine(click.Group):
    """Commands whose exit codes are 0, 1, 2 for mistakes of the user, and 130 when interrupted."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and end with its exit code."""
        raise SystemExit(guarded(lambda: self._code(*args, **{**extra, "standalone_mode": False})))

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


@main.command()
@click.argument("name")
@click.option("--tiny", is_flag=True, help="A few seconds' worth, to see that it works; decides nothing.")
@click.option(
    "--seeds", type=click.IntRange(1, MOST_SEEDS), help="How many random seeds. [the experiment's; 2 if tiny]"
)
@click.option("--policy", "policy_name", metavar="NAME|FILE.toml", help="One policy instead of the experiment's own.")
@click.option("--out", type=Path, metavar="DIR", help="Folder for results. [results/NAME]")
@click.pass_obj
def run(
    executor: Executor | None, name: str, tiny: bool, seeds: int | None, policy_name: str | None, out: Path | None
) -> int:
    """Run the experiment NAME: print its findings, write its results and figures."""
    experiment = find(name)
    policy = None if policy_name is None else load_policy(policy_name)
    options = Options(tiny, seeds or (2 if tiny else experiment.seeds), policy)
    return carry_out(experiment, options, out or Path("results") / experiment.name, executor or in_processes)


def carry_out(experiment: Experiment, options: Options, folder: Path, executor: Executor) -> int:
    """Run the experiment and show what was found; whatever ends it early is one message."""
    workspace = Workspace(folder, file_names(experiment, options))
    try:
        with interrupts.raised():
            if options.policy is not None:
                experiment.check(options.policy)
            with workspace, progress_bar() as bar:
                task = bar.add_task(experiment.name, total=None)
                findings, written = conduct(
                    experiment,
                    options,
                    workspace,
                    executor,
                    lambda done, jobs: bar.update(task, completed=done, total=jobs),
                )
    except KeyboardInterrupt:
        click.echo(f"Interrupted. {remains(workspace)}", err=True)
        return interrupts.INTERRUPTED
    except JobError as error:
        kind = click.UsageError if error.refused else click.ClickException
        raise kind(f"{error}\n{remains(workspace)}") from None
    except OSError as error:
        raise click.ClickException(f"The run cannot go on: {error}\n{remains(workspace)}") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    show_findings(experiment, findings)
    for path in written:
        click.echo(path)
    return 0


def remains(workspace: Workspace) -> str:
    """What a run that ended early leaves behind."""
    kept = workspace.kept()
    if not kept:
        return "No job was finished."
    return f"Finished jobs ({kept}) are kept in {workspace.hidden}; run the same command again to go on from there."


def find(name: str) -> Experiment:
    """The experiment of that name, or an error with the nearest ones."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise click.UsageError(f"Unknown experiment {name!r}. Experiments: {', '.join(EXPERIMENTS)}.{hint}")


def load_policy(name: str) -> sf.Policy:
    """The preset of that name, or the policy in that TOML file, which is UTF-8 wherever it is read."""
    if name in sf.policies:
        return sf.policies[name]
    if not name.endswith(".toml"):
        raise click.UsageError(f"Unknown policy {name!r}. Policies: {', '.join(sf.policies)}; or a FILE.toml.")
    try:
        policy = sf.Policy.from_toml(Path(name).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{name}: {error}") from None
    return policy if policy.name else sf.Policy.from_dict({**policy.to_dict(), "name": printable(Path(name).stem)})


def printable(name: str) -> str:
    """A file's name as text: bytes that are none become question marks."""
    return name.encode(errors="replace").decode()
