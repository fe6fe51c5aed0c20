"""The jobs: the detector in FP32, and in FP16 with several loss scales."""

from __future__ import annotations

from typing import Any

import numpy as np

import simfloat as sf
from experiments.detection.problems import PROBLEMS, Detector
from experiments.gradients import gradient_histograms
from experiments.mixed_precision import FP32, UNSCALED, scaled
from experiments.options import Options
from experiments.training import run_training, training_jobs, training_rows
from experiments.variants import given
from simfloat.studies import Job, Result

#: The guide's scales: 8, which was enough, and 32K, which recovers nearly all.
VARIANTS = [FP32, UNSCALED, scaled(3), scaled(15)]

#: A model that fits the guide's shares of gradients: two thirds are zeros, the exponents of the others are normal.
ZEROS, MEAN, DEVIATION = 0.668, -29.0, 4.0


def jobs(options: Options) -> list[Job]:
    """Return trainings under every scale for every seed, and the guide's own shares; or a given policy and FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    printed: list[Job] = [
        {"kind": "printed", "seed": seed, "samples": 10_000 if options.tiny else 1_000_000}
        for seed in options.seed_numbers
    ]
    plain = training_jobs(["detector"], [FP32, UNSCALED], options)
    return [*plain, *training_jobs(["small-gradients"], VARIANTS, options), *printed]


def run(job: Job) -> Result:
    """Run a job; in FP32 it also returns the exponents of all gradients."""
    if job["kind"] == "printed":
        return {**job, "kept": kept_by_scale(job["seed"], job["samples"])}
    if job["variant"] != FP32.key:
        return run_training(PROBLEMS, job)
    recorder = sf.Recorder()
    result = run_training(PROBLEMS, job, recorder)
    parameters = {name for name, _ in Detector(job["seed"]).named_parameters()}
    return {**result, "gradients": gradient_histograms(recorder, parameters)}


def kept_by_scale(seed: int, samples: int) -> dict[str, float]:
    """Return the share of the guide's values that FP16 does not round to zero, under each scale."""
    rng = np.random.default_rng(seed)
    values = np.exp2(rng.normal(MEAN, DEVIATION, samples)) * (rng.random(samples) >= ZEROS)
    scales = {f"{scale:.0f}": sf.round(values * scale, sf.FP16) for scale in (1.0, 8.0, 2.0**15)}
    return {name: float(np.mean((rounded != 0) & np.isfinite(rounded))) for name, rounded in scales.items()}


def metrics(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl: one for each record of a run, one for the guide's shares."""
    if result["kind"] == "printed":
        return [{**{key: result[key] for key in ("kind", "seed", "samples")}, **result["kept"]}]
    return training_rows(result)
