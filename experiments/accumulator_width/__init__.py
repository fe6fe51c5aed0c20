"""How wide must the accumulator of a dot product be, and do sums in chunks get by with less?"""

from __future__ import annotations

from functools import partial

from experiments.accumulator_width.figures import figure_names, figures
from experiments.accumulator_width.findings import findings
from experiments.accumulator_width.jobs import jobs, run
from experiments.accumulator_width.training import PROBLEMS
from experiments.experiment import Experiment
from experiments.measurement import metric_rows
from experiments.training import check_policy
from experiments.training_grid import training_grid

ACCUMULATOR_WIDTH = Experiment(
    name="accumulator-width",
    question="How wide must the accumulator of a dot product be, and do sums in chunks get by with less?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=metric_rows,
    figures=figures,
    figure_names=figure_names,
    check=partial(check_policy, PROBLEMS),
    seeds=5,
    grid=training_grid(PROBLEMS),
)
