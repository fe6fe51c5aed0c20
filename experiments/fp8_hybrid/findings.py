"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.fp8_hybrid.problems import PROBLEMS
from experiments.measurement import against_fp32, final, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import EXPONENT, all_of, compare, compare_shares, difference_test, ratio_test

#: Significant bits, including the hidden one; the tutorial's "6 or 7 bits of mantissa" would be 7 or 8.
BITS = {"E4M3": 4, "E5M2": 3}

#: The margin of losses, as in block-scaling and recipe-parts: the smallest gap without scales is 1.5 %.
CLOSE = 1.015


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training, gradients = select(results, kind="training"), select(results, kind="gradients")
    if given := against_fp32(training, PROBLEMS):
        return given
    return [
        *(_matches_fp16(training, problem) for problem in PROBLEMS),
        *(_needs_a_scale(training, problem) for problem in PROBLEMS),
        *(_loss_scale_helps(training, problem) for problem in PROBLEMS),
        *(_loss_scale_keeps(gradients, problem) for problem in PROBLEMS),
        *(_e5m2_keeps_more(gradients, problem) for problem in PROBLEMS),
        *(_e4m3_is_finer(gradients, problem) for problem in PROBLEMS),
        *(_weights_in_e4m3(gradients, problem) for problem in PROBLEMS),
        *(_trains_with_e4m3_weights(training, problem) for problem in PROBLEMS),
        _significant_bits(select(results, kind="precision")),
    ]


def measured(results: list[Result], problem: str, variant: str, key: str) -> NDArray[np.float64]:
    """Return the measurement of a gradient under this key, for every seed in order."""
    runs = sorted(select(results, problem=problem), key=lambda run: run["seed"])
    return np.array([run["policies"][variant][key] for run in runs], np.float64)


@claim(
    "{problem}: scaled per tensor, FP8 matches FP16",
    f"loss / FP16's within a factor of {CLOSE}, accuracy within a point",
)
def _matches_fp16(results: list[Result], problem: str) -> Measured:
    loss, fp16 = final(results, problem, "hybrid"), final(results, problem, "fp16")
    scores = [100 * final(results, problem, variant, "accuracy") for variant in ("hybrid", "fp16")]
    test = all_of([compare(loss, fp16, margin=CLOSE), compare_shares(*scores)])
    return f"{spread(loss / fp16, 3)}; accuracy {spread(scores[0])} against {spread(scores[1])} %", test


@claim(
    "{problem}: without any scale E4M3 loses gradients, and ends with a higher loss", "loss, E4M3 for both / FP16's > 1"
)
def _needs_a_scale(results: list[Result], problem: str) -> Measured:
    e4m3, hybrid, fp16 = (final(results, problem, each) for each in ("e4m3-bare", "hybrid-bare", "fp16"))
    return f"{spread(e4m3 / fp16, 3)}; gradients in E5M2: {spread(hybrid / fp16, 3)}", ratio_test(e4m3, fp16, above=1)


@claim(
    "{problem}: a scaled loss closes most of the gap of E4M3 without a scale",
    "log loss above FP16's, minus half of that without a scale, < 0",
)
def _loss_scale_helps(results: list[Result], problem: str) -> Measured:
    fp16 = final(results, problem, "fp16")
    bare, scaled = (100 * np.log(final(results, problem, each) / fp16) for each in ("e4m3-bare", "e4m3-loss"))
    return f"gap {spread(bare)} %, with the scale {spread(scaled)} %", difference_test(scaled, bare / 2, below=0)


@claim(
    "{problem}: a scaled loss brings most of the lost gradients into E4M3's range",
    "share of gradients lost, minus half of that without a scale, < 0",
)
def _loss_scale_keeps(results: list[Result], problem: str) -> Measured:
    bare, scaled = (100 * measured(results, problem, each, "lost") for each in ("e4m3-bare", "e4m3-loss"))
    return f"{spread(scaled, 1)} against {spread(bare, 1)} %", difference_test(scaled, bare / 2, below=0)


@claim(
    "{problem}: unscaled, E5M2 keeps gradients that E4M3 loses: its range is wider",
    "share of gradients lost: E5M2 - E4M3 < 0",
)
def _e5m2_keeps_more(results: list[Result], problem: str) -> Measured:
    e4m3, e5m2 = (100 * measured(results, problem, each, "lost") for each in ("e4m3-bare", "hybrid-bare"))
    return f"{spread(e5m2, 1)} against {spread(e4m3, 1)} %", difference_test(e5m2, e4m3, below=0)


@claim(
    "{problem}: scaled per tensor, E4M3 also for gradients is more exact",
    "error of the gradient: E4M3 for both / hybrid < 1",
)
def _e4m3_is_finer(results: list[Result], problem: str) -> Measured:
    e4m3, hybrid = (measured(results, problem, each, "error") for each in ("e4m3", "hybrid"))
    e5m2 = measured(results, problem, "e5m2", "error")
    test = ratio_test(e4m3, hybrid, below=1)
    return f"E4M3 {spread(100 * e4m3)} %, hybrid {spread(100 * hybrid)} %, E5M2 for both {spread(100 * e5m2)} %", test


@claim(
    "{problem}: weights belong in E4M3, not in E5M2 as the tutorial says",
    "error of the gradient: E5M2 weights / E4M3 weights > 1",
)
def _weights_in_e4m3(results: list[Result], problem: str) -> Measured:
    printed, hybrid = (measured(results, problem, each, "error") for each in ("e5m2-weights", "hybrid"))
    return f"{spread(100 * printed)} against {spread(100 * hybrid)} %", ratio_test(printed, hybrid, above=1)


@claim(
    "{problem}: weights belong in E4M3 also by the loss of a training",
    "loss / loss with E4M3 weights > 1, E5M2 weights",
)
def _trains_with_e4m3_weights(results: list[Result], problem: str) -> Measured:
    printed, hybrid, fp16 = (final(results, problem, each) for each in ("e5m2-weights", "hybrid", "fp16"))
    test = ratio_test(printed, hybrid, above=1)
    return f"{spread(printed / hybrid, 3)}; E5M2 weights / FP16: {spread(printed / fp16, 3)}", test


@claim(
    "FP8 has 4 (E4M3) and 3 (E5M2) significant bits, not 6 or 7 bits of mantissa",
    f"bits by the largest relative error of rounding within {EXPONENT} of 4 and of 3",
)
def _significant_bits(results: list[Result]) -> Measured:
    found = {name: np.array([run["bits"][name] for run in results]) for name in BITS}
    tests = [difference_test(bits, BITS[name], above=-EXPONENT, below=EXPONENT) for name, bits in found.items()]
    return ", ".join(f"{name} {spread(bits, 3)}" for name, bits in found.items()), all_of(tests)
