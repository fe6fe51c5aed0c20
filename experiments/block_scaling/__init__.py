"""Which rule for the scales of blocks loses least, and do FP8 and FP4 operands train as BF16 ones do?"""

from __future__ import annotations

from functools import partial

from experiments.block_scaling.figures import figure_names, figures
from experiments.block_scaling.findings import findings
from experiments.block_scaling.jobs import jobs, run
from experiments.block_scaling.problems import PROBLEMS
from experiments.experiment import Experiment
from experiments.measurement import metric_rows
from experiments.training import check_policy
from experiments.training_grid import training_grid

BLOCK_SCALING = Experiment(
    name="block-scaling",
    question="Which rule for the scales of blocks loses least, and do FP8 and FP4 operands train as BF16 ones do?",
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
