"""Does FP16 training need a master copy of the weights in FP32, and why?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.master_weights.figures import figure_names, figures
from experiments.master_weights.findings import findings
from experiments.master_weights.jobs import jobs, run
from experiments.master_weights.problems import PROBLEMS
from experiments.measurement import metric_rows
from experiments.training import check_policy
from experiments.training_grid import training_grid

MASTER_WEIGHTS = Experiment(
    name="master-weights",
    question="Does FP16 training need a master copy of the weights in FP32, and why?",
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
