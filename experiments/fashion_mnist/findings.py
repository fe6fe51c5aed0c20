"""The claims, and their tests."""

from __future__ import annotations

from experiments.fashion_mnist.problems import PROBLEMS
from experiments.measurement import against_fp32
from experiments.precision_claims import (
    cancels_late,
    closes_gap,
    falls_short,
    fp8_matches_fp16,
    fp16_weights_lag,
    matches,
    matches_closely,
)
from experiments.precisions import FP8, FP32_WEIGHTS, KAHAN, MASTER, NO_MASTER, STOCHASTIC
from experiments.task import Task
from simfloat.studies import Finding, Result

#: The problems and the remedies that are tested on them.
REMEDIES = (("clothes", FP32_WEIGHTS), ("clothes", STOCHASTIC), ("clothes", KAHAN), ("small steps", STOCHASTIC))

TASK = Task("CNN, clothes", "accuracy", "accuracy (%)")


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim; for a given policy, whether it comes close to FP32."""
    return against_fp32(results, PROBLEMS) or [
        *(falls_short(results, problem, TASK) for problem in PROBLEMS),
        *(cancels_late(results, problem) for problem in PROBLEMS),
        *(
            test(results, problem, TASK, variant)
            for test in (matches_closely, closes_gap)
            for problem, variant in REMEDIES
        ),
        *(fp16_weights_lag(results, problem, TASK) for problem in PROBLEMS),
        *(matches(results, "clothes", TASK, variant) for variant in (NO_MASTER, MASTER, FP8)),
        fp8_matches_fp16(results, "clothes", TASK, MASTER),
    ]
