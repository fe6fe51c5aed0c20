"""How does a dynamic loss scale move, and which statements about it hold?"""

from __future__ import annotations

from functools import partial

from experiments.dynamic_scale.figures import figure_names, figures
from experiments.dynamic_scale.findings import findings
from experiments.dynamic_scale.jobs import jobs, metrics, run
from experiments.dynamic_scale.problems import PROBLEMS
from experiments.experiment import Experiment
from experiments.training import check_policy
from experiments.training_grid import training_grid

DYNAMIC_SCALE = Experiment(
    name="dynamic-scale",
    question="How does a dynamic loss scale move, and which statements about it hold?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=metrics,
    figures=figures,
    figure_names=figure_names,
    check=partial(check_policy, PROBLEMS),
    seeds=5,
    grid=training_grid(PROBLEMS),
)
