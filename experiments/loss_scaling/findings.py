"""The claims, and their tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.gradients import as_histogram
from experiments.loss_scaling.jobs import SCALES, STEPS
from experiments.loss_scaling.problems import LARGE_BATCH, PROBLEMS, SMALL_BATCH
from experiments.measurement import against_fp32, final, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import (
    MANY,
    MATCH,
    MOST,
    all_of,
    compare,
    compare_shares,
    difference_test,
    ratio_test,
    search_test,
)
from simfloat.telemetry.ranges import Histogram, count_in_range, format_binades

#: The guide's share of nonzero gradients that are still lost under a scale of 32K.
THOUSANDTH = 0.001


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training = select(results, kind="training")
    return against_fp32(training, PROBLEMS) or [
        *(claim(training) for claim in CLAIMS),
        _overflow(select(results, kind="overflow")),
    ]


def gradients(results: list[Result], problem: str) -> list[Histogram]:
    """Return the exponents of the gradients of activations in FP32, for every seed."""
    runs = select(results, problem=problem, variant="fp32")
    return [as_histogram(run["gradients"]["activations"]) for run in runs]


def lost_share(histogram: Histogram, exponent: int = 0) -> float:
    """Return the share of nonzero values that are below FP16's numbers although they are scaled by 2^exponent."""
    found = count_in_range(histogram, format_binades(sf.FP16).shift(exponent))
    return found.below / sum(found)


@claim(
    "regression: much of FP16's range is unused, while many gradients of activations lie below it",
    f"more than {MANY:.0%} of the nonzero ones below 2^-24; most of the {{binades}} binades unused above",
)
def _range_unused(results: list[Result]) -> Measured:
    histograms = gradients(results, "regression")
    lost = np.array([lost_share(histogram) for histogram in histograms])
    zero = np.array([histogram["zero"] / sum(histogram.values()) for histogram in histograms])
    unused = np.array([format_binades(sf.FP16).highest - max(_exponents(histogram)) for histogram in histograms])
    binades = format_binades(sf.FP16).highest - format_binades(sf.FP16).lowest + 1
    test = all_of([difference_test(lost, MANY, above=0), difference_test(unused, MOST * binades, above=0)])
    return (
        f"{spread(100 * lost, 1)} % below, {spread(unused, 1)} binades unused; {spread(100 * zero, 1)} % zeros in FP32",
        test,
        {"binades": binades},
    )


@claim(
    "regression: any value smaller than 2^-24 becomes zero in FP16",
    "none of them is rounded to a nonzero number; but values above 2^-25 are nearer to 2^-24",
)
def _below_is_zero(results: list[Result]) -> Measured:
    histograms = gradients(results, "regression")
    lowest = format_binades(sf.FP16).lowest
    below = sum(count_in_range(histogram, format_binades(sf.FP16)).below for histogram in histograms)
    # Exactly half of the smallest number is a tie that becomes zero: one value in millions.
    rounded_up = sum(histogram.get(lowest - 1, 0) for histogram in histograms)
    test = search_test(rounded_up, below)
    return (
        f"{100 * rounded_up / max(1, below):.0f} % of the gradients below 2^-24 lie above 2^-25, and become 2^-24",
        test,
    )


@claim(
    "regression: a scale of 32K keeps all but a thousandth of the gradients",
    "less than 0.1 % of the nonzero ones below 2^-24",
)
def _scales_keep(results: list[Result]) -> Measured:
    histograms = gradients(results, "regression")
    lost = {k: np.array([lost_share(histogram, k) for histogram in histograms]) for k in (0, *SCALES)}
    test = difference_test(lost[15], THOUSANDTH, below=0)
    return ", ".join(f"x{2**k}: {spread(100 * share, 3)} %" for k, share in lost.items()), test


@claim("regression: without a scale FP16 training fails", f"loss / FP32's loss > {MATCH}")
def _unscaled_fails(results: list[Result]) -> Measured:
    ratios = _ratios(results, "unscaled")
    test = ratio_test(final(results, "regression", "unscaled"), final(results, "regression", "fp32"), above=MATCH)
    return spread(ratios, 3), test


@claim("regression: a scale of 8 is sufficient to match FP32", f"loss / FP32's loss within a factor of {MATCH}")
def _eight_suffices(results: list[Result]) -> Measured:
    test = compare(final(results, "regression", "scale-3"), final(results, "regression", "fp32"))
    return spread(_ratios(results, "scale-3"), 3), test


@claim(
    "regression: there is no downside to a larger scale as long as nothing overflows",
    f"loss / FP32's loss within a factor of {MATCH} with 128 and 32K",
)
def _larger_is_no_worse(results: list[Result]) -> Measured:
    larger = [f"scale-{k}" for k in SCALES[1:]]
    skipped = [
        sum(run["trace"]["skipped"]) for key in larger for run in select(results, problem="regression", variant=key)
    ]
    fp32 = final(results, "regression", "fp32")
    test = all_of([compare(final(results, "regression", key), fp32) for key in larger])
    return (
        f"128: {spread(_ratios(results, larger[0]), 3)}, 32K: {spread(_ratios(results, larger[1]), 3)}; "
        f"{sum(skipped)} steps skipped"
    ), test


@claim("classification: a classifier with batches of this size needs no scale", "mean accuracy within a point of FP32")
def _classifier_needs_none(results: list[Result]) -> Measured:
    unscaled, fp32 = (100 * final(results, "classification", variant, "accuracy") for variant in ("unscaled", "fp32"))
    lost = np.array([lost_share(histogram) for histogram in gradients(results, "classification")])
    test = compare_shares(unscaled, fp32)
    return f"{spread(unscaled)} against {spread(fp32)} %; {spread(100 * lost, 2)} % of its gradients below 2^-24", test


@claim(
    f"small-batch: with batches of {SMALL_BATCH} instead of {LARGE_BATCH} the autoencoder needs no scale",
    f"loss / FP32's loss within a factor of {MATCH}",
)
def _small_batch_needs_none(results: list[Result]) -> Measured:
    unscaled, fp32 = (final(results, "small-batch", variant) for variant in ("unscaled", "fp32"))
    lost = np.array([lost_share(histogram) for histogram in gradients(results, "small-batch")])
    measured = f"{spread(unscaled / fp32, 3)}; {spread(100 * lost, 1)} % of its gradients below 2^-24"
    return measured, compare(unscaled, fp32)


CLAIMS: tuple[Callable[[list[Result]], Finding], ...] = (
    _range_unused,
    _below_is_zero,
    _scales_keep,
    _unscaled_fails,
    _eight_suffices,
    _larger_is_no_worse,
    _classifier_needs_none,
    _small_batch_needs_none,
)


@claim(
    "overflow damages the weights permanently, unless the update is skipped",
    "share of parameters that stay NaN or infinite after good steps - share of runs that skipped steps change > half",
)
def _overflow(results: list[Result]) -> Measured:
    damaged = np.array([result["damaged"] for result in results])
    moves = np.array([float(result["moved"] > 0) for result in results])
    return (
        f"{spread(100 * damaged, 1)} % are no numbers, {STEPS} steps after {STEPS} that overflowed; "
        f"skipped steps move {moves.sum():.0f} of {len(moves)} runs"
    ), difference_test(damaged, moves, above=MOST)


def _ratios(results: list[Result], variant: str) -> NDArray[np.float64]:
    return final(results, "regression", variant) / final(results, "regression", "fp32")


def _exponents(histogram: Histogram) -> list[int]:
    return [exponent for exponent in histogram if isinstance(exponent, int)]
