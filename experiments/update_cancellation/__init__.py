"""Does nearest rounding of the weight update stop training, and do its remedies help?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.training import check_policy
from experiments.training_grid import training_grid
from experiments.update_cancellation.figures import figure_names, figures
from experiments.update_cancellation.findings import findings
from experiments.update_cancellation.jobs import jobs, metrics, run
from experiments.update_cancellation.problems import COMPARED, PROBLEMS

UPDATE_CANCELLATION = Experiment(
    name="update-cancellation",
    question="Does nearest rounding of the weight update stop training, and do its remedies help?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=metrics,
    figures=figures,
    figure_names=figure_names,
    check=partial(check_policy, COMPARED),
    seeds=20,
    grid=training_grid(PROBLEMS),
)
