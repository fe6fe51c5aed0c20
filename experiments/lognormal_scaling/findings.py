"""The claims, and their tests."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.lognormal_scaling.jobs import MOST_STEPS, WINDOW
from experiments.lognormal_scaling.problems import PROBLEMS
from experiments.measurement import against_fp32, final, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.statistics import median_interval, sign_level
from simfloat.studies.verdicts import (
    ABOUT,
    FAR,
    MOST,
    REPRODUCED,
    Outcome,
    all_of,
    compare,
    difference_test,
    judge,
)

#: The default share of steps that may overflow.
RARE = 0.001

#: The margin of losses, as in dynamic-scale: less than half of what skipping one step in eight costs there.
CLOSE = 1.02

#: The upper limit of the scale in the code of LogNormal: when the page was written (scale_max = 2^24 in commit 2383d5d
#: of automatic_loss_scaler.py), and later.
FIRST_LIMIT, LIMIT = 2.0**24, 2.0**14

#: A distribution is called symmetric if its skewness is within this of 0.
SYMMETRIC = 0.5


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training = select(results, kind="training")
    if found := against_fp32(training, PROBLEMS):
        return found
    return [
        _overflows_are_rare(training, select(results, kind="long")),
        _backoff_overflows_once_a_window(training),
        _backoff_is_larger(training),
        _backoff_leaves_nothing(training),
        _both_match(training),
        _is_log_normal(training),
        _statistics_choose(training),
        _limit_chooses(training),
        _follows_the_range(training),
        _gradients_shrink(training),
        _overflow_pins(select(results, kind="overflow")),
    ]


def traces(results: list[Result], variant: str, key: str) -> NDArray[np.float64]:
    """Return a value of every step of the runs (seeds, steps)."""
    runs = sorted(select(results, variant=variant), key=lambda run: run["seed"])
    return np.array([run["trace"][key] for run in runs], np.float64)


def second_half(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the second half of the steps, when a rule has found its scale."""
    return values[:, values.shape[1] // 2 :]


def room(results: list[Result], variant: str) -> NDArray[np.float64]:
    """Return the median number of bits between the largest scaled gradient and FP16's maximum, for every seed."""
    scaled = second_half(traces(results, variant, "scale") * traces(results, variant, "largest"))
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = np.log2(sf.FP16.max / scaled)
    return np.nanmedian(np.where(np.isfinite(bits), bits, np.nan), axis=1)


@claim(
    "LogNormal: the largest gradient overflows with a probability below 0.001",
    f"median over runs of skipped steps / all steps < {RARE}",
)
def _overflows_are_rare(results: list[Result], long: list[Result]) -> Measured:
    skipped = {variant: traces(results, variant, "skipped") for variant in ("log-normal", "default", "backoff")}
    percent = {variant: 100 * values.mean() for variant, values in skipped.items()}
    # A long run begins with the steps of the short run of its seed.
    count, steps = (sum(run[key] for run in long) for key in ("skipped", "steps"))
    text = f"with the default limit {percent['default']:.2f} %, Backoff {percent['backoff']:.2f} %"
    shares = np.array([run["skipped"] / run["steps"] for run in long])
    interval, above = median_interval(shares), int((shares >= RARE).sum())
    runs = f"below {RARE} in {len(shares) - above} of {len(shares)} runs"
    test = f"{runs}: one-sided sign test, because the steps of a run are not independent, n = {len(shares)}"
    verdict = judge(interval, -math.inf, RARE)
    level = sign_level(above, len(shares)) if verdict == REPRODUCED else 1.0
    return f"{count} of {steps} steps; {text}", Outcome(verdict, test, level)


@claim(
    f"Backoff: after the start a step overflows about once in a window of {WINDOW}",
    f"once in a window within a factor of {ABOUT:g}, second half of the steps",
)
def _backoff_overflows_once_a_window(results: list[Result]) -> Measured:
    share = WINDOW * second_half(traces(results, "backoff", "skipped")).mean(axis=1)
    start = traces(results, "backoff", "skipped")[:, :WINDOW].sum(axis=1)
    test = difference_test(share, 0, above=1 / ABOUT, below=ABOUT)
    return f"{spread(share)}; {spread(start, 1)} in the first window", test


@claim(
    "Backoff keeps the scale as large as possible",
    "fewer bits left above the largest scaled gradient than with LogNormal",
)
def _backoff_is_larger(results: list[Result]) -> Measured:
    backoff, log_normal = room(results, "backoff"), room(results, "log-normal")
    test = difference_test(backoff, log_normal, below=0)
    return (
        f"Backoff {spread(backoff, 1)} bits, LogNormal {spread(log_normal, 1)}, as it comes "
        f"{spread(room(results, 'default'), 1)} (medians of steps)"
    ), test


@claim("Backoff leaves no room for a larger scale", "fewer than 1 bit left above the largest scaled gradient")
def _backoff_leaves_nothing(results: list[Result]) -> Measured:
    backoff = room(results, "backoff")
    return f"{spread(backoff, 1)} bits, median of steps", difference_test(backoff, 1, below=0)


@claim("both rules train as well as FP32", f"loss / FP32's loss within a factor of {CLOSE}")
def _both_match(results: list[Result]) -> Measured:
    fp32 = final(results, "digits", "fp32")
    rules = ("backoff", "log-normal", "default")
    losses = {rule: final(results, "digits", rule) for rule in rules}
    test = all_of([compare(loss, fp32, margin=CLOSE) for loss in losses.values()])
    return ", ".join(f"{rule} {spread(loss / fp32, 3)}" for rule, loss in losses.items()), test


@claim(
    "LogNormal: the logarithm of the largest gradient is normally distributed",
    f"skewness in the second half of the steps within {SYMMETRIC} of 0",
)
def _is_log_normal(results: list[Result]) -> Measured:
    logs = np.log2(second_half(traces(results, "log-normal", "largest")))
    skewness = np.array([_skewness(run[np.isfinite(run)]) for run in logs])
    return f"skewness {spread(skewness)}", difference_test(skewness, 0, above=-SYMMETRIC, below=SYMMETRIC)


def _skewness(values: NDArray[np.float64]) -> float:
    standard = (values - values.mean()) / values.std()
    return float(np.mean(standard**3))


@claim(
    "LogNormal with the limit that the code had when the page was written: statistics choose the scale",
    f"below the limit of 2^24 in more than {MOST:.0%} of the steps",
)
def _statistics_choose(results: list[Result]) -> Measured:
    return _below(results, "log-normal", FIRST_LIMIT)


@claim(
    "LogNormal with the limit of later code: statistics choose the scale",
    f"below the limit of 2^14 in more than {MOST:.0%} of the steps",
)
def _limit_chooses(results: list[Result]) -> Measured:
    return _below(results, "default", LIMIT)


def _below(results: list[Result], variant: str, limit: float) -> Measured:
    inside = (traces(results, variant, "scale") < limit).mean(axis=1)
    return f"in {spread(100 * inside, 1)} % of the steps", difference_test(inside, MOST, above=0)


@claim(
    "Backoff adjusts the scale to a shifting range",
    f"correlation of scale and largest gradient, by logarithms and windows of {WINDOW} steps, < 0",
)
def _follows_the_range(results: list[Result]) -> Measured:
    scale, largest = (traces(results, "backoff", key) for key in ("scale", "largest"))
    size = min(WINDOW, scale.shape[1] // 10)
    known = np.where(np.isfinite(largest), largest, np.nan)
    largest = np.where(np.isnan(known), np.nanmin(known, axis=1, keepdims=True), known)
    windows = [np.log2(values)[:, size:].reshape(len(values), -1, size) for values in (scale, largest)]
    pairs = zip(windows[0].mean(axis=2), windows[1].max(axis=2), strict=True)
    with np.errstate(invalid="ignore", divide="ignore"):  # in a tiny run the scale may not move
        correlation = np.array([np.corrcoef(*pair)[0, 1] for pair in pairs])
    return spread(correlation), difference_test(correlation, 0, below=0)


@claim("gradients are smaller late in training", "binades of the largest gradient: last fifth - first fifth < 0")
def _gradients_shrink(results: list[Result]) -> Measured:
    logs = np.log2(traces(results, "log-normal", "largest"))
    logs[~np.isfinite(logs)] = np.nan
    fifth = logs.shape[1] // 5
    late, early = np.nanmean(logs[:, -fifth:], axis=1), np.nanmean(logs[:, :fifth], axis=1)
    return f"{spread(late - early)} binades", difference_test(late, early, below=0)


@claim(
    "LogNormal: one overflow, which the code counts as 2^16 instead of its logarithm, does not keep the scale low",
    f"fewer than {FAR:g} times the steps at a scale of 1 that the logarithm causes",
)
def _overflow_pins(results: list[Result]) -> Measured:
    number, logarithm = (np.array([result[name] for result in results]) for name in ("number", "logarithm"))
    test = difference_test(number, FAR * (logarithm + 1), below=0)
    return (
        f"at 1 for {spread(number, 0)} steps (at most {MOST_STEPS} were tried); the logarithm {spread(logarithm, 0)}",
        test,
    )
