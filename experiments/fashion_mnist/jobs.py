"""What is run: the problem under each policy, from every seed."""

from __future__ import annotations

import simfloat as sf
from experiments.fashion_mnist.problems import PROBLEMS
from experiments.mixed_precision import FP16_WEIGHTS, FP32, UNSCALED
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import Variant, given
from simfloat.studies import Job, Result

STANDARD = Variant("bf16-standard", sf.policies["bf16-standard"], "BF16, nearest updates")
STOCHASTIC = Variant("bf16-stochastic", sf.policies["bf16-stochastic"], "BF16, stochastic updates")
KAHAN = Variant("bf16-kahan", sf.policies["bf16-kahan"], "BF16, Kahan updates")
FP32_WEIGHTS = Variant("bf16-fp32-weights", sf.policies["bf16-fp32-weights"], "BF16, FP32 weights")
NO_MASTER = Variant("fp16-weights", FP16_WEIGHTS, "FP16, FP16 weights")
MASTER = UNSCALED._replace(label="FP16, FP32 master copy")
FP8 = Variant("fp8-hybrid", sf.policies["fp8-hybrid"], "FP8 products")

VARIANTS = (FP32, STANDARD, STOCHASTIC, KAHAN, FP32_WEIGHTS, NO_MASTER, MASTER, FP8)

#: Those whose verdicts may hang on the rate, a free choice.
VARIED = (FP32, STANDARD, STOCHASTIC, NO_MASTER)


def jobs(options: Options) -> list[Job]:
    """A run of every variant from every seed; or a given policy beside FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    return [*training_jobs(["clothes"], VARIANTS, options), *training_jobs(["small steps"], VARIED, options)]


def run(job: Job) -> Result:
    """Carry out a job."""
    return run_training(PROBLEMS, job)
