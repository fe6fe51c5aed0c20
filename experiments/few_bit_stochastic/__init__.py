"""How many random bits does stochastic rounding need?"""

from __future__ import annotations

from experiments.experiment import Experiment
from experiments.few_bit_stochastic.figures import figure_names, figures
from experiments.few_bit_stochastic.findings import findings
from experiments.few_bit_stochastic.jobs import jobs, run
from experiments.measurement import measured_rows, refuse_policy

FEW_BIT_STOCHASTIC = Experiment(
    name="few-bit-stochastic",
    question="How many random bits does stochastic rounding need?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=measured_rows,
    figures=figures,
    figure_names=figure_names,
    check=refuse_policy,
    seeds=5,
)
