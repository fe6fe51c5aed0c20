"""The claims, and their tests. Gaps are 100 log(loss / loss of FP32), which is about percent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.fp4_factorial.jobs import RECIPES, SCALES, name_of
from experiments.measurement import final_value, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import INCONCLUSIVE, REPRODUCED, Outcome, compare, difference_test, log_ratios

#: The difference of losses that the paper on NVFP4 reports.
NEAR = 1.015

MX, NV = SCALES


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    results = [result for result in results if "seed" in result]  # the others chose the rate
    tuned = [{key: value for key, value in run.items() if key != "rate"} for run in results if "rate" in run]
    return [
        mx_is_worse(results, "bare", ((False, False),)),
        mx_is_worse(tuned, "bare, at the best rate", ((False, False),)),
        mx_is_worse(results, "stochastic and rotated", ((True, True),)),
        mx_is_worse(results, "over all four recipes", RECIPES),
        stochastic_helps(results),
        rotation_helps(results),
        stochastic_helps_mx_more(results),
        *(closes_gap(results, *recipe) for recipe in ((True, False), (False, True), (True, True))),
        *(trains_as_fp32(results, format) for format in SCALES),
        *(gradients_cost_more(results, format) for format in SCALES),
    ]


def losses(results: list[Result], arm: str) -> NDArray[np.float64]:
    """Return the held-out loss in the last fifth of the runs of an arm at the first rate, for every seed in order."""
    runs = sorted((run for run in select(results, arm=arm) if "rate" not in run), key=lambda run: run["seed"])
    return np.array([final_value(run["loss"]) for run in runs], np.float64)


def gap(results: list[Result], arm: str) -> NDArray[np.float64]:
    """Return 100 log(loss / loss of FP32), for every seed."""
    return 100 * log_ratios(losses(results, arm), losses(results, "FP32"))


def effect(results: list[Result], pairs: list[tuple[str, str]]) -> NDArray[np.float64]:
    """Return the mean difference of the gaps of pairs of arms, for every seed."""
    return np.mean([gap(results, one) - gap(results, other) for one, other in pairs], axis=0)


@claim("{recipe}: MXFP4 trains worse than NVFP4 under equal recipes", "gap of MXFP4 - gap of NVFP4 > 0")
def mx_is_worse(results: list[Result], recipe: str, recipes: tuple[tuple[bool, bool], ...]) -> Measured:
    """Test if smaller blocks and finer scales matter, apart from the recipe."""
    pairs = [(name_of(MX, *each), name_of(NV, *each)) for each in recipes]
    gaps = [np.mean([gap(results, pair[side]) for pair in pairs], axis=0) for side in (0, 1)]
    text = f"gap {spread(gaps[0])} against {spread(gaps[1])} %"
    return text, difference_test(effect(results, pairs), 0, above=0)


@claim("stochastic gradients lower the loss", "gap with them - gap without, over formats and rotations, < 0")
def stochastic_helps(results: list[Result]) -> Measured:
    """Test the main effect of stochastic rounding of gradients."""
    pairs = [(name_of(format, True, turn), name_of(format, False, turn)) for format in SCALES for turn in (False, True)]
    difference = effect(results, pairs)
    return f"{spread(difference)} %", difference_test(difference, 0, below=0)


@claim("a rotation lowers the loss", "gap with it - gap without, over formats and roundings, < 0")
def rotation_helps(results: list[Result]) -> Measured:
    """Test the main effect of the Hadamard transform of products for gradients of weights."""
    pairs = [(name_of(format, draw, True), name_of(format, draw, False)) for format in SCALES for draw in (False, True)]
    difference = effect(results, pairs)
    return f"{spread(difference)} %", difference_test(difference, 0, below=0)


@claim("stochastic gradients help MXFP4 more than NVFP4", "effect on MXFP4 - effect on NVFP4 < 0")
def stochastic_helps_mx_more(results: list[Result]) -> Measured:
    """Test the interaction of format and rounding."""
    effects = [
        effect(results, [(name_of(format, True, turn), name_of(format, False, turn)) for turn in (False, True)])
        for format in SCALES
    ]
    return f"{spread(effects[0])} against {spread(effects[1])} %", difference_test(effects[0], effects[1], below=0)


@claim("MXFP4{recipe}: closes most of the gap of bare MXFP4", "its gap, minus half of the bare one, < 0")
def closes_gap(results: list[Result], stochastic: bool, rotated: bool) -> Measured:
    """Test Tseng et al., arXiv 2502.20586: stochastic rounding and a random rotation make MXFP4 near-lossless."""
    name, bare = name_of(MX, stochastic, rotated), gap(results, name_of(MX))
    words, rest = {"recipe": name.removeprefix(MX)}, gap(results, name)
    text = f"gap {spread(rest)} %, bare {spread(bare)} %"
    if difference_test(bare, 0, above=0).verdict != REPRODUCED:
        return text, Outcome(INCONCLUSIVE, "none: there is no gap to close", 1.0), words
    return text, difference_test(rest, bare / 2, below=0), words


@claim("{format}, stochastic, rotated: trains as FP32 does", f"loss / FP32's loss within a factor of {NEAR}")
def trains_as_fp32(results: list[Result], format: str) -> Measured:
    """Test if the recipe makes the format near-lossless, by the difference that the paper on NVFP4 reports."""
    loss, fp32 = losses(results, name_of(format, True, True)), losses(results, "FP32")
    return spread(loss / fp32, 4), compare(loss, fp32, margin=NEAR)


@claim("{format}, bare: gradients in FP4 cost more than the other operands", "gap, gradients alone - others alone, > 0")
def gradients_cost_more(results: list[Result], format: str) -> Measured:
    """Test which operands cause the gap."""
    gradients, others = (gap(results, f"{format}, {operands} alone") for operands in ("gradients", "forward"))
    return f"gap {spread(gradients)} against {spread(others)} %", difference_test(gradients, others, above=0)
