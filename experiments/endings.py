"""How work ends early: one message, which says what is kept, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from experiments import interrupts
from experiments.executors import JobError
from experiments.workspace import Workspace


@contextmanager
def one_message(workspace: Workspace) -> Iterator[None]:
    """Within the block Ctrl-C, a job that fails, a full disk and a wrong value end the command by one message."""
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
        raise click.ClickException(f"The run cannot go on: {error}\n{remains(workspace)}") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def remains(workspace: Workspace) -> str:
    """What a run that ended early leaves behind."""
    kept = workspace.kept()
    if not kept:
        return "No job was finished."
    return f"Finished jobs ({kept}) are kept in {workspace.hidden}; run the same command again to go on from there."
