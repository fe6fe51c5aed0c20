"""Where must a regulariser be computed, so that FP16 does not lose it?"""

from __future__ import annotations

from experiments.experiment import Experiment
from experiments.regulariser_underflow.figures import figure_names, figures
from experiments.regulariser_underflow.findings import findings
from experiments.regulariser_underflow.jobs import check, jobs, metrics, run

REGULARISER_UNDERFLOW = Experiment(
    name="regulariser-underflow",
    question="Where must a regulariser be computed, so that FP16 does not lose it?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=metrics,
    figures=figures,
    figure_names=figure_names,
    check=check,
    seeds=5,
)
