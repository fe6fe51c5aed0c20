"""What does it cost, and what does it bring, to switch a layer between FP8 and FP16 while it trains?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.layer_switching.figures import figure_names, figures
from experiments.layer_switching.findings import findings
from experiments.layer_switching.jobs import jobs, metrics, run
from experiments.layer_switching.problems import PROBLEMS
from experiments.training import check_policy
from experiments.training_grid import training_grid

LAYER_SWITCHING = Experiment(
    name="layer-switching",
    question="What does it cost, and what does it bring, to switch a layer between FP8 and FP16 while it trains?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=metrics,
    figures=figures,
    figure_names=figure_names,
    check=partial(check_policy, PROBLEMS),
    seeds=20,
    grid=training_grid(PROBLEMS),
)
