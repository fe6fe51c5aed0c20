"""The effect of the formats on one gradient, and their precision."""

from __future__ import annotations

import numpy as np

import simfloat as sf
from experiments.fp8_hybrid.policies import VARIANTS
from experiments.fp8_hybrid.problems import PROBLEMS
from experiments.gradients import gradient, random_batch, relative_error, train_half
from simfloat.studies import Result

#: The number of samples for the gradient.
BATCH, TINY_BATCH = 64, 8


def measure_gradients(name: str, seed: int, tiny: bool) -> Result:
    """Return the gradient of a model that was trained for half its steps in FP32, under every policy.

    "policies" has for each variant the gradient's "error" relative to that in FP64, and the share of nonzero gradients
    that became zero as operands ("lost").
    """
    problem = PROBLEMS[name](seed, tiny)
    batch = random_batch(problem, seed, TINY_BATCH if tiny else BATCH)
    model = problem.model()
    train_half(model, problem, seed)
    exact, _ = gradient(model, problem, batch, sf.policies["fp64"])
    found = {}
    for variant in VARIANTS:
        scale = variant.scaler["scale"] if variant.scaler else 1.0
        rounded, recorder = gradient(model, problem, batch, variant.policy, scale)
        found[variant.key] = {"error": relative_error(rounded, exact), "lost": lost_gradients(recorder)}
    return {"policies": found}


def lost_gradients(recorder: sf.Recorder) -> float:
    """Return the share of the nonzero gradients that are rounded to zero as operands of products."""
    if not any(key.operation == "cast_gradient" for key, _ in recorder.entries()):
        return 0.0
    lost = recorder.counts(operation="cast_gradient")["underflow"]
    kept = sum(count for exponent, count in recorder.histogram(operation="cast_gradient").items() if exponent != "zero")
    return lost / max(1, lost + kept)


def measure_precision(seed: int, samples: int) -> Result:
    """Return the significant bits of each format: -log2 of the largest relative error, for normal numbers."""
    x = np.exp2(np.random.default_rng(seed).uniform(-5, 8, samples))
    found = {}
    for format in (sf.E4M3, sf.E5M2):
        error = np.abs(sf.round(x, format) - x) / x
        # The largest error u / (1 + u) belongs to a tie just above a power of two: u is half the spacing there.
        found[format.name or str(format)] = float(-np.log2(error.max() / (1 - error.max())))
    return {"bits": found}
