"""The jobs: every problem under every policy, and the two theorems."""

from __future__ import annotations

from functools import partial

from experiments.options import Options
from experiments.training import check_policy, run_training, training_jobs
from experiments.update_cancellation.policies import FP32, THEOREMS, VARIANTS
from experiments.update_cancellation.problems import COMPARED, PROBLEMS
from experiments.update_cancellation.theorem1 import check_theorem_1
from experiments.variants import given
from simfloat.studies import Job, Result

#: The problems for a policy of the user.
check = partial(check_policy, COMPARED)


def jobs(options: Options) -> list[Job]:
    """Return all problems under all policies for every seed, and the theorems; or a given policy and fp32."""
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
    """Run a job."""
    if job["kind"] == "theorem-1":
        return {**job, **check_theorem_1(job["seed"], job["points"])}
    return run_training(PROBLEMS, job)
