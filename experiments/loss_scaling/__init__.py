"""Which gradients does FP16 lose, and does a constant loss scale bring them back?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.loss_scaling.figures import figure_names, figures
from experiments.loss_scaling.findings import findings
from experiments.loss_scaling.jobs import jobs, run
from experiments.loss_scaling.problems import PROBLEMS
from experiments.measurement import metric_rows
from experiments.training import check_policy
from experiments.training_grid import training_grid

LOSS_SCALING = Experiment(
    name="loss-scaling",
    question="Which gradients does FP16 lose, and does a constant loss scale bring them back?",
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
