"""Which FP8 format serves forward and which backward, and what scales do they need?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.fp8_hybrid.figures import figure_names, figures
from experiments.fp8_hybrid.findings import findings
from experiments.fp8_hybrid.jobs import jobs, metrics, run
from experiments.fp8_hybrid.problems import PROBLEMS
from experiments.training import check_policy
from experiments.training_grid import training_grid

FP8_HYBRID = Experiment(
    name="fp8-hybrid",
    question="Which FP8 format serves forward and which backward, and what scales do they need?",
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
