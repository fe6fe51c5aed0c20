"""Do NVIDIA's tensor cores agree from generation to generation, and what does promotion to FP32 gain?"""

from __future__ import annotations

from experiments.experiment import Experiment
from experiments.measurement import measured_rows, refuse_policy
from experiments.tensor_core_generations.figures import figure_names, figures
from experiments.tensor_core_generations.findings import findings
from experiments.tensor_core_generations.jobs import jobs, run

TENSOR_CORE_GENERATIONS = Experiment(
    name="tensor-core-generations",
    question="Do NVIDIA's tensor cores agree from generation to generation, and what does promotion to FP32 gain?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=measured_rows,
    figures=figures,
    figure_names=figure_names,
    check=refuse_policy,
    seeds=20,
)
