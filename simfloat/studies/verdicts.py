"""Claims, their margins, and the verdicts of a test over seeds.

The one rule for margins, which stands before a claim is tested by it.

A claim whose source names a number is held to that number. What a source says in words is held to these numbers, the
same in every study: who finds a loss 3 % higher no match has one place to say so.

Claims, and what a test over seeds says about them.

Runs of one seed see the same data, initial weights and order of samples under every policy, so that values are
compared in pairs: the logarithm of their ratio, or their difference, for each seed. A test looks where the 95 %
interval of the mean lies (Student's t).

A claim that a mean lies inside an open range is *reproduced* if the interval lies inside, *not reproduced* if it lies
outside, *inconclusive* if it does neither. A claim that one thing is as good as another has the words of a comparison:
*equal* if the interval holds no difference and nothing beyond the margin, *better* or *worse* if it lies to one side of
no difference, *worse within the margin* if that is shown as well, *inconclusive* if it is too wide for any of these.
With one seed everything is inconclusive. What was fitted to the numbers it shows is *fitted*: that is no test.

Claims as functions, and the findings that tests make of them, over all seeds and over the first of them alone.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.common import as_rectangular_array
from simfloat.studies.executors import Result
from simfloat.studies.statistics import (
    CONFIDENCE,
    Interval,
    check_cases,
    mean_interval,
    mean_level,
    share_interval,
    share_level,
)

#: To match, to train as, to suffice, to follow: a ratio of losses or errors within a twentieth.
MATCH = 1.05

#: The same for shares, such as accuracies, in percent: within a point.
POINT = 1.0

#: A law of growth: the exponent within a tenth.
EXPONENT = 0.1

#: About as good, or near: within a factor of two. Far, or by an order of magnitude: by more than a factor of ten.
ABOUT, FAR = 2.0, 10.0

#: Most: more than half. Many, or a large part: more than a tenth. Hardly any: less than a hundredth.
MOST, MANY, HARDLY = 0.5, 0.1, 0.01

#: In every run: an exception is rarer than one run in twenty.
RARE = 0.05


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


#: Numbers of seeds by which a verdict is given as well where there are more: how it came about can then be seen.
FEWER_SEEDS = (5, 10)

#: What a claim's function returns: what was measured, as text, what a test says, and what the claim's braces need more.
Measured = tuple[str, Outcome] | tuple[str, Outcome, Mapping[str, object]]


class Finding(NamedTuple):
    """A claim, what was measured, and what became of the claim by which test; a run too short to say has no verdict.

    `p` is the level of the test at which the verdict would be open, 1 if it is, None where chance has no part in it.
    `earlier` has the verdicts over fewer seeds, by their number.
    """

    claim: str
    expectation: str
    measured: str
    test: str
    verdict: str | None
    p: float | None = None
    earlier: tuple[tuple[int, str | None], ...] = ()


def claim(text: str, expectation: str) -> Callable[[Callable[..., Measured]], Callable[..., Finding]]:
    """Make a function that measures and tests a claim return the finding.

    Braces in both texts, as of `str.format`, are filled with the function's arguments, by their names::

        @claim("{problem}: FP16 trains as FP32 does", "loss / FP32's loss within a factor of 1.05")
        def trains(results, problem):
            fp16, fp32 = losses(results, problem)
            return spread(fp16 / fp32), compare(fp16, fp32)
    """

    def decorate(function: Callable[..., Measured]) -> Callable[..., Finding]:
        signature = inspect.signature(function)

        @wraps(function)
        def finding(*arguments: Any, **named: Any) -> Finding:
            measured, outcome, *more = function(*arguments, **named)
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            words = {**bound.arguments, **(more[0] if more else {})}
            texts = text.format(**words), expectation.format(**words), measured
            return Finding(*texts, outcome.text, outcome.verdict, outcome.p)

        finding.is_claim = True  # type: ignore[attr-defined]
        return finding

    return decorate


def findings_of(
    findings: Callable[[list[Result]], list[Finding]], results: list[Result], tiny: bool = False
) -> list[Finding]:
    """Return a function's findings in the results, each with its verdicts over fewer seeds; a tiny run has none."""
    all_findings = findings(results)
    if tiny:
        return [
            Finding(*finding[:3], test="none: a tiny run decides nothing", verdict=None) for finding in all_findings
        ]
    seeds = sorted({result["seed"] for result in results if "seed" in result})
    seed_counts = [number for number in FEWER_SEEDS if number < len(seeds)]
    earlier = [findings(first_seeds(results, seeds[:number])) for number in seed_counts]
    return [
        finding._replace(earlier=tuple(zip(seed_counts, (each.verdict for each in same), strict=True)))
        for finding, *same in zip(all_findings, *earlier, strict=True)
    ]


def first_seeds(results: Sequence[Result], seeds: Sequence[int]) -> list[Result]:
    """The results from these seeds, and those that need none."""
    return [result for result in results if result.get("seed", seeds[0]) in seeds]


def verdict_text(finding: Finding) -> str:
    """The verdict, and those over fewer seeds where one of them is another."""
    verdict = finding.verdict or "none"
    if {verdict for _, verdict in finding.earlier} <= {finding.verdict}:
        return verdict
    before = ", ".join(f"{earlier} with {number}" for number, earlier in finding.earlier)
    return f"{verdict} ({before} seeds)"
