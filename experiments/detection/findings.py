"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.detection.jobs import DEVIATION, MEAN
from experiments.detection.problems import PROBLEMS
from experiments.measurement import against_fp32, final, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import (
    HARDLY,
    MATCH,
    POINT,
    all_of,
    compare,
    count_test,
    difference_test,
    fitted_outcome,
    ratio_test,
)

#: The guide's shares of all activation gradients: zeros, and those that FP16 turns into zeros.
ZEROS, LOST = 66.8, 31.0

#: Values up to 2^-25 become zero in FP16: those with smaller exponents, and 2^-25 itself, which is not counted here.
LOWEST = -25

#: Other shares that the paper and the guide print, in percent of all values, by binades; and half of their last digit.
OTHERS, HALF_DIGIT = {(-34, -32): 2, (-24, -23): 2, (-32, -30): 4}, 0.5

#: The share of the values lost without a scale that is still lost under 32K, in percent.
STILL_LOST = 0.1


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training = select(results, kind="training")
    if given := against_fp32(training, PROBLEMS):
        return given
    histograms = {
        problem: [run["gradients"]["activations"] for run in select(training, problem=problem, variant="fp32")]
        for problem in PROBLEMS
    }
    small = select(training, problem="small-gradients")
    return [
        _zeros(histograms["detector"]),
        _lost(histograms["detector"]),
        _needs_a_scale(select(training, problem="detector"), "detector"),
        _needs_a_scale(small, "small-gradients"),
        *(_suffices(small, exponent) for exponent in (3, 15)),
        _saved(small, histograms["small-gradients"]),
        _printed(select(results, kind="printed")),
        _other_shares(),
    ]


def lost_share(histogram: dict[str, int], exponent: int = 0) -> float:
    """Return the percentage of all values that FP16 turns into zeros under a scale of 2^exponent."""
    total = sum(histogram.values())
    lost = sum(count for name, count in histogram.items() if name != "zero" and int(name) + exponent < LOWEST)
    return 100 * lost / total


@claim("two thirds of the activation gradients are zeros", f"{ZEROS} % of all values, within a point")
def _zeros(histograms: list[dict[str, int]]) -> Measured:
    zeros = np.array([100 * each.get("zero", 0) / sum(each.values()) for each in histograms])
    return f"{spread(zeros, 1)} %", difference_test(zeros, ZEROS, above=-POINT, below=POINT)


@claim("a third of the activation gradients become zero in FP16", f"{LOST:.0f} % of all values, within a point")
def _lost(histograms: list[dict[str, int]]) -> Measured:
    lost = np.array([lost_share(each) for each in histograms])
    scaled = np.array([lost_share(each, 3) for each in histograms])
    test = difference_test(lost, LOST, above=-POINT, below=POINT)
    return f"{spread(lost)} %; under a scale of 8 {spread(scaled)} %", test


@claim(
    "small-gradients: a scale of 32K recovers all but 0.1 % of the gradients, and nothing overflows",
    f"of the values lost without a scale less than {STILL_LOST} % are lost; fewer than 1 % of steps overflow",
)
def _saved(results: list[Result], histograms: list[dict[str, int]]) -> Measured:
    still = np.array([100 * lost_share(each, 15) / max(lost_share(each), 1e-30) for each in histograms])
    lost, skipped = np.array([lost_share(each) for each in histograms]), _skipped(results, "scale-15")
    test = all_of([difference_test(still, STILL_LOST, below=0), difference_test(skipped, HARDLY, below=0)])
    return (
        f"{spread(lost, 1)} % of all values are lost without a scale, {spread(still, 3)} % of them under 32K; "
        f"{spread(100 * skipped)} % of steps overflow"
    ), test


def _skipped(results: list[Result], variant: str) -> NDArray[np.float64]:
    runs = sorted(select(results, variant=variant), key=lambda run: run["seed"])
    return np.array([np.mean(run["trace"]["skipped"]) for run in runs])


@claim("{problem}: without a scale the detector does not train in FP16", f"loss / FP32's > {MATCH}")
def _needs_a_scale(results: list[Result], problem: str) -> Measured:
    loss, fp32 = (final(results, problem, each) for each in ("unscaled", "fp32"))
    return f"{spread(loss / fp32, 3)}; {_quality(results, problem, 'unscaled')}", ratio_test(loss, fp32, above=MATCH)


@claim("{problem}: a scale of {scale} suffices to match FP32", f"loss / FP32's within a factor of {MATCH}")
def _suffices(results: list[Result], exponent: int) -> Measured:
    problem, variant = "small-gradients", f"scale-{exponent}"
    loss, fp32 = (final(results, problem, each) for each in (variant, "fp32"))
    test = compare(loss, fp32)
    return (
        f"{spread(loss / fp32, 3)}; {_quality(results, problem, variant)}",
        test,
        {"problem": problem, "scale": 2**exponent},
    )


def _quality(results: list[Result], problem: str, variant: str) -> str:
    found, fp32 = (final(results, problem, each, "offset_error") for each in (variant, "fp32"))
    return f"error of boxes' offsets {spread(found)}, in FP32 {spread(fp32)}"


@claim(
    "the guide's shares: 66.8 % zeros, 5.3 % left in FP16, all but 0.1 % kept under 32K",
    "exponents normal with mean -29 and deviation 4, which were fitted to the 5.3 % and the 0.1 %",
)
def _printed(results: list[Result]) -> Measured:
    kept = {name: np.array([100 * run["kept"][name] for run in results]) for name in results[0]["kept"]}
    return (
        f"{spread(kept['1'])} % left, {spread(kept['8'])} % under 8, {spread(kept['32768'])} % under 32K; "
        "without a scale 27.9 % are lost, not the guide's 31 %"
    ), fitted_outcome()


@claim(
    "the fitted distribution has the shares that it was not fitted to",
    f"2 % from 2^-34 to 2^-32, 2 % from 2^-24 to 2^-23, 4 % from 2^-32 to 2^-30, each within {HALF_DIGIT} points",
)
def _other_shares() -> Measured:
    from scipy.special import ndtr

    shares = {bins: (100 - ZEROS) * float(np.diff(ndtr((np.array(bins) - MEAN) / DEVIATION))[0]) for bins in OTHERS}
    wrong = sum(abs(share - OTHERS[bins]) > HALF_DIGIT for bins, share in shares.items())
    return ", ".join(f"{share:.1f} %" for share in shares.values()), count_test(wrong, len(OTHERS))
