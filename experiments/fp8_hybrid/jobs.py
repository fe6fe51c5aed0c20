"""The jobs: training with each format, the gradient of one batch with each, and their precision."""

from __future__ import annotations

from typing import Any

from experiments.fp8_hybrid.measurements import measure_gradients, measure_precision
from experiments.fp8_hybrid.policies import FP32, VARIANTS
from experiments.fp8_hybrid.problems import PROBLEMS
from experiments.options import Options
from experiments.training import run_training, training_jobs, training_rows
from experiments.variants import given
from simfloat.studies import Job, Result


def jobs(options: Options) -> list[Job]:
    """Return trainings with all formats for every seed, and the measurements; or a given policy and fp32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    gradients: list[Job] = [
        {"kind": "gradients", "problem": problem, "seed": seed, "tiny": options.tiny}
        for problem in PROBLEMS
        for seed in options.seed_numbers
    ]
    precision: list[Job] = [
        {"kind": "precision", "seed": seed, "samples": 1_000 if options.tiny else 100_000}
        for seed in options.seed_numbers
    ]
    return [*training_jobs(PROBLEMS, VARIANTS, options), *gradients, *precision]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "gradients":
        return {**job, **measure_gradients(job["problem"], job["seed"], job["tiny"])}
    if job["kind"] == "precision":
        return {**job, **measure_precision(job["seed"], job["samples"])}
    return run_training(PROBLEMS, job)


def metrics(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl: one for each record of a run, and for each measured policy or format."""
    if result["kind"] == "gradients":
        same = {key: result[key] for key in ("kind", "problem", "seed", "tiny")}
        return [{**same, "under": key, **row} for key, row in result["policies"].items()]
    if result["kind"] == "precision":
        same = {key: result[key] for key in ("kind", "seed", "samples")}
        return [{**same, "format": name, "bits": bits} for name, bits in result["bits"].items()]
    return training_rows(result)
