"""The jobs: the problem under each policy, for every seed."""

from __future__ import annotations

from experiments.fashion_mnist.problems import PROBLEMS
from experiments.mixed_precision import FP32
from experiments.options import Options
from experiments.precisions import NO_MASTER, STANDARD, STOCHASTIC, VARIANTS
from experiments.training import run_training, training_jobs
from experiments.variants import given
from simfloat.studies import Job, Result

#: The variants with verdicts that may depend on the rate, a free choice.
VARIED = (FP32, STANDARD, STOCHASTIC, NO_MASTER)


def jobs(options: Options) -> list[Job]:
    """Return a run of every variant for every seed; or a given policy and FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    return [*training_jobs(["clothes"], VARIANTS, options), *training_jobs(["small steps"], VARIED, options)]


def run(job: Job) -> Result:
    """Run a job."""
    return run_training(PROBLEMS, job)
