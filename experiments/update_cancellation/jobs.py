"""What is run: every problem under every policy, and the two theorems."""

from __future__ import annotations

from typing import Any

from experiments.options import Options
from experiments.training import run_training, training_jobs, training_rows
from experiments.update_cancellation.policies import FP32, THEOREMS, VARIANTS
from experiments.update_cancellation.problems import COMPARED, PROBLEMS
from experiments.update_cancellation.theorem1 import check_theorem_1
from experiments.variants import given
from simfloat.studies import Job, Result


def jobs(options: Options) -> list[Job]:
    """All problems under all policies from every seed, and the theorems; or a given policy beside fp32."""
    if options.policy is not None:
        return training_jobs(COMPARED, given(options.policy, [FP32]), options)
    theorem_1: list[Job] = [
        {"kind": "theorem-1", "seed": seed, "points": 20 if options.tiny else 200} for seed in options.seed_numbers
    ]
    return [
        *training_jobs(COMPARED, VARIANTS, options),
        *training_jobs(["noise-free"], THEOREMS, options),
        *theorem_1,
    ]


def run(job: Job) -> Result:
    """Carry out a job."""
    if job["kind"] == "theorem-1":
        return {**job, **check_theorem_1(job["seed"], job["points"])}
    return run_training(PROBLEMS, job)


def metrics(result: Result) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl: one for each recorded iteration of a run, one for a check of theorem 1."""
    return [result] if result["kind"] == "theorem-1" else training_rows(result)
