"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import against_fp32, final, measured_rows, select
from experiments.mixed_precision import FP32, UNSCALED, scaled
from experiments.mixed_precision_rules.jobs import (
    BF16_STOCHASTIC,
    BIG_LSTM,
    FP16_KAHAN,
    FP16_STOCHASTIC,
    LAYERWISE,
    SCALE,
)
from experiments.mixed_precision_rules.problems import PROBLEMS
from experiments.variants import Variant
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, MATCH, compare, ratio_test, search_test

#: The problems under Apex's levels.
LEVELLED = ("convolutional", "transformer")


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim; for a given policy, one for each problem."""
    if given := against_fp32(results, PROBLEMS):
        return given
    training, order = select(results, kind="training"), select(results, kind="orders")
    return [
        *(_o1_matches(training, problem) for problem in LEVELLED),
        *(_level_is_worse(training, problem, level) for level in ("o2", "o3") for problem in LEVELLED),
        *(_fp16_not_rescued(training, variant) for variant in (FP16_STOCHASTIC, FP16_KAHAN)),
        _bf16_is(training),
        _scale_by_layer(training),
        _speech_is_better(training),
        _language_needs_scale(training),
        _language_matches(training),
        _clipping_scaled(order),
        _clipping_with_scaled_limit(order),
        _decay_before(order),
    ]


def losses(results: list[Result], problem: str, key: str, reference: str = "fp32") -> tuple[NDArray, NDArray, str]:
    """Return held-out losses at the end, those of the reference, and their ratio as text."""
    found, beside = final(results, problem, key), final(results, problem, reference)
    diverged = int((~np.isfinite(found)).sum())
    text = f"{diverged} of {len(found)} runs diverged" if diverged else spread(found / beside, 3)
    return found, beside, text


@claim("{problem}: O1 trains as FP32", f"loss / O0's loss within a factor of {MATCH}")
def _o1_matches(results: list[Result], problem: str) -> Measured:
    o1, o0, text = losses(results, problem, "o1", "o0")
    return text, compare(o1, o0)


@claim("{problem}: {name} does not reach FP32's loss", "loss / O0's loss > 1")
def _level_is_worse(results: list[Result], problem: str, level: str) -> Measured:
    found, o0, text = losses(results, problem, level, "o0")
    return text, ratio_test(found, o0, above=1), {"name": level.upper()}


@claim(
    "regression: {variant.label} updates do not rescue FP16, because its range is too small", f"loss / FP32's > {MATCH}"
)
def _fp16_not_rescued(results: list[Result], variant: Variant) -> Measured:
    found, fp32, text = losses(results, "regression", variant.key)
    return text, ratio_test(found, fp32, above=MATCH)


@claim("regression: stochastic updates do rescue BF16", f"loss / FP32's loss within a factor of {MATCH}")
def _bf16_is(results: list[Result]) -> Measured:
    found, fp32, text = losses(results, "regression", BF16_STOCHASTIC.key)
    return text, compare(found, fp32)


@claim("regression: a scale by layer, found automatically, matches FP32", f"loss / FP32's within a factor of {MATCH}")
def _scale_by_layer(results: list[Result]) -> Measured:
    found, fp32, text = losses(results, "regression", LAYERWISE.key)
    return text, compare(found, fp32)


@claim("speech: FP16 storage is 5 to 10 % better than FP32", "errors / FP32's errors between 0.9 and 0.95")
def _speech_is_better(results: list[Result]) -> Measured:
    errors = {key: 1 - final(results, "speech", key, "accuracy") for key in (UNSCALED.key, FP32.key)}
    text = f"{spread(errors[UNSCALED.key] / errors[FP32.key], 3)}; {spread(100 * errors[FP32.key])} % errors in FP32"
    return text, ratio_test(errors[UNSCALED.key], errors[FP32.key], above=0.9, below=0.95)


@claim("language: without a scale FP16 training of LSTM cells does not match FP32", f"loss / FP32's loss > {MATCH}")
def _language_needs_scale(results: list[Result]) -> Measured:
    found, fp32, text = losses(results, "language", UNSCALED.key)
    return text, ratio_test(found, fp32, above=MATCH)


@claim(
    "language: with a scale of 128 FP16 training of LSTM cells matches FP32",
    f"loss / FP32's loss within a factor of {MATCH}",
)
def _language_matches(results: list[Result]) -> Measured:
    found, fp32, text = losses(results, "language", scaled(BIG_LSTM).key)
    return text, compare(found, fp32)


def _values(results: list[Result], key: str) -> NDArray[np.float64]:
    return np.array([row[key] for result in results for row in measured_rows(result)])


@claim(
    "gradients that are clipped while they are scaled are clipped too far, by the scale",
    f"norm clipped after unscaling / before, over the scale: within a factor of {ABOUT:g}",
)
def _clipping_scaled(results: list[Result]) -> Measured:
    shrunk = _values(results, "shrunk")
    wrong = int(((shrunk / SCALE < 1 / ABOUT) | (shrunk / SCALE > ABOUT)).sum())
    return f"{spread(shrunk)} times, under a scale of {SCALE:g}", search_test(
        wrong, len(shrunk), "clipping divides by the norm, which is scaled"
    )


@claim("with the limit scaled as well, clipping before and after gives the same bits", "no number differs")
def _clipping_with_scaled_limit(results: list[Result]) -> Measured:
    other = _values(results, "other_bits")
    return f"{int(other.sum())} numbers differ", search_test(
        int((other > 0).sum()), len(other), "a scale that is a power of two changes no significand"
    )


@claim("weight decay added before unscaling is divided by the scale", "share of the decay that is left < 0.01")
def _decay_before(results: list[Result]) -> Measured:
    decay = _values(results, "decay")
    wrong = int((decay >= 0.01).sum())
    return f"{np.mean(decay):.2g} of it is left", search_test(
        wrong, len(decay), "decay / scale is at most decay / 1024"
    )
