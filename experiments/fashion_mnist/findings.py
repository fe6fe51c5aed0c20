"""The claims, and their tests."""

from __future__ import annotations

from experiments.fashion_mnist.problems import PROBLEMS
from experiments.measurement import against_fp32
from experiments.precision_claims import cancels_late, falls_short, fp16_weights_lag, matches
from experiments.precisions import FP8, FP32_WEIGHTS, KAHAN, MASTER, STOCHASTIC
from experiments.task import Task
from simfloat.studies import Finding, Result

TASK = Task("CNN, clothes", "accuracy", "accuracy (%)")


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim; for a given policy, whether it comes close to FP32."""
    return against_fp32(results, PROBLEMS) or [
        *(falls_short(results, problem, TASK) for problem in PROBLEMS),
        *(cancels_late(results, problem) for problem in PROBLEMS),
        *(matches(results, "clothes", TASK, variant) for variant in (FP32_WEIGHTS, STOCHASTIC, KAHAN)),
        matches(results, "small steps", TASK, STOCHASTIC),
        *(fp16_weights_lag(results, problem, TASK) for problem in PROBLEMS),
        *(matches(results, "clothes", TASK, variant) for variant in (MASTER, FP8)),
    ]
