"""The jobs: FP16 training with and without a master copy of the weights, FP32, and sums of weights and updates."""

from __future__ import annotations

import simfloat as sf
from experiments.gradients import gradient_histograms
from experiments.master_weights.problems import PROBLEMS
from experiments.master_weights.ratios import ratios
from experiments.mixed_precision import FP16_WEIGHTS, FP32, MIXED
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import Variant, given
from simfloat.studies import Job, Result

VARIANTS = (
    FP32,
    Variant("master", MIXED, "FP16, FP32 master copy"),
    Variant("fp16-weights", FP16_WEIGHTS, "FP16, FP16 weights"),
)

WEIGHTS = ("hidden.0.weight", "head.weight")


def jobs(options: Options) -> list[Job]:
    """Return a run of every variant for every seed, and the sums; or a given policy and FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    sums = [{"kind": "ratios", "seed": seed} for seed in options.seed_numbers]
    return [*training_jobs(PROBLEMS, VARIANTS, options), *sums]


def run(job: Job) -> Result:
    """Run a job; runs in FP32 also return their gradients, and runs with FP16 weights the products lost in updates."""
    if job["kind"] == "ratios":
        return {**job, **ratios(job["seed"])}
    if job.get("variant") == "fp32":
        recorder = sf.Recorder()
        result = run_training(PROBLEMS, job, recorder)
        return {**result, "gradients": gradient_histograms(recorder, WEIGHTS)["parameters"]}
    if job.get("variant") == "fp16-weights":
        recorder = sf.Recorder(phase="update")
        result = run_training(PROBLEMS, job, recorder)
        vanished = recorder.counts("*weight.update", "update")["underflow"]
        return {**result, "vanished": vanished / recorder.counts("*weight", "update")["total"]}
    return run_training(PROBLEMS, job)
