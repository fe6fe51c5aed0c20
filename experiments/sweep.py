"""Conducting a sweep: the jobs of a grid's points, those of them that are finished, and one table of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from experiments.experiment import Experiment
from experiments.grid import Grid, Level, points, read_levels
from simfloat.policy import Policy
from simfloat.studies import (
    Executor,
    Job,
    Result,
    Workspace,
    as_json,
    code_digest,
    run_jobs,
    versions,
    write_csv,
    write_parquet,
)
from simfloat.studies.report import CSV, PARQUET, SWEEP
from simfloat.studies.stored import Row

#: The files that a sweep leaves, and the folder of its finished points: these stay, so that none is computed twice.
FILES = (CSV, PARQUET, SWEEP)
HIDDEN = ".simfloat-sweep"

#: How often a job is begun whose process dies.
ATTEMPTS = 3


class Sweep(NamedTuple):
    """What is to be done: a job for each point of a grid, in the order of the table."""

    experiment: Experiment
    grid: Grid
    levels: Mapping[str, Sequence[Level]]
    tiny: bool
    jobs: list[Job]


def planned(experiment: Experiment, assignments: Iterable[str], tiny: bool) -> Sweep:
    """The sweep that texts such as ``"seed=1,2,3"`` mean.

    Raises ValueError, before any work, for an experiment without axes, for wrong texts, and for a point at which the
    experiment cannot run.
    """
    grid = experiment.grid
    if grid is None:
        raise ValueError(f"The experiment {experiment.name} has no axes: it cannot be swept, only run.")
    levels = read_levels(grid.axes, assignments)
    values = [{name: level.value for name, level in point.items()} for point in points(levels)]
    jobs = [grid.job(point, tiny) for point in values]
    grid.check(jobs)
    return Sweep(experiment, grid, levels, tiny, jobs)


def conduct(sweep: Sweep, workspace: Workspace, executor: Executor, progress: Callable[[int, int], None]) -> list[Path]:
    """Carry out the jobs that are not finished, tell `progress` how many of how many are, and write the table."""
    results = run_jobs(sweep.experiment.run, sweep.jobs, workspace, executor, progress)
    rows = table(sweep, results)
    text = as_json(summary(sweep), indent=1) + "\n"
    return [
        workspace.write(CSV, partial(write_csv, rows)),
        workspace.write(PARQUET, partial(write_parquet, rows)),
        workspace.write(SWEEP, lambda path: path.write_text(text, encoding="utf-8")),
    ]


def table(sweep: Sweep, results: Sequence[Result]) -> list[Row]:
    """A row for each point: its levels, then what was measured there."""
    return [
        {name: level.label for name, level in point.items()} | sweep.grid.measures(result)
        for point, result in zip(points(sweep.levels), results, strict=True)
    ]


def summary(sweep: Sweep) -> dict[str, Any]:
    """What was asked, and what it was computed with."""
    axes = {name: [level.label for level in levels] for name, levels in sweep.levels.items()}
    given = [level for levels in sweep.levels.values() for level in levels if isinstance(level.value, Policy)]
    return {
        "experiment": sweep.experiment.name,
        "question": sweep.experiment.question,
        "config": {
            "tiny": sweep.tiny,
            "axes": axes,
            "policies": {level.text: level.value.to_dict() for level in given},
        },
        "points": len(sweep.jobs),
        "versions": versions(),
        "code": code_digest("experiments"),
    }
