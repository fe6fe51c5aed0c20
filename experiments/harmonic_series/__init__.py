"""Where do long sums stop growing, and which ways to add go on?"""

from __future__ import annotations

from experiments.experiment import Experiment
from experiments.harmonic_series.figures import figure_names, figures
from experiments.harmonic_series.findings import findings
from experiments.harmonic_series.jobs import jobs, run
from experiments.measurement import measured_rows, refuse_policy

HARMONIC_SERIES = Experiment(
    name="harmonic-series",
    question="Where do long sums stop growing, and which ways to add go on?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=measured_rows,
    figures=figures,
    figure_names=figure_names,
    check=refuse_policy,
    seeds=20,
)
