"""What an experiment is: independent jobs, and what is found in their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.verdicts import Finding
from simfloat.policy import Policy

#: A job is a dictionary of plain values, as JSON has them; so is its result. Both travel between processes and to disk.
Job = dict[str, Any]
Result = dict[str, Any]

#: Runs that are reported have seeds from here on: steps, margins and learning rates were chosen by looking at runs with
#: smaller ones, and what was chosen on some runs is tested on others.
FIRST_SEED = 1000

#: Draws a picture into the file of that path.
Drawing = Callable[[Path], None]


class Options(NamedTuple):
    """What the user asked for."""

    tiny: bool = False
    seeds: int = 2  # how many
    policy: Policy | None = None  # one policy instead of the experiment's own list

    @property
    def seed_numbers(self) -> range:
        """The seeds themselves."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)


@dataclass(frozen=True)
class Experiment:
    """A question with its method: `jobs` are run in any order, then `findings` and `figures` are made of the results.

    run is a function of a module, so that another process finds it by its name; a result depends on the job and on
    nothing else. Results are handed on in the order of the jobs.
    """

    name: str
    question: str
    jobs: Callable[[Options], list[Job]]
    run: Callable[[Job], Result]
    findings: Callable[[list[Result]], list[Finding]]
    metrics: Callable[[Result], list[dict[str, Any]]]  # rows of metrics.jsonl
    figures: Callable[[list[Result]], dict[str, Drawing]]  # by the name of the file
    figure_names: Callable[[Options], tuple[str, ...]]  # what `figures` will be called, known before any work
    check: Callable[[Policy], None]  # ValueError for a user's policy under which a job cannot run
    seeds: int  # how many decide the claims in a full run
