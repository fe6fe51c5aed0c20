"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import final_value, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import (
    ABOUT,
    HARDLY,
    INCONCLUSIVE,
    MANY,
    REPRODUCED,
    Outcome,
    difference_test,
    log_ratios,
    ratio_test,
    search_test,
)

#: Rules that round scales up.
UP = ("ceil", "rceil")


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    return [
        many_gains_saturate(results),
        none_saturate(results),
        hardly_any_activation_saturates(results),
        gains_bend_gradient(results),
        gains_shrink_gradient(results),
        rounded_up_keeps_gradient(results),
        floor_trains_worse(results),
        closes_gap(results, "floor, gains in FP32", "gains in FP32, scales of operands rounded down"),
        closes_gap(results, "even", "scales to nearest (even)"),
        closes_gap(results, "rceil", "scales rounded up (rceil)"),
        has_spikes(results),
    ]


def values(results: list[Result], key: str, arm: str = "fp32") -> NDArray[np.float64]:
    """Return a measure of the runs of an arm, for every seed in order; the last value of a curve."""
    runs = sorted(select(results, arm=arm), key=lambda run: run["seed"])
    return np.array([run[key][-1] if isinstance(run[key], list) else run[key] for run in runs], np.float64)


def losses(results: list[Result], arm: str) -> NDArray[np.float64]:
    """Return the held-out loss in the last fifth of the runs of an arm, for every seed in order."""
    runs = sorted(select(results, arm=arm), key=lambda run: run["seed"])
    return np.array([final_value(run["loss"]) for run in runs], np.float64)


@claim("with weight decay, scales rounded down saturate many gains of a model trained in FP32", f"share > {MANY}")
def many_gains_saturate(results: list[Result]) -> Measured:
    """Test Su et al., arXiv 2506.20752: gains that are close to each other, just below a power of two, are clamped."""
    share, gain = values(results, "saturated_floor"), values(results, "gain")
    even = values(results, "saturated_even")
    text = (
        f"{spread(100 * share, 1)} % of gains, with a mean of {spread(gain, 3)}; to nearest {spread(100 * even, 1)} %"
    )
    return text, difference_test(share, MANY, above=0)


@claim("scales rounded up saturate no gain", "none, by ceil and by rceil")
def none_saturate(results: list[Result]) -> Measured:
    """Test the definition of these rules on all recorded gains of all arms."""
    shares = np.concatenate([run[f"saturated_{rule}"] for run in results for rule in UP])
    proof = "both rules make the largest element at most the largest number"
    return f"{int((shares > 0).sum())} of {len(shares)} records", search_test(
        int((shares > 0).sum()), len(shares), proof
    )


@claim("scales rounded down saturate hardly any activation", f"share of normalized activations < {HARDLY}")
def hardly_any_activation_saturates(results: list[Result]) -> Measured:
    """Test the source's "small fraction of activations"."""
    share = values(results, "active_floor")
    return f"{spread(100 * share)} %", difference_test(share, HARDLY, below=0)


def turns(results: list[Result], rule: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return 1 minus the cosine between the gradient under a rule and the exact one, for every seed: with gains in
    MXFP8, and with gains in FP32."""
    return 1 - values(results, f"cosine_{rule}"), 1 - values(results, f"cosine_{rule}_without_gains")


@claim(
    "scales rounded down: gains in MXFP8 turn the gradient away from the exact one",
    f"1 - cosine, gains in MXFP8 / in FP32 > {ABOUT:g}",
)
def gains_bend_gradient(results: list[Result]) -> Measured:
    """Test if gains, not operands, cause the error of the gradient."""
    narrow, wide = turns(results, "floor")
    return f"{spread(narrow, 3)} against {spread(wide, 3)}", ratio_test(narrow, wide, above=ABOUT)


@claim(
    "scales rounded down: gains in MXFP8 shrink the gradient along the exact one",
    "relative length, gains in MXFP8 - in FP32 < 0",
)
def gains_shrink_gradient(results: list[Result]) -> Measured:
    """Test the multiplicative bias of the same source."""
    narrow, wide = (100 * values(results, f"bias_floor{each}") for each in ("", "_without_gains"))
    text = f"{spread(narrow, 1)} % against {spread(wide, 1)} %"
    return text, difference_test(narrow, wide, below=0)


@claim(
    "scales rounded up: gains in MXFP8 leave the gradient about as exact",
    f"1 - cosine, gains in MXFP8 / in FP32 < {ABOUT:g}",
)
def rounded_up_keeps_gradient(results: list[Result]) -> Measured:
    """Test if the rule, not the format, causes the error."""
    narrow, wide = turns(results, "rceil")
    return f"{spread(narrow, 4)} against {spread(wide, 4)}", ratio_test(narrow, wide, below=ABOUT)


@claim("scales rounded down train worse than FP32", "loss / FP32's loss > 1, operands and gains in MXFP8")
def floor_trains_worse(results: list[Result]) -> Measured:
    """Test if the saturation matters for the loss."""
    loss, fp32 = losses(results, "floor"), losses(results, "fp32")
    return spread(loss / fp32, 4), ratio_test(loss, fp32, above=1)


@claim("{what}: close most of this gap", "log loss above FP32's, minus half of that of scales rounded down, < 0")
def closes_gap(results: list[Result], arm: str, what: str) -> Measured:
    """Test if a remedy leaves less than half of the gap, if there is a gap."""
    fp32, floor, other = (losses(results, each) for each in ("fp32", "floor", arm))
    text = f"{spread(other / fp32, 4)} times FP32's loss"
    if ratio_test(floor, fp32, above=1).verdict != REPRODUCED:
        return text, Outcome(INCONCLUSIVE, "none: there is no gap to close", 1.0)
    return text, difference_test(log_ratios(other, fp32), log_ratios(floor, fp32) / 2, below=0)


@claim("scales rounded down make the loss spike", f"largest rise of the loss / that in FP32 > {ABOUT:g}")
def has_spikes(results: list[Result]) -> Measured:
    """Test the sharp instabilities of the same source."""
    rises, fp32 = values(results, "rise", "floor"), values(results, "rise")
    return f"{spread(rises, 3)} against {spread(fp32, 3)}", ratio_test(rises, fp32, above=ABOUT)
