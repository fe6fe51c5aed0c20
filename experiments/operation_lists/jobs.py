"""The jobs: training under each policy, and the gradients of one batch under each."""

from __future__ import annotations

from typing import Any

from experiments.operation_lists.gradients import measure_gradients
from experiments.operation_lists.policies import FP32, TRAINED
from experiments.operation_lists.problems import PROBLEMS
from experiments.options import Options
from experiments.training import run_training, training_jobs, training_rows
from experiments.variants import given
from simfloat.studies import Job, Result


def jobs(options: Options) -> list[Job]:
    """Return trainings under all policies for every seed, and gradients; or a given policy and fp32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    gradients: list[Job] = [
        {"kind": "gradients", "problem": problem, "seed": seed, "tiny": options.tiny}
        for problem in PROBLEMS
        for seed in options.seed_numbers
    ]
    return [*training_jobs(PROBLEMS, TRAINED, options), *gradients]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "gradients":
        return {**job, **measure_gradients(job["problem"], job["seed"], job["tiny"])}
    return run_training(PROBLEMS, job)


def metrics(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl: one for each record of a run, one for each measured gradient."""
    if result["kind"] != "gradients":
        return training_rows(result)
    same = {key: result[key] for key in ("kind", "problem", "seed", "tiny")}
    return [
        {**same, "stage": stage, "under": key, **row}
        for stage, errors in result["stages"].items()
        for key, row in errors.items()
    ]
