"""Which of the lists of automatic mixed precision keeps which error away?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.operation_lists.figures import figure_names, figures
from experiments.operation_lists.findings import findings
from experiments.operation_lists.jobs import jobs, metrics, run
from experiments.operation_lists.problems import PROBLEMS
from experiments.training import check_policy
from experiments.training_grid import training_grid

OPERATION_LISTS = Experiment(
    name="operation-lists",
    question="Which of the allow, deny and infer lists of mixed precision keeps which error away?",
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
