"""The jobs: Apex's levels, remedies of FP16 updates, a scale by layer, speech and language; orders of scaling."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.datasets.installed import installed_file
from experiments.mixed_precision import FP32, MIXED, UNSCALED, scaled
from experiments.mixed_precision_rules.problems import PROBLEMS
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import Variant, given
from simfloat.studies import Job, Result

#: Apex scales the loss of O1 and O2 dynamically, and does not scale that of O3.
DYNAMIC = {"kind": "dynamic"}
LEVELS = (
    Variant("o0", sf.policies["apex-o0"], "O0"),
    Variant("o1", sf.policies["apex-o1"], "O1", DYNAMIC),
    Variant("o2", sf.policies["apex-o2"], "O2", DYNAMIC),
    Variant("o3", sf.policies["apex-o3"], "O3"),
)

#: Moments in FP32: the question is whether FP16 only has a problem with updates.
FP16_STOCHASTIC, FP16_KAHAN = (
    Variant(f"fp16-{update}", sf.Policy(compute=sf.FP16, update=update, optimizer_state=sf.FP32), f"FP16, {label}")
    for update, label in (("stochastic", "stochastic"), ("kahan", "Kahan"))
)
BF16_STOCHASTIC = Variant("bf16-stochastic", sf.policies["bf16-stochastic"], "BF16, stochastic")
LAYERWISE = Variant("layerwise", MIXED, "mixed, scale by layer", {"kind": "layerwise"})

#: The exponent of bigLSTM's scale.
BIG_LSTM = 7

TRAINED = {
    "convolutional": LEVELS,
    "transformer": LEVELS,
    "regression": (FP32, FP16_STOCHASTIC, FP16_KAHAN, BF16_STOCHASTIC, LAYERWISE),
    "speech": (FP32, UNSCALED),
    "language": (FP32, UNSCALED, scaled(BIG_LSTM)),
}

#: The number of elements of a gradient, the scale, and the number of cases for every seed.
SIZE, SCALE, CASES = 1000, 2.0**10, 20


def jobs(options: Options) -> list[Job]:
    """Return every problem under its policies for every seed, and the orders; or a given policy and FP32."""
    installed_file("sktime")
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    trainings = [job for problem, variants in TRAINED.items() for job in training_jobs([problem], variants, options)]
    return [*trainings, *({"kind": "orders", "seed": seed} for seed in options.seed_numbers)]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "orders":
        rng = np.random.default_rng([job["seed"], 2])
        return {**job, "rows": [{"case": case, **orders(rng)} for case in range(CASES)]}
    return run_training(PROBLEMS, job)


def orders(rng: np.random.Generator) -> dict[str, Any]:
    """Return gradients in FP16 after clipping and weight decay, before and after the scale is removed."""
    gradient = rng.standard_normal(SIZE) * np.exp2(rng.normal(-10, 2, SIZE))
    weight_decay = np.asarray(sf.multiply(rng.standard_normal(SIZE), 1e-4, sf.FP32))
    large = np.asarray(sf.round(SCALE * gradient, sf.FP16), np.float64)
    small = unscaled(large)
    limit = float(norm(small)) / 4
    right = clipped(small, limit)
    decayed = np.asarray(sf.add(small, weight_decay, sf.FP32)) - small
    early = unscaled(sf.add(large, weight_decay, sf.FP32)) - small
    return {
        "shrunk": float(norm(right) / norm(unscaled(clipped(large, limit)))),
        "other_bits": int((unscaled(clipped(large, SCALE * limit)) != right).sum()),
        "decay": float(norm(early) / norm(decayed)),
    }


def unscaled(x: Any) -> NDArray[np.float64]:
    """Return the gradient without its scale, in FP32."""
    return np.asarray(sf.multiply(x, 1 / SCALE, sf.FP32), np.float64)


def norm(x: NDArray) -> Any:
    """Return the norm, in FP32."""
    return sf.sqrt(sf.dot(x, x, accumulate=sf.FP32), sf.FP32)


def clipped(x: NDArray, limit: float) -> NDArray[np.float64]:
    """Return the gradient with a norm of at most the limit, in FP32."""
    factor = min(1.0, float(sf.divide(limit, norm(x), sf.FP32)))
    return np.asarray(sf.multiply(x, factor, sf.FP32), np.float64)
