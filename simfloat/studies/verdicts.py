"""Claims, and what a test over seeds says about them.

Runs of one seed see the same data, initial weights and order of samples under every policy, so that values are
compared in pairs: the logarithm of their ratio, or their difference, for each seed. A test looks where the 95 %
interval of the mean lies (Student's t).

A claim that a mean lies inside an open range is *reproduced* if the interval lies inside, *not reproduced* if it lies
outside, *inconclusive* if it does neither. A claim that one thing is as good as another has the words of a comparison:
*equal* if the interval holds no difference and nothing beyond the margin, *better* or *worse* if it lies to one side of
no difference, *worse within the margin* if that is shown as well, *inconclusive* if it is too wide for any of these.
With one seed everything is inconclusive. What was fitted to the numbers it shows is *fitted*: that is no test.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.checks import as_rectangular_array
from simfloat.studies.intervals import (
    CONFIDENCE,
    Interval,
    check_cases,
    mean_interval,
    mean_level,
    share_interval,
    share_level,
)
from simfloat.studies.margins import MATCH, POINT, RARE

REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE = "reproduced", "not reproduced", "inconclusive"
EQUAL, WITHIN, WORSE, BETTER = "equal", "worse within the margin", "worse", "better"
FITTED = "fitted"

#: From the worst on: of several parts, the first of these that one has is the verdict on the whole.
RANKS = (NOT_REPRODUCED, WORSE, INCONCLUSIVE, FITTED, WITHIN, EQUAL, BETTER, REPRODUCED)

#: The largest x whose e^x is a float64.
LARGEST = math.log(sys.float_info.max)

#: Verdicts for which one part is enough.
REFUTED = (NOT_REPRODUCED, WORSE)


class Outcome(NamedTuple):
    """The verdict of a test, the test in words (its interval and the number of cases), and its level."""

    verdict: str
    text: str
    p: float | None = None


def judge(interval: Interval, low: float, high: float) -> str:
    """The verdict on the claim that a mean lies between low and high, these excluded; an infinite one is no limit."""
    if (low < interval.low or low == -math.inf) and (interval.high < high or high == math.inf):
        return REPRODUCED
    if interval.high <= low or high <= interval.low:
        return NOT_REPRODUCED
    return INCONCLUSIVE


def comparison_word(interval: Interval, margin: float) -> str:
    """The word for a difference of which more is worse, by where its interval lies."""
    inside = -margin < interval.low and interval.high < margin
    if interval.low > 0:
        return WITHIN if inside else WORSE
    if interval.high < 0:
        return BETTER
    return EQUAL if inside else INCONCLUSIVE


def log_ratios(values: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """log(value / reference) for each seed: infinite where the value is NaN, NaN where the reference is not finite.

    Raises ValueError if there is not one of the reference, or one for each value.
    """
    values, reference = _pairs(values, reference)
    values = np.where(np.isnan(values), np.inf, values)
    reference = np.where(np.isfinite(reference), reference, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values) - np.log(reference)


def differences(values: NDArray | float, reference: NDArray | float) -> NDArray[np.float64]:
    """value - reference for each seed: NaN where the value is, and where the reference is not finite.

    Raises ValueError where `log_ratios` does.
    """
    values, reference = _pairs(values, reference)
    with np.errstate(over="ignore"):
        return values - np.where(np.isfinite(reference), reference, np.nan)


def _pairs(values: NDArray | float, reference: NDArray | float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = as_rectangular_array(values, "values", np.float64)
    reference = as_rectangular_array(reference, "reference", np.float64)
    if values.shape != reference.shape and values.ndim and reference.ndim:
        raise ValueError(f"Values of shape {values.shape} and a reference of shape {reference.shape} are no pairs.")
    return values, reference


def ratio_test(values: NDArray, reference: NDArray, *, above: float = 0, below: float = math.inf) -> Outcome:
    """Whether the geometric mean of value / reference lies between `above` and `below`."""
    samples = log_ratios(values, reference)
    return _range_test(samples, _log(above), _log(below), _ratio_text(mean_interval(samples)))


def difference_test(
    values: NDArray, reference: NDArray | float, *, above: float = -math.inf, below: float = math.inf
) -> Outcome:
    """Whether the mean of value - reference lies between `above` and `below`."""
    samples = differences(values, reference)
    return _range_test(samples, above, below, _difference_text(mean_interval(samples)))


def compare(values: NDArray, reference: NDArray, *, margin: float = MATCH) -> Outcome:
    """How values of which less is better, as losses and errors, stand beside their reference: by their ratio."""
    if not 1 < margin < math.inf:
        raise ValueError(f"margin is a factor of more than 1, such as {MATCH}; got {margin!r}.")
    samples = log_ratios(values, reference)
    return _comparison(samples, math.log(margin), _ratio_text(mean_interval(samples)))


def compare_shares(values: NDArray, reference: NDArray, *, margin: float = POINT) -> Outcome:
    """How values of which more is better, as accuracies in percent, stand beside their reference: by the shortfall.

    A value that is NaN is infinitely bad.
    """
    comparable = np.where(np.isnan(values), -np.inf, values)
    return compare_shortfall(0 - differences(comparable, reference), margin)


def compare_shortfall(samples: NDArray, margin: float) -> Outcome:
    """Judge differences of which more is worse, by a margin."""
    if not 0 < margin < math.inf:
        raise ValueError(f"margin is a number above 0, the largest difference that does not matter; got {margin!r}.")
    return _comparison(samples, margin, f"shortfall: {_difference_text(mean_interval(samples))}")


def joint_test(values: NDArray, *, below: float) -> Outcome:
    """Whether the mean over seeds of values (seeds, times) is below a limit at all times, by joint intervals.

    Each of the t intervals errs with a probability of 5 % / t (Bonferroni).
    """
    values = as_rectangular_array(values, "values", np.float64)
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError(f"A joint test takes an array (seeds, times), got shape {values.shape}.")
    times = values.shape[1]
    intervals = [mean_interval(column, 1 - (1 - CONFIDENCE) / times) for column in values.T]
    verdicts = [judge(interval, -math.inf, below) for interval in intervals]
    levels = [mean_level(column, below) for column in values.T]
    verdict = worst_verdict(verdicts)
    chosen = {REPRODUCED: max(levels), NOT_REPRODUCED: min(levels)}.get(verdict, 1.0)
    highest = max(interval.high for interval in intervals)
    text = f"all intervals end below {highest:.3g}: t, jointly 95 % (Bonferroni, {times} times), n = {len(values)}"
    return Outcome(verdict, text, min(1.0, times * chosen))


def every_test(exceptions: int, cases: int) -> Outcome:
    """Whether something holds in every run, of which independent cases were tried.

    One exception refutes it. Without any it is reproduced if the 95 % interval of the probability of an exception
    (Clopper-Pearson) ends below one run in twenty, which takes 72 cases; until then it holds in all that were tried.
    """
    low, high, _ = share_interval(exceptions, cases)
    if exceptions:
        text = f"{exceptions} exceptions among {cases} cases: in {_percent(low)} to {_percent(high)} % of all"
        return Outcome(NOT_REPRODUCED, f"{text}, Clopper-Pearson, 95 %")
    text = f"in all {cases} cases tried: exceptions in fewer than {_percent(high)} %, Clopper-Pearson, 95 %"
    if high < RARE:
        return Outcome(REPRODUCED, text, share_level(0, cases, RARE))
    return Outcome(INCONCLUSIVE, text, 1.0)


def count_test(exceptions: int, cases: int) -> Outcome:
    """Whether a claim without exceptions has none among all cases that there are; without a case that is open."""
    check_cases(exceptions, cases)
    verdict = NOT_REPRODUCED if exceptions else REPRODUCED if cases else INCONCLUSIVE
    return Outcome(verdict, f"{exceptions} exceptions among {cases} cases, which are all")


def fitted_outcome() -> Outcome:
    """The status of a model that was fitted to the numbers it shows."""
    return Outcome(FITTED, "none: fitted to the numbers that it shows")


def all_of(tests: Sequence[Outcome]) -> Outcome:
    """A claim of several parts: it stands as its worst part does.

    Where every part is needed its level is the greatest of theirs; where one is enough, the least, times their number.
    """
    if not tests:
        raise ValueError("A claim of several parts needs tests of them, got none.")
    verdict = worst_verdict([test.verdict for test in tests])
    levels = [test.p for test in tests if test.p is not None and (verdict not in REFUTED or test.verdict == verdict)]
    p = None if not levels else min(1.0, len(tests) * min(levels)) if verdict in REFUTED else max(levels)
    return Outcome(verdict, "; ".join(test.text for test in tests), p)


def worst_verdict(verdicts: Sequence[str]) -> str:
    """The verdict on a whole from those on its parts."""
    return min(verdicts, key=RANKS.index)


def _range_test(samples: NDArray, low: float, high: float, text: str) -> Outcome:
    interval = mean_interval(samples)
    verdict = judge(interval, low, high)
    levels = [mean_level(samples, limit) for limit in (low, high) if math.isfinite(limit)]
    # Inside the range both limits count; outside of it the nearer one, which has the greater level as well.
    return Outcome(verdict, text, 1.0 if verdict == INCONCLUSIVE else max(levels, default=0.0))


def _comparison(samples: NDArray, margin: float, text: str) -> Outcome:
    word, p = comparison_of(samples, margin)
    return Outcome(word, text, p)


def comparison_of(samples: NDArray, margin: float) -> tuple[str, float]:
    """The word for differences of which more is worse, and the level at which the verdict would be open."""
    word = comparison_word(mean_interval(samples), margin)
    limits = {EQUAL: (-margin, margin), WITHIN: (0.0, margin), WORSE: (0.0,), BETTER: (0.0,)}.get(word)
    return word, 1.0 if limits is None else max(mean_level(samples, limit) for limit in limits)


def _ratio_text(interval: Interval) -> str:
    low, high = exponential(interval.low), exponential(interval.high)
    return f"ratio in [{low:.4g}, {high:.4g}]: paired t of logarithms, 95 %, n = {interval.cases}"


def _difference_text(interval: Interval) -> str:
    return f"difference in [{interval.low:.3g}, {interval.high:.3g}]: paired t, 95 %, n = {interval.cases}"


def _percent(share: float) -> str:
    """Two digits, and three of what is near all."""
    return f"{100 * share:.3g}" if share > 0.99 else f"{100 * share:.2g}"


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def exponential(x: float) -> float:
    """e^x, infinite beyond float64."""
    return math.inf if x > LARGEST else math.exp(x)
