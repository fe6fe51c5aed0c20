"""What an experiment is: independent jobs, what is found in their results, and what a sweep may vary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
class Axis:
    """What a sweep may vary.

    `read` makes the value of its text, which is hashable, or raises ValueError saying what is expected. An axis that a
    sweep does not name has its `standard` values; without any, it is neither in the jobs nor in the table.
    """

    name: str
    meaning: str
    read: Callable[[str], Any]
    standard: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """What an experiment lets a sweep do: every point is one job of the experiment and one row of the table."""

    axes: tuple[Axis, ...]
    job: Callable[[Mapping[str, Any], bool], Job]  # of a value on each axis, and whether it is tiny
    measures: Callable[[Result], dict[str, Any]]  # of the row, beside the point's levels
    check: Callable[[Sequence[Job]], None]  # ValueError for jobs that cannot run, before any of them does


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
    grid: Grid | None = None  # what a sweep may vary
