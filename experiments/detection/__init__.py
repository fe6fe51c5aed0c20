"""Does an object detector in FP16 need a loss scale, and which gradients does it save?"""

from __future__ import annotations

from functools import partial

from experiments.detection.figures import figure_names, figures
from experiments.detection.findings import findings
from experiments.detection.jobs import jobs, metrics, run
from experiments.detection.problems import PROBLEMS
from experiments.experiment import Experiment
from experiments.training import check_policy
from experiments.training_grid import training_grid

DETECTION = Experiment(
    name="detection",
    question="Does an object detector in FP16 need a loss scale, and which gradients does it save?",
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
