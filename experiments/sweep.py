"""The sweep of an experiment: the jobs of its points, which simfloat.studies combines into one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment
from experiments.grid import Level, points, read_levels
from simfloat.policy import Policy
from simfloat.studies import Executor, SweepPlan, Workspace, code_digest, conduct_sweep, versions


def planned(experiment: Experiment, assignments: Iterable[str], tiny: bool) -> SweepPlan:
    """Return the sweep for texts such as ``"seed=1,2,3"``.

    Raises ValueError before any work for an experiment without axes, for wrong texts, and for a point at which the
    experiment cannot run.
    """
    grid = experiment.grid
    if grid is None:
        raise ValueError(f"The experiment {experiment.name} has no axes: it cannot be swept, only run.")
    levels = read_levels(grid.axes, assignments)
    places = points(levels)
    jobs = [grid.job({name: level.value for name, level in place.items()}, tiny) for place in places]
    grid.check(jobs)
    labels = [{name: level.label for name, level in place.items()} for place in places]
    return SweepPlan(experiment.run, jobs, labels, grid.measures, summary(experiment, levels, tiny))


def conduct(
    plan: SweepPlan, workspace: Workspace, executor: Executor, progress: Callable[[int, int], None]
) -> list[Path]:
    """Run the jobs that are not finished, report to `progress` how many are done, and write the table."""
    return conduct_sweep(plan, workspace, executor, progress)[1]


def summary(experiment: Experiment, levels: Mapping[str, Sequence[Level]], tiny: bool) -> dict[str, Any]:
    """Return the settings and versions of a sweep."""
    axes = {name: [level.label for level in values] for name, values in levels.items()}
    given = [level for values in levels.values() for level in values if isinstance(level.value, Policy)]
    return {
        "experiment": experiment.name,
        "question": experiment.question,
        "config": {
            "tiny": tiny,
            "axes": axes,
            "policies": {level.text: level.value.to_dict() for level in given},
        },
        "points": len(points(levels)),
        "versions": versions(),
        "code": code_digest("experiments"),
    }
