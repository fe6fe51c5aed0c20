"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.alignment_bits.problems import PROBLEMS, WIDTHS
from experiments.measurement import against_fp32, final, select, table_over_seeds
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.statistics import mean_interval
from simfloat.studies.verdicts import (
    ABOUT,
    MANY,
    MATCH,
    Outcome,
    all_of,
    compare,
    difference_test,
    exponential,
    fitted_outcome,
    ratio_test,
)

#: The width to which the trend of trainings is extended: the width of the largest models.
LARGE = 16384


def shares(results: list[Result], data: str) -> tuple[NDArray, NDArray[np.float64]]:
    """Return lengths, and for each seed the error of sums relative to that of operands at each of them."""
    sums = select(results, kind="sums", data=data)
    (lengths, lost), (_, operands) = (table_over_seeds(sums, key, "length") for key in ("sums", "operands"))
    return lengths, lost / operands


def trend(results: list[Result], data: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a power of the length to each seed, without the largest length; return exponent and log(factor)."""
    lengths, found = shares(results, data)
    slopes, starts = np.polyfit(np.log(lengths[:-1]), np.log(found[:, :-1]).T, 1)
    return slopes, starts


@claim(
    "both signs: up to {length} products Hopper's sums lose little compared with E4M3 operands",
    f"error of sums / of operands < {MANY}",
)
def sums_are_harmless(results: list[Result]) -> Measured:
    """Test values from N(0, 1), which resemble weights and normalised activations."""
    lengths, found = shares(results, "both signs")
    return spread(found[:, -2], 3), ratio_test(found[:, -2], np.ones(len(found)), below=MANY), {"length": lengths[-2]}


@claim("both signs: the trend up to this length predicts {length} products", f"predicted / measured within {ABOUT:g}")
def trend_holds(results: list[Result]) -> Measured:
    """Test a power of the length that is fitted to each seed."""
    lengths, found = shares(results, "both signs")
    slopes, starts = trend(results, "both signs")
    predicted = np.exp(starts + slopes * np.log(lengths[-1]))
    measured = f"exponent {spread(slopes)}; predicted {spread(predicted, 3)}, measured {spread(found[:, -1], 3)}"
    return measured, ratio_test(predicted, found[:, -1], above=1 / ABOUT, below=ABOUT), {"length": lengths[-1]}


@claim("{data}: by that trend sums lose as much as E4M3 operands from a certain length on", "extrapolated, 95 %")
def reaches_operands(results: list[Result], data: str) -> Measured:
    """Find the length at which the power is one."""
    slopes, starts = trend(results, data)
    interval = mean_interval(-starts / slopes)
    return f"{np.exp(np.mean(-starts / slopes)):.3g} products, {between(interval.low, interval.high)}", fitted_outcome()


@claim("one sign: at {length} products Hopper's sums lose more than E4M3 operands", "error of sums / of operands > 1")
def one_sign_is_worse(results: list[Result]) -> Measured:
    """Test products of one sign: errors of operands average out, those of a truncated sum all have one sign."""
    lengths, found = shares(results, "one sign")
    return spread(found[:, 1]), ratio_test(found[:, 1], np.ones(len(found)), above=1), {"length": lengths[1]}


def ratios(results: list[Result]) -> NDArray[np.float64]:
    """Return final losses with Hopper's sums relative to those with FP32 sums (seeds, widths)."""
    pairs = ([final(results, problem, variant) for variant in ("hopper", "fp32")] for problem in PROBLEMS)
    return np.array([hopper / fp32 for hopper, fp32 in pairs]).T


@claim("GPT: of each width trains with Hopper's sums as with FP32 sums", f"ratio of losses within {MATCH}")
def trains_as_fp32(results: list[Result]) -> Measured:
    """Test widths of 32, 64 and 128."""
    found = ratios(results)
    tests: list[Outcome] = [compare(column, np.ones(len(column))) for column in found.T]
    return ", ".join(f"{width}: {spread(row, 4)}" for width, row in zip(WIDTHS, found.T, strict=True)), all_of(tests)


@claim("GPT: the cost of Hopper's sums grows with the width", "change of the logarithm of the ratio per doubling > 0")
def cost_grows(results: list[Result]) -> Measured:
    """Extend a straight line for each seed to the width of large models."""
    slopes, starts = np.polyfit(np.log2(WIDTHS), np.log(ratios(results)).T, 1)
    far = mean_interval(starts + slopes * np.log2(LARGE))
    measured = f"{spread(100 * slopes)} %; at a width of {LARGE} the ratio would be {between(far.low, far.high)}"
    return measured, difference_test(slopes, 0, above=0)


def between(low: float, high: float) -> str:
    """Return the exponentials of an interval's ends as text."""
    return f"between {exponential(low):.3g} and {exponential(high):.3g}"


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    if given := against_fp32(results, PROBLEMS):
        return given
    return [
        sums_are_harmless(results),
        trend_holds(results),
        *(reaches_operands(results, data) for data in ("both signs", "one sign")),
        one_sign_is_worse(results),
        trains_as_fp32(results),
        cost_grows(results),
    ]
