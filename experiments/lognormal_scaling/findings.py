"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.lognormal_scaling.jobs import MOST_STEPS, WINDOW
from experiments.lognormal_scaling.problems import PROBLEMS
from experiments.measurement import against_fp32, final, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, FAR, MATCH, MOST, all_of, compare, difference_test

#: The default share of steps that may overflow.
RARE = 0.001

#: The default upper limit of the scale in the code of LogNormal.
LIMIT = 2.0**14


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training = select(results, kind="training")
    if found := against_fp32(training, PROBLEMS):
        return found
    return [
        _overflows_are_rare(training),
        _backoff_overflows_once_a_window(training),
        _backoff_is_larger(training),
        _both_match(training),
        _statistics_choose(training),
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
    f"share of steps that are skipped < {RARE}",
)
def _overflows_are_rare(results: list[Result]) -> Measured:
    skipped = {variant: traces(results, variant, "skipped") for variant in ("log-normal", "default", "backoff")}
    shares = {variant: values.mean(axis=1) for variant, values in skipped.items()}
    test = difference_test(shares["log-normal"], RARE, below=0)
    steps = skipped["log-normal"].size
    return (
        f"{spread(100 * shares['log-normal'], 2)} % of {steps} steps; with the default limit "
        f"{spread(100 * shares['default'], 2)} %; Backoff {spread(100 * shares['backoff'], 2)} %"
    ), test


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


@claim("both rules train as well as FP32", f"loss / FP32's loss within a factor of {MATCH}")
def _both_match(results: list[Result]) -> Measured:
    fp32 = final(results, "digits", "fp32")
    rules = ("backoff", "log-normal", "default")
    losses = {rule: final(results, "digits", rule) for rule in rules}
    test = all_of([compare(loss, fp32) for loss in losses.values()])
    return ", ".join(f"{rule} {spread(loss / fp32, 3)}" for rule, loss in losses.items()), test


@claim(
    "LogNormal with the limits of the code: statistics choose the scale",
    f"below the limit of {LIMIT:.0f} in more than half of the steps",
)
def _statistics_choose(results: list[Result]) -> Measured:
    inside = (traces(results, "default", "scale") < LIMIT).mean(axis=1)
    return f"in {spread(100 * inside, 1)} % of the steps", difference_test(inside, MOST, above=0)


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
