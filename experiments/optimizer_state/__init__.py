"""Does the state of an optimizer stall in narrow formats, and what helps?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.measurement import metric_rows
from experiments.optimizer_state.figures import figure_names, figures
from experiments.optimizer_state.findings import findings
from experiments.optimizer_state.jobs import jobs, run
from experiments.optimizer_state.problems import PROBLEMS
from experiments.training import check_policy
from experiments.training_grid import training_grid

OPTIMIZER_STATE = Experiment(
    name="optimizer-state",
    question="Does the state of an optimizer stall in narrow formats, and what helps?",
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
