"""The claims, and their tests."""

from __future__ import annotations

import numpy as np

import simfloat as sf
from experiments.gradients import as_histogram
from experiments.master_weights.problems import LR_EXPONENT, PROBLEMS
from experiments.master_weights.ratios import LEAST, MOST
from experiments.measurement import against_fp32, final, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import HARDLY, MANY, MATCH, all_of, compare, difference_test, search_test
from simfloat.telemetry.ranges import Histogram, count_in_range, format_binades

#: The proof of the limits: the gap above a weight is a 1024th of its power of two, and the weight is below twice that.
HALF = "an update is lost if it is below half a gap, which is between a 4096th and a 2048th of the weight"


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training, sums = select(results, kind="training"), select(results, kind="ratios")
    if given := against_fp32(training, PROBLEMS):
        return given
    return [
        _fp16_weights_lag(training),
        _master_matches(training),
        _small_gradients(training),
        _small_updates(training),
        _cancelled(training),
        _safe_ratios(sums),
        _lost_ratios(sums),
    ]


def gradients(results: list[Result]) -> list[Histogram]:
    """Return the exponents of the gradients of weights in FP32, for every seed."""
    return [as_histogram(run["gradients"]) for run in select(results, variant="fp32")]


def share_below(histogram: Histogram, exponent: int = 0) -> float:
    """Return the share of all values that are not zero and are below 2^-24 when multiplied by 2^exponent."""
    return count_in_range(histogram, format_binades(sf.FP16).shift(exponent)).below / sum(histogram.values())


@claim("updating FP16 weights loses accuracy", "points below FP32 > 0")
def _fp16_weights_lag(results: list[Result]) -> Measured:
    loss, fp32_loss = (final(results, "digits", variant) for variant in ("fp16-weights", "fp32"))
    narrow, fp32 = (100 * final(results, "digits", variant, "accuracy") for variant in ("fp16-weights", "fp32"))
    text = f"{spread(narrow, 1)} against {spread(fp32, 1)} %; loss {spread(loss / fp32_loss)} times FP32's"
    return text, difference_test(fp32 - narrow, 0, above=0)


@claim("with an FP32 master copy FP16 training matches FP32", f"loss / FP32's loss within a factor of {MATCH}")
def _master_matches(results: list[Result]) -> Measured:
    loss, fp32 = (final(results, "digits", variant) for variant in ("master", "fp32"))
    return spread(loss / fp32, 4), compare(loss, fp32)


@claim("some 5 % of the gradients of weights lie below 2^-24", "more than 1 %, excluding zeros in FP32")
def _small_gradients(results: list[Result]) -> Measured:
    shares = np.array([share_below(histogram) for histogram in gradients(results)])
    zeros = np.array([histogram["zero"] / sum(histogram.values()) for histogram in gradients(results)])
    test = difference_test(shares, HARDLY, above=0)
    return f"{spread(100 * shares, 2)} %; {spread(100 * zeros, 1)} % are zero in FP32", test


@claim(
    "first reason: gradients times the learning rate are too small for FP16",
    "more than 1 % of these products below 2^-24",
)
def _small_updates(results: list[Result]) -> Measured:
    shares = np.array([share_below(histogram, LR_EXPONENT) for histogram in gradients(results)])
    vanished = np.array([run["vanished"] for run in select(results, variant="fp16-weights")])
    test = difference_test(shares, HARDLY, above=0)
    return (
        f"{spread(100 * shares, 1)} %; with momentum {spread(100 * vanished, 1)} % of the products of an update vanish",
        test,
    )


@claim(
    "second reason: updates that FP16 can represent are too small compared with the weight",
    "more than 10 % lost in the addition to FP16 weights, fewer in that to the master copy",
)
def _cancelled(results: list[Result]) -> Measured:
    narrow, wide = (final(results, "digits", variant, "unchanged") for variant in ("fp16-weights", "master"))
    test = all_of([difference_test(narrow, MANY, above=0), difference_test(wide, MANY, below=0)])
    return f"{spread(100 * narrow, 1)} % lost, {spread(100 * wide, 1)} % in the master copy", test


@claim(
    f"an update can be lost only with a ratio of {LEAST} or more",
    f"no update is lost below {LEAST}; all are lost at {MOST} and above",
)
def _safe_ratios(results: list[Result]) -> Measured:
    lost, tried = _total(results, "below_lost"), _total(results, "below_tried")
    survivors = _total(results, "above_tried") - _total(results, "above_lost")
    test = all_of([search_test(lost, tried, HALF), search_test(survivors, _total(results, "above_tried"), "the same")])
    return f"{lost} of {tried} lost below {LEAST}, {survivors} kept at {MOST} and above", test


@claim(
    f"with a ratio larger than {LEAST} the update becomes zero, which cannot be recovered",
    f"all updates with ratios up to {MOST} are also lost",
)
def _lost_ratios(results: list[Result]) -> Measured:
    tried, lost = _total(results, "between_tried"), _total(results, "between_lost")
    test = search_test(tried - lost, tried)
    return (
        f"{100 * (tried - lost) / tried:.0f} % are kept, up to a ratio of {max(run['largest'] for run in results):.0f}",
        test,
    )


def _total(results: list[Result], key: str) -> int:
    return sum(result[key] for result in results)
