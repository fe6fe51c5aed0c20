"""The jobs: the GPT under every policy."""

from __future__ import annotations

from experiments.options import Options
from experiments.recipe_parts.policies import BF16, VARIANTS
from experiments.recipe_parts.problems import PROBLEMS
from experiments.training import run_training, training_jobs
from experiments.variants import given
from simfloat.studies import Job, Result


def jobs(options: Options) -> list[Job]:
    """Return all policies for every seed; or a given policy and BF16."""
    variants = VARIANTS if options.policy is None else given(options.policy, [BF16])
    return training_jobs(PROBLEMS, variants, options)


def run(job: Job) -> Result:
    """Run a job."""
    return run_training(PROBLEMS, job)
