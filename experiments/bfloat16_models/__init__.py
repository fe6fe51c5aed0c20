"""Can models of five kinds be trained in BFloat16 alone, and by which updates?"""

from __future__ import annotations

from functools import partial

from experiments.bfloat16_models.figures import figure_names, figures
from experiments.bfloat16_models.findings import findings
from experiments.bfloat16_models.jobs import jobs, run
from experiments.bfloat16_models.problems import PROBLEMS
from experiments.experiment import Experiment
from experiments.training import check_policy, training_rows
from experiments.training_grid import training_grid

BFLOAT16_MODELS = Experiment(
    name="bfloat16-models",
    question="Can models of five kinds be trained in BFloat16 alone, and by which updates?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=training_rows,
    figures=figures,
    figure_names=figure_names,
    check=partial(check_policy, PROBLEMS),
    seeds=5,
    grid=training_grid(PROBLEMS),
)
