"""Claims, and what a test over seeds says about them.

Runs of one seed see the same data, initial weights and order of samples under every policy, so that values are
compared in pairs: the logarithm of their ratio, or their difference, for each seed. A claim is that the mean lies
inside an open range. It is reproduced if the 95 % interval of the mean (Student's t) lies inside, not reproduced if the
interval lies outside, and inconclusive if it does neither: with one seed, always.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: How surely an interval holds the mean.
CONFIDENCE = 0.95

REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE = "reproduced", "not reproduced", "inconclusive"


class Finding(NamedTuple):
    """A claim, what was measured, and what became of the claim by which test; a run too short to say has no verdict."""

    claim: str
    expectation: str
    measured: str
    test: str
    verdict: str | None


class Outcome(NamedTuple):
    """What a test says, and which test it is: its interval and the number of seeds."""

    verdict: str
    text: str


class Interval(NamedTuple):
    """Where a mean lies, with the confidence that was asked for."""

    low: float
    high: float
    seeds: int


def mean_interval(samples: NDArray, confidence: float = CONFIDENCE) -> Interval:
    """Student's t interval of the mean of independent samples.

    One sample says nothing: the interval is everything. An infinite sample, which is what a run that diverged becomes,
    makes the mean infinite; NaN, where the reference diverged, leaves it unknown.
    """
    samples = np.asarray(samples, np.float64)
    n, mean = len(samples), float(np.mean(samples))
    if n < 2 or math.isnan(mean):
        return Interval(-math.inf, math.inf, n)
    if math.isinf(mean):
        return Interval(mean, mean, n)
    # Only the submodule: all of scipy.stats takes a second to import.
    from scipy.special import stdtrit

    reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * float(np.std(samples, ddof=1)) / math.sqrt(n)
    return Interval(mean - reach, mean + reach, n)


def judge(interval: Interval, low: float, high: float) -> str:
    """The verdict on the claim that a mean lies between low and high, these excluded; an infinite one is no limit."""
    if (low < interval.low or low == -math.inf) and (interval.high < high or high == math.inf):
        return REPRODUCED
    if interval.high <= low or high <= interval.low:
        return NOT_REPRODUCED
    return INCONCLUSIVE


def log_ratios(values: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """log(value / reference) for each seed: infinite where the value is NaN, NaN where the reference is not finite."""
    values = np.where(np.isnan(values), np.inf, values)
    reference = np.where(np.isfinite(reference), reference, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values) - np.log(reference)


def ratio_test(values: NDArray, reference: NDArray, *, above: float = -math.inf, below: float = math.inf) -> Outcome:
    """Whether the geometric mean of value / reference lies between `above` and `below`."""
    interval = mean_interval(log_ratios(values, reference))
    low, high = _exp(interval.low), _exp(interval.high)
    text = f"ratio in [{low:.4g}, {high:.4g}]: paired t of logarithms, 95 %, n = {interval.seeds}"
    return Outcome(judge(Interval(low, high, interval.seeds), above, below), text)


def difference_test(
    values: NDArray, reference: NDArray | float, *, above: float = -math.inf, below: float = math.inf
) -> Outcome:
    """Whether the mean of value - reference lies between `above` and `below`."""
    interval = mean_interval(np.asarray(values, np.float64) - reference)
    text = f"difference in [{interval.low:.3g}, {interval.high:.3g}]: paired t, 95 %, n = {interval.seeds}"
    return Outcome(judge(interval, above, below), text)


def joint_test(values: NDArray, *, below: float) -> Outcome:
    """Whether the mean over seeds of values (seeds, times) is below a limit at all times, by joint intervals.

    Each of the t intervals errs with a probability of 5 % / t (Bonferroni).
    """
    times = values.shape[1]
    intervals = [mean_interval(column, 1 - (1 - CONFIDENCE) / times) for column in values.T]
    verdict = worst(judge(interval, -math.inf, below) for interval in intervals)
    highest = max(interval.high for interval in intervals)
    text = f"all intervals end below {highest:.3g}: t, jointly 95 % (Bonferroni, {times} times), n = {len(values)}"
    return Outcome(verdict, text)


def count_test(exceptions: int, cases: int) -> Outcome:
    """Whether a claim without exceptions has none among the cases."""
    verdict = NOT_REPRODUCED if exceptions else REPRODUCED
    return Outcome(verdict, f"{exceptions} exceptions among {cases} cases, no statistics")


def all_of(tests: Sequence[Outcome]) -> Outcome:
    """A claim of several parts: reproduced if every part is, not reproduced if one is not."""
    return Outcome(worst(test.verdict for test in tests), "; ".join(test.text for test in tests))


def worst(verdicts: Iterable[str]) -> str:
    """The verdict on a whole from those on its parts."""
    found = set(verdicts)
    return next((verdict for verdict in (NOT_REPRODUCED, INCONCLUSIVE) if verdict in found), REPRODUCED)


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
