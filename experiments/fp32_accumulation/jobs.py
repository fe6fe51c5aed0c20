"""The jobs: sums of several lengths, the first gradient of the model, and its training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.fp32_accumulation.problems import PROBLEMS
from experiments.fp32_accumulation.sums import sums
from experiments.mixed_precision import FP32, MIXED
from experiments.operands import DATA
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import Variant, given, make_scaler, static
from simfloat.studies import Job, Result

#: The mean over 16 384 pixels makes gradients too small for FP16 without a scale.
SCALE = static(2.0**12)

#: For the problem of long dot products.
VARIANTS = (
    FP32,
    Variant("mixed", MIXED, "FP32 sums", SCALE),
    Variant("tensor-core", replace(MIXED, accumulate=sf.tensor_core("volta", sf.FP16)), "tensor core", SCALE),
    Variant("products", replace(MIXED, accumulate=sf.FP16, reduce=sf.FP32), "FP16 dot products", SCALE),
    Variant("all", replace(MIXED, accumulate=sf.FP16, reduce=sf.FP16), "all sums in FP16", SCALE),
)

#: For the problem of long sums in layers: the other two kinds of arithmetic that the paper distinguishes.
KINDS = (
    FP32,
    Variant("mixed", MIXED, "FP32 sums"),
    Variant(
        "pointwise",
        MIXED.override(operation="pointwise", activations=sf.FP32, gradients=sf.FP32),
        "pointwise in FP32 too",
    ),
    Variant("reductions", replace(MIXED, reduce=sf.FP16), "FP16 reductions"),
    Variant("pairs", replace(MIXED, reduce=sf.pairwise(sf.FP16)), "FP16 reductions in pairs"),
)


def jobs(options: Options) -> list[Job]:
    """Return trainings, first gradients and sums for every seed; or a given policy and FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    gradients = [{"kind": "gradients", "seed": seed, "tiny": options.tiny} for seed in options.seed_numbers]
    lengths = [
        {"kind": "sums", "data": data, "seed": seed, "tiny": options.tiny}
        for data in DATA
        for seed in options.seed_numbers
    ]
    return [
        *training_jobs(["segmentation"], VARIANTS, options),
        *training_jobs(["normalised"], KINDS, options),
        *gradients,
        *lengths,
    ]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "sums":
        return {**job, **sums(job["data"], job["seed"], job["tiny"])}
    if job["kind"] == "gradients":
        return {**job, "rows": first_gradients(job["seed"])}
    return run_training(PROBLEMS, job)


def first_gradients(seed: int) -> list[dict[str, Any]]:
    """Return the relative error of the first gradient of the weights, compared with FP64, for every policy."""
    exact = gradient(seed, Variant("fp64", sf.policies["fp64"], "FP64"))
    return [
        {
            "under": variant.key,
            "error": float(np.linalg.norm(gradient(seed, variant) - exact) / np.linalg.norm(exact)),
        }
        for variant in VARIANTS
    ]


def gradient(seed: int, variant: Variant) -> NDArray[np.float64]:
    """Return the gradient of all weights for the first batch, without the scale."""
    problem = PROBLEMS["segmentation"](seed, True)
    model, (x, y) = problem.model(), next(iter(problem.batches(seed)))
    scaler = make_scaler(variant.scaler or static(1.0))
    with sf.simulate(variant.policy, seed=seed):
        scaler.scale(problem.loss(model(x), y)).backward()
    found = [p.grad for name, p in model.named_parameters() if name.endswith("weight") and p.grad is not None]
    return np.concatenate([np.asarray(g, np.float64).ravel() for g in found]) / scaler.get_scale()
