"""The claims, and what the results say about them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.fashion_mnist.jobs import FP8, FP32_WEIGHTS, KAHAN, MASTER, NO_MASTER, STANDARD, STOCHASTIC
from experiments.fashion_mnist.problems import PROBLEMS
from experiments.measurement import FINAL, against_fp32, final, select
from experiments.mixed_precision import FP32
from experiments.variants import Variant
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.margins import MATCH
from simfloat.studies.verdicts import compare_shares, difference_test, ratio_test


def findings(results: list[Result]) -> list[Finding]:
    """One finding for each claim; of a given policy, whether it comes close to FP32."""
    return against_fp32(results, PROBLEMS) or [
        *(_falls_short(results, problem) for problem in PROBLEMS),
        *(_cancels_late(results, problem) for problem in PROBLEMS),
        *(_matches(results, "clothes", variant) for variant in (FP32_WEIGHTS, STOCHASTIC, KAHAN)),
        _matches(results, "small steps", STOCHASTIC),
        *(_fp16_weights_lag(results, problem) for problem in PROBLEMS),
        *(_matches(results, "clothes", variant) for variant in (MASTER, FP8)),
    ]


def accuracies(results: list[Result], problem: str, variant: Variant) -> NDArray[np.float64]:
    """Percent of the held-out images that are told right at the end, for every seed."""
    return 100 * final(results, problem, variant.key, "accuracy")


def beside_fp32(results: list[Result], problem: str, variant: Variant) -> str:
    """Accuracy and loss beside FP32's."""
    found, fp32 = (accuracies(results, problem, each) for each in (variant, FP32))
    losses = final(results, problem, variant.key) / final(results, problem, FP32.key)
    return f"{spread(found)} against {spread(fp32)} %; loss {spread(losses, 3)} times FP32's"


@claim("{problem}: BF16 with nearest updates ends with a worse accuracy than FP32", "points below FP32 > 0")
def _falls_short(results: list[Result], problem: str) -> Measured:
    standard, fp32 = (accuracies(results, problem, each) for each in (STANDARD, FP32))
    return beside_fp32(results, problem, STANDARD), difference_test(fp32, standard, above=0)


@claim(
    "{problem}: BF16 with nearest updates cancels more of them in the late stage",
    "share of weights in the last fifth - in the first fifth > 0",
)
def _cancels_late(results: list[Result], problem: str) -> Measured:
    runs = select(results, problem=problem, variant=STANDARD.key)
    records = max(1, int(FINAL * len(runs[0]["unchanged"])))
    early, late = (
        np.array([np.mean(run["unchanged"][part]) for run in runs]) for part in (slice(records), slice(-records, None))
    )
    return f"{spread(100 * early)} % early, {spread(100 * late)} % late", difference_test(late, early, above=0)


@claim("{problem}: {variant.label}: matches the accuracy of FP32", "mean within a point of FP32")
def _matches(results: list[Result], problem: str, variant: Variant) -> Measured:
    found, fp32 = (accuracies(results, problem, each) for each in (variant, FP32))
    return beside_fp32(results, problem, variant), compare_shares(found, fp32)


@claim("{problem}: updating FP16 weights loses accuracy", f"loss / FP32's loss > {MATCH}")
def _fp16_weights_lag(results: list[Result], problem: str) -> Measured:
    loss, fp32 = (final(results, problem, each.key) for each in (NO_MASTER, FP32))
    return beside_fp32(results, problem, NO_MASTER), ratio_test(loss, fp32, above=MATCH)
