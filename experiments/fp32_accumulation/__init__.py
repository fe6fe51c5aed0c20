"""From which length on must sums of FP16 products be accumulated in FP32?"""

from __future__ import annotations

from functools import partial

from experiments.experiment import Experiment
from experiments.fp32_accumulation.figures import figure_names, figures
from experiments.fp32_accumulation.findings import findings
from experiments.fp32_accumulation.jobs import jobs, run
from experiments.fp32_accumulation.problems import PROBLEMS
from experiments.measurement import metric_rows
from experiments.training import check_policy
from experiments.training_grid import training_grid

FP32_ACCUMULATION = Experiment(
    name="fp32-accumulation",
    question="From which length on must sums of FP16 products be accumulated in FP32?",
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
