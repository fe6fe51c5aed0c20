"""The jobs: every rule on random values, and the GPT under every policy."""

from __future__ import annotations

from experiments.block_scaling.policies import BF16, VARIANTS
from experiments.block_scaling.problems import PROBLEMS
from experiments.block_scaling.rules import DATA, measure_rules
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import given
from simfloat.studies import Job, Result


def jobs(options: Options) -> list[Job]:
    """Return the rules and all policies for every seed; or a given policy and BF16."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [BF16]), options)
    rules: list[Job] = [
        {"kind": "rules", "data": data, "seed": seed, "tiny": options.tiny}
        for data in DATA
        for seed in options.seed_numbers
    ]
    return [*rules, *training_jobs(PROBLEMS, VARIANTS, options)]


def run(job: Job) -> Result:
    """Run a job."""
    return {**job, "rows": measure_rules(job)} if job["kind"] == "rules" else run_training(PROBLEMS, job)
