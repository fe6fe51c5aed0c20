"""The jobs: dot products of random values, and trainings."""

from __future__ import annotations

from experiments.accumulator_width.dots import measure_dots
from experiments.accumulator_width.training import FP32, PROBLEMS, VARIANTS
from experiments.operands import DATA
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import given
from simfloat.studies import Job, Result


def jobs(options: Options) -> list[Job]:
    """Return dots of both kinds of data and all trainings for every seed; or a given policy and FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    dots: list[Job] = [
        {"kind": "dots", "data": data, "seed": seed, "tiny": options.tiny}
        for data in DATA
        for seed in options.seed_numbers
    ]
    return [*dots, *training_jobs(PROBLEMS, VARIANTS, options)]


def run(job: Job) -> Result:
    """Run a job."""
    return {**job, "rows": measure_dots(job)} if job["kind"] == "dots" else run_training(PROBLEMS, job)
