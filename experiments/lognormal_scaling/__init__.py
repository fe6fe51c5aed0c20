"""Does a scale that follows the statistics of gradients overflow less often than one that backs off?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.lognormal_scaling.figures import figure_names, figures
from experiments.lognormal_scaling.findings import findings
from experiments.lognormal_scaling.jobs import jobs, run
from experiments.lognormal_scaling.problems import PROBLEMS
from experiments.measurement import metric_rows
from experiments.training import check_policy
from experiments.training_grid import training_grid

LOGNORMAL_SCALING = Experiment(
    name="lognormal-scaling",
    question="Does a scale that follows the statistics of gradients overflow less often than one that backs off?",
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
