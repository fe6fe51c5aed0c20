"""How large do errors of long sums become, and which bounds hold for them?"""

from __future__ import annotations

from experiments.experiment import Experiment
from experiments.measurement import measured_rows, refuse_policy
from experiments.probabilistic_bounds.figures import figure_names, figures
from experiments.probabilistic_bounds.findings import findings
from experiments.probabilistic_bounds.jobs import jobs, run

PROBABILISTIC_BOUNDS = Experiment(
    name="probabilistic-bounds",
    question="How large do errors of long sums become, and which bounds hold for them?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=measured_rows,
    figures=figures,
    figure_names=figure_names,
    check=refuse_policy,
    seeds=20,
)
