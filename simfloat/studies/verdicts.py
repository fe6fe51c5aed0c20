"""Claims, their margins, and the verdicts of tests over seeds.

The margins are fixed before a claim is tested. A claim with a number from its source is tested against that number. A
claim in words is tested against the constants below, which are the same in every study.

Runs with one seed have the same data, initial weights and order of samples under every policy. Values are therefore
compared in pairs, by the logarithm of their ratio or by their difference for each seed. A test uses the 95 % interval
of the mean (Student's t). If all runs have the same finite value, there is no spread and no level.

If a run diverges, the mean has no interval; then the test uses the interval of the median (sign test, 5 % on each side,
which takes five pairs), whose level is one-sided. A diverged run is outside of every margin: it excludes "equal",
"worse within the margin", and "reproduced" below a limit. If the median decides nothing, the numbers of diverged runs
may decide a comparison, by McNemar's exact test with twice its level, as it is the second test.

If exactly one value of a pair is 0, their ratio has no finite logarithm, although no run diverged. The same rules
apply: such a pair is outside of every margin, and a ratio of 0 excludes "reproduced" above a limit.

A claim that a mean is inside an open range is "reproduced" if the interval is inside, "not reproduced" if it is
outside, and "inconclusive" otherwise. A comparison has these verdicts:

* "better": all of the interval is better than the reference;
* "worse": all of it is worse, and it reaches beyond the margin;
* "worse within the margin": all of it is worse, and it is inside the margin;
* "equal": it contains the ratio 1, or the difference 0, and is inside the margin;
* "inconclusive": otherwise.

With one seed everything is "inconclusive". A model that was fitted to the numbers that it shows is "fitted", which is
not a test.

`claim` makes a function return a `Finding`; `findings_of` adds the verdicts over fewer seeds.
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
    median_interval,
    share_interval,
    share_level,
    sign_level,
)

#: "Matches", "trains like", "suffices", "follows": the ratio of losses or errors is within a twentieth.
MATCH = 1.05

#: The same for shares in percent, such as accuracies: the difference is within one point.
POINT = 1.0

#: A growth law: the exponent is within a tenth.
EXPONENT = 0.1

#: "About as good", "near": within a factor of two. "Far", "by an order of magnitude": by more than a factor of ten.
ABOUT, FAR = 2.0, 10.0

#: "Most": more than half. "Many", "a large part": more than a tenth. "Hardly any": less than a hundredth.
MOST, MANY, HARDLY = 0.5, 0.1, 0.01

#: "In every run": exceptions are rarer than one run in twenty.
RARE = 0.05


REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE = "reproduced", "not reproduced", "inconclusive"
EQUAL, WITHIN, WORSE, BETTER = "equal", "worse within the margin", "worse", "better"
FITTED = "fitted"

#: Verdicts from the worst to the best: the verdict on a whole is the worst verdict on its parts.
RANKS = (NOT_REPRODUCED, WORSE, INCONCLUSIVE, FITTED, WITHIN, EQUAL, BETTER, REPRODUCED)

#: The largest x for which e^x does not overflow in float64.
LARGEST = math.log(sys.float_info.max)

#: The usual pairs that McNemar's exact test counts.
DIVERGED = "diverged runs"

#: Verdicts on a whole that follow from a single part.
REFUTED = (NOT_REPRODUCED, WORSE)


class Outcome(NamedTuple):
    """The verdict of a test, the test in words (its interval and the number of cases), and its level."""

    verdict: str
    text: str
    p: float | None = None


def judge(interval: Interval, low: float, high: float) -> str:
    """Return the verdict on the claim that a mean is strictly between low and high; an infinite bound is no limit."""
    if (low < interval.low or low == -math.inf) and (interval.high < high or high == math.inf):
        return REPRODUCED
    if interval.high <= low or high <= interval.low:
        return NOT_REPRODUCED
    return INCONCLUSIVE


def comparison_word(interval: Interval, margin: float) -> str:
    """Return the verdict on a difference, of which a larger value is worse, from its interval."""
    inside = -margin < interval.low and interval.high < margin
    if interval.low > 0:
        return WITHIN if inside else WORSE
    if interval.high < 0:
        return BETTER
    return EQUAL if inside else INCONCLUSIVE


def log_ratios(values: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """Return log(value / reference) for each seed: infinite if the value is NaN, NaN if the reference is not finite.

    Raises ValueError if the reference has neither one value nor a value for each seed.
    """
    values, reference = _pairs(values, reference)
    values = np.where(np.isnan(values), np.inf, values)
    reference = np.where(np.isfinite(reference), reference, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values) - np.log(reference)


def differences(values: NDArray | float, reference: NDArray | float) -> NDArray[np.float64]:
    """Return value - reference for each seed: NaN if the value is NaN or the reference is not finite.

    Raises ValueError if the reference has neither one value nor a value for each seed.
    """
    values, reference = _pairs(values, reference)
    with np.errstate(over="ignore"):
        return values - np.where(np.isfinite(reference), reference, np.nan)


def _pairs(values: NDArray | float, reference: NDArray | float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = as_rectangular_array(values, "values", np.float64)
    reference = as_rectangular_array(reference, "reference", np.float64)
    if values.shape != reference.shape and values.ndim and reference.ndim:
        raise ValueError(f"Values of shape {values.shape} and a reference of shape {reference.shape} are not pairs.")
    return values, reference


def ratio_test(values: NDArray, reference: NDArray, *, above: float = 0, below: float = math.inf) -> Outcome:
    """Test if the geometric mean of value / reference is between `above` and `below`."""
    samples = log_ratios(values, reference)
    return _range_test(samples, _log(above), _log(below), _ratio_text(samples, _count_zeros(samples, values)))


def difference_test(
    values: NDArray, reference: NDArray | float, *, above: float = -math.inf, below: float = math.inf
) -> Outcome:
    """Test if the mean of value - reference is between `above` and `below`."""
    samples = differences(values, reference)
    return _range_test(samples, above, below, _difference_text(samples))


def compare(values: NDArray, reference: NDArray, *, margin: float = MATCH) -> Outcome:
    """Compare values of which smaller is better, such as losses and errors, with a reference, by their ratio."""
    if not 1 < margin < math.inf:
        raise ValueError(f"margin must be a factor above 1, such as {MATCH}; got {margin!r}.")
    samples = log_ratios(values, reference)
    zeros = _count_zeros(samples, values)
    return _comparison(samples, math.log(margin), _ratio_text(samples, zeros), "infinite ratios" if zeros else DIVERGED)


def compare_shares(values: NDArray, reference: NDArray, *, margin: float = POINT) -> Outcome:
    """Compare values of which larger is better, such as accuracies in percent, with a reference, by their shortfall.

    A value that is NaN counts as infinitely bad.
    """
    comparable = np.where(np.isnan(values), -np.inf, values)
    return compare_shortfall(0 - differences(comparable, reference), margin)


def compare_shortfall(samples: NDArray, margin: float) -> Outcome:
    """Judge differences, of which larger is worse, by a margin."""
    if not 0 < margin < math.inf:
        raise ValueError(f"margin must be above 0: the largest difference that does not matter; got {margin!r}.")
    return _comparison(samples, margin, f"shortfall: {_difference_text(samples)}")


def joint_test(values: NDArray, *, below: float) -> Outcome:
    """Test if the mean over seeds of values (seeds, times) is below a limit at all times, by joint intervals.

    Each of the t intervals has an error probability of 5 % / t (Bonferroni). Only the times that refute the claim
    give the level of a refutation.
    """
    values = as_rectangular_array(values, "values", np.float64)
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError(f"A joint test takes an array (seeds, times), got shape {values.shape}.")
    times = values.shape[1]
    intervals = [interval_of(column, error=(1 - CONFIDENCE) / times) for column in values.T]
    words = [judge(interval, -math.inf, below) for interval in intervals]
    worst = worst_verdict(words)
    verdict = _inconclusive_if_infinite(worst, values, -math.inf, below)
    highest = max(interval.high for interval in intervals)
    method = "t, or the one-sided sign test after a divergence" if any(map(_has_no_mean, values.T)) else "t"
    text = (
        f"all intervals end below {highest:.3g}: {method}, jointly 95 % (Bonferroni, {times} times), n = {len(values)}"
    )
    every_level = [_level(column, below) for column, word in zip(values.T, words, strict=True) if word == worst]
    levels = [level for level in every_level if level is not None]
    if len(levels) < len(every_level):
        return Outcome(verdict, text)  # a time at which all seeds agree has no level
    chosen = {REPRODUCED: max(levels), NOT_REPRODUCED: min(levels)}.get(verdict, 1.0)
    return Outcome(verdict, text, min(1.0, times * chosen))


def every_test(exceptions: int, cases: int) -> Outcome:
    """Test if a property is true in every run, from a number of independent cases.

    One exception refutes it. Without exceptions, it is reproduced if the 95 % interval of the probability of an
    exception (Clopper-Pearson) ends below one in twenty, which requires 72 cases. With fewer cases it is inconclusive.
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
    """Judge a claim without exceptions from all existing cases; without a case it is inconclusive."""
    check_cases(exceptions, cases)
    verdict = NOT_REPRODUCED if exceptions else REPRODUCED if cases else INCONCLUSIVE
    return Outcome(verdict, f"{exceptions} exceptions among {cases} cases, which are all")


def search_test(counterexamples: int, cases: int, proof: str = "") -> Outcome:
    """Judge a universal claim by a search for counterexamples: one refutes it, and only a proof confirms it."""
    check_cases(counterexamples, cases)
    verdict = NOT_REPRODUCED if counterexamples else REPRODUCED if proof and cases else INCONCLUSIVE
    text = f"counterexamples: {counterexamples} of {cases} cases, not a random sample"
    return Outcome(verdict, text + (f"; proof: {proof}" if proof else ""))


def share_test(occurrences: int, cases: int, *, below: float) -> Outcome:
    """Test if a probability is below a limit, by the interval of Clopper and Pearson."""
    low, high, _ = interval = share_interval(occurrences, cases)
    verdict = judge(interval, -math.inf, below)
    levels = {
        REPRODUCED: share_level(occurrences, cases, below),
        NOT_REPRODUCED: share_level(cases - occurrences, cases, 1 - below),
    }
    text = f"{occurrences} among {cases} cases: probability in [{low:.2g}, {high:.2g}], Clopper-Pearson, 95 %"
    return Outcome(verdict, text, levels.get(verdict, 1.0))


def fitted_outcome() -> Outcome:
    """Return the outcome for a model that was fitted to the numbers that it shows."""
    return Outcome(FITTED, "none: fitted to the numbers that it shows")


def all_of(tests: Sequence[Outcome]) -> Outcome:
    """Combine the tests of a claim's parts; the worst part gives the verdict.

    If every part is needed, the level is the largest level of the parts. If one part is enough, its level is multiplied
    by the number of parts (Bonferroni), and a part for which that is above 5 % refutes nothing. If no other part
    refutes the claim, it is inconclusive. If a part refutes it without a level, chance plays no role.
    """
    if not tests:
        raise ValueError("The list of tests is empty; a claim of several parts needs one test for each.")
    verdict, text = worst_verdict([test.verdict for test in tests]), "; ".join(test.text for test in tests)
    if verdict not in REFUTED:
        return Outcome(verdict, text, max((test.p for test in tests if test.p is not None), default=None))
    refuting = [
        test for test in tests if test.verdict in REFUTED and (test.p is None or len(tests) * test.p <= 1 - CONFIDENCE)
    ]
    if not refuting:
        return Outcome(INCONCLUSIVE, text, 1.0)
    verdict = worst_verdict([test.verdict for test in refuting])
    levels = [test.p for test in refuting if test.verdict == verdict]
    known = [level for level in levels if level is not None]
    return Outcome(verdict, text, len(tests) * min(known) if len(known) == len(levels) else None)


def worst_verdict(verdicts: Sequence[str]) -> str:
    """Return the verdict on a whole from the verdicts on its parts."""
    return min(verdicts, key=RANKS.index)


def _range_test(samples: NDArray, low: float, high: float, text: str) -> Outcome:
    verdict = _inconclusive_if_infinite(judge(interval_of(samples), low, high), samples, low, high)
    levels = [_level(samples, limit) for limit in (low, high) if math.isfinite(limit)]
    if None in levels:
        return Outcome(verdict, text)
    # If the mean is inside the range, it must be away from both limits, so the larger level counts. If it is outside,
    # only the nearer limit counts, and its level is also the larger one.
    known = [level for level in levels if level is not None]
    return Outcome(verdict, text, 1.0 if verdict == INCONCLUSIVE else max(known, default=0.0))


def _inconclusive_if_infinite(verdict: str, samples: NDArray, low: float, high: float) -> str:
    """Return the verdict; "inconclusive" if it is that samples are in a range, and one is infinitely far outside."""
    above, below = bool(np.isposinf(samples).any()), bool(np.isneginf(samples).any())
    outside = (above and math.isfinite(high)) or (below and math.isfinite(low))
    return INCONCLUSIVE if verdict == REPRODUCED and outside else verdict


def _comparison(samples: NDArray, margin: float, text: str, counted: str = DIVERGED) -> Outcome:
    word, p = comparison_of(samples, margin)
    by_divergences = word in (WORSE, BETTER) and word != comparison_word(interval_of(samples), margin)
    return Outcome(word, f"{text}; McNemar's exact test of the {counted}" if by_divergences else text, p)


def _limits(word: str, margin: float) -> tuple[float, ...]:
    """Return the differences that are outside of the interval if the comparison has this verdict."""
    return {EQUAL: (-margin, margin), WITHIN: (0.0, margin), WORSE: (0.0,), BETTER: (0.0,)}.get(word, ())


def comparison_of(samples: NDArray, margin: float, diverged: bool | None = None) -> tuple[str, float | None]:
    """Return the verdict for differences (larger is worse) and its level; equal differences have no level.

    `diverged` is True if a run diverged; by default, if a difference is inf. A pair with an infinite difference is
    outside of every margin, also if no run diverged.
    """
    word = comparison_word(interval_of(samples, diverged), margin)
    if _has_no_mean(samples, diverged) and word not in (WORSE, BETTER):
        return _compare_infinities(samples)
    levels = [_level(samples, limit, diverged) for limit in _limits(word, margin)]
    return word, None if None in levels else max((level for level in levels if level is not None), default=1.0)


def _compare_infinities(samples: NDArray) -> tuple[str, float]:
    """Judge by McNemar's exact test which of two policies is infinitely worse more often, unless the median disagrees.

    Diverged runs and ratios with one 0 give infinite differences.
    """
    worse, better = int(np.isposinf(samples).sum()), int(np.isneginf(samples).sum())
    level = 2 * sign_level(min(worse, better), worse + better)
    if level > 1 - CONFIDENCE:
        return INCONCLUSIVE, 1.0
    with np.errstate(invalid="ignore"):
        center = float(np.median(samples[~np.isnan(samples)]))
    if center < 0 if worse > better else center > 0:
        return INCONCLUSIVE, 1.0
    return WORSE if worse > better else BETTER, level


def interval_of(samples: NDArray, diverged: bool | None = None, error: float = 1 - CONFIDENCE) -> Interval:
    """Return the interval of the mean, or of the median if a run diverged or a mean would be infinite."""
    return median_interval(samples, error) if _has_no_mean(samples, diverged) else mean_interval(samples, 1 - error)


def _level(samples: NDArray, limit: float, diverged: bool | None = None) -> float | None:
    """Return the level of a limit; None if the samples have no spread."""
    if _has_no_mean(samples, diverged):
        return sign_level(int(min((samples <= limit).sum(), (samples >= limit).sum())), len(samples))
    return None if _is_constant(samples) else mean_level(samples, limit)


def _has_no_mean(samples: NDArray, diverged: bool | None = None) -> bool:
    """True if a run diverged, or if some of the samples are infinite, as logarithms of 0 are, and others are not.

    By default a run diverged if a sample is inf.
    """
    diverged = bool(np.isposinf(samples).any()) if diverged is None else diverged
    return diverged or (bool(np.isinf(samples).any()) and not _is_constant(samples))


def _is_constant(samples: NDArray) -> bool:
    return len(samples) > 1 and bool((samples == samples[0]).all())


def _count_zeros(samples: NDArray, values: NDArray) -> int:
    """Return the number of pairs with one 0: their logarithm is infinite, and the value is finite."""
    return int((np.isinf(samples) & np.isfinite(values)).sum())


def _ratio_text(samples: NDArray, zeros: int) -> str:
    interval = interval_of(samples)
    low, high = exponential(interval.low), exponential(interval.high)
    return f"ratio {_method_text(samples, f'{low:.4g}', f'{high:.4g}', ' of logarithms', zeros)}"


def _difference_text(samples: NDArray) -> str:
    interval = interval_of(samples)
    return f"difference {_method_text(samples, f'{interval.low:z.3g}', f'{interval.high:z.3g}')}"


def _method_text(samples: NDArray, low: str, high: str, of: str = "", zeros: int = 0) -> str:
    """Return the interval, the method and the number of cases as text."""
    n = len(samples)
    if _has_no_mean(samples):
        counts = {"runs diverged": np.isinf(samples).sum() - zeros, "pairs have one 0": zeros}
        causes = "".join(f"{count} of {n} {cause}, " for cause, count in counts.items() if count)
        return f"in [{low}, {high}]: one-sided sign test, {causes}n = {n}"
    if _is_constant(samples):
        return f"in [{low}, {high}]: no spread, n = {n}"
    return f"in [{low}, {high}]: paired t{of}, 95 %, n = {n}"


def _percent(share: float) -> str:
    """Return two digits, or three above 99 %."""
    return f"{100 * share:.3g}" if share > 0.99 else f"{100 * share:.2g}"


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def exponential(x: float) -> float:
    """Return e^x, or infinity if it overflows."""
    return math.inf if x > LARGEST else math.exp(x)


#: If a study has more seeds, verdicts are also given for these numbers of seeds, to show how the verdict developed.
FEWER_SEEDS = (5, 10)

#: The result of a claim's function: the measured values as text, the outcome of a test, and optionally more values for
#: the braces in the claim's texts.
Measured = tuple[str, Outcome] | tuple[str, Outcome, Mapping[str, object]]


class Finding(NamedTuple):
    """A claim, the measured values, and the verdict of a test.

    Parameters:
        claim: the claim in words.
        expectation: the expected result in words.
        measured: the measured values as text.
        test: the test in words.
        verdict: the verdict; None for a run that is too short to decide.
        p: the p value: the level at which the verdict would just be undecided; 1 if it is undecided, None if chance
            plays no role.
        earlier: the verdicts over fewer seeds, as pairs of a number of seeds and a verdict.
    """

    claim: str
    expectation: str
    measured: str
    test: str
    verdict: str | None
    p: float | None = None
    earlier: tuple[tuple[int, str | None], ...] = ()


def claim(text: str, expectation: str) -> Callable[[Callable[..., Measured]], Callable[..., Finding]]:
    """Return a decorator for a function that measures and tests a claim; the decorated function returns the `Finding`.

    Braces in both texts, as in `str.format`, are replaced by the function's arguments of the same names::

        @claim("{problem}: FP16 trains as FP32 does", "loss / FP32's loss within a factor of 1.05")
        def trains(results, problem):
            fp16, fp32 = losses(results, problem)
            return spread(fp16 / fp32), compare(fp16, fp32)

    Parameters:
        text: the claim in words.
        expectation: the expected result in words.

    Returns:
        The decorator.
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
    """Return a function's findings in the results, each with its verdicts over fewer seeds.

    Parameters:
        findings: a function of the results that returns findings.
        results: the results of a study.
        tiny: True for a tiny run, whose findings have no verdicts.

    Returns:
        The list of findings.
    """
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
    """Return the results with these seeds, and the results without a seed."""
    return [result for result in results if result.get("seed", seeds[0]) in seeds]


def verdict_text(finding: Finding) -> str:
    """Return the verdict of a finding as text.

    Parameters:
        finding: the finding, of one claim.

    Returns:
        The verdict, with the verdicts over fewer seeds if one of them differs.
    """
    verdict = finding.verdict or "none"
    if {verdict for _, verdict in finding.earlier} <= {finding.verdict}:
        return verdict
    before = ", ".join(f"{earlier} with {number}" for number, earlier in finding.earlier)
    return f"{verdict} ({before} seeds)"
