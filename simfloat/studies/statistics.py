"""Statistics of a study: confidence intervals, p values, false discovery rates, and combinations of options.

The level of a limit is the p value of the two-sided test that the mean, or the probability, equals the limit: an
interval with confidence 1 - level ends there. The level of a median, by the sign test, is one-sided. The false
discovery rate estimates the share of false verdicts among several (Benjamini and Hochberg, 1995).

`cheapest_choices` combines options, one for each part, and finds the cheapest combinations with a small enough error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.casts import Cast
from simfloat.common import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.formats import Format

#: The probability that an interval contains the true value.
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A confidence interval.

    Parameters:
        low, high: the ends of the interval.
        cases: the number of independent cases.
    """

    low: float
    high: float
    cases: int


@in_usual_environment
def spread(values: NDArray, digits: int = 2) -> str:
    """Return the mean and the standard deviation over seeds as text.

    Parameters:
        values: an array with a value for each seed.
        digits: the number of digits after the point.

    Returns:
        Text such as "0.51 ± 0.02"; only the mean for a single seed, or if the mean is not finite.
    """
    samples = as_rectangular_array(values, "values", np.float64)
    mean, error = mean_and_error(samples)
    if len(samples) < 2 or not math.isfinite(mean):
        return f"{mean:.{digits}f}"
    return f"{mean:z.{digits}f} ± {error * math.sqrt(len(samples)):.{digits}f}"


@in_usual_environment
def mean_interval(samples: NDArray, confidence: float = CONFIDENCE) -> Interval:
    """Return Student's t interval for the mean of independent samples.

    One sample gives the interval from -inf to inf. An infinite sample, such as a diverged run, makes the mean infinite.
    NaN, from a diverged reference, and infinite samples of both signs leave the mean unknown.

    Parameters:
        samples: an array with a sample for each case.
        confidence: the confidence, between 0 and 1.

    Returns:
        An `Interval`.

    Raises:
        ValueError: if the confidence is not between 0 and 1.
    """
    _check_confidence(confidence)
    samples = as_rectangular_array(samples, "samples", np.float64)
    (mean, error), n = mean_and_error(samples), len(samples)
    if n < 2 or math.isnan(mean):
        return Interval(-math.inf, math.inf, n)
    if math.isinf(mean):
        return Interval(mean, mean, n)
    # Only the submodule: all of scipy.stats takes a second to import.
    from scipy.special import stdtrit

    reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * error
    return Interval(mean - reach, mean + reach, n)


def mean_level(samples: NDArray, limit: float) -> float:
    """Return the p value of Student's t test that the mean is `limit`; 1 if the samples are too few or NaN."""
    samples = as_rectangular_array(samples, "samples", np.float64)
    (mean, error), n = mean_and_error(samples), len(samples)
    distance = abs(mean - limit)
    if n < 2 or math.isnan(distance):
        return 1.0
    if math.isinf(distance):
        return 0.0
    from scipy.special import stdtr

    if error == 0:
        return float(distance == 0)
    return 2 * float(stdtr(n - 1, -distance / error))


def median_interval(samples: NDArray, error: float = 1 - CONFIDENCE) -> Interval:
    """Return the interval of the median by the sign test, with the probability `error` on each side.

    With 5 % it needs five samples. It is also valid if some samples are infinite, such as those of diverged runs; a
    mean has no interval then. If a sample is NaN, the interval is infinite.
    """
    samples = np.sort(as_rectangular_array(samples, "samples", np.float64))
    n = len(samples)
    beyond = [k for k in range(n // 2) if sign_level(k, n) <= error]
    if not beyond or np.isnan(samples).any():
        return Interval(-math.inf, math.inf, n)
    return Interval(float(samples[beyond[-1]]), float(samples[n - 1 - beyond[-1]]), n)


def sign_level(others: int, cases: int) -> float:
    """Return the one-sided level of the sign test: the probability of at most `others` of `cases` on one side."""
    from scipy.special import bdtr

    return float(bdtr(others, cases, 0.5))


def mean_and_error(samples: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and its standard error; NaN without samples, or if infinite samples have both signs.

    Samples are scaled by a power of two, so that no square overflows or underflows. The mean is clipped to the range of
    the samples, so that equal samples have no deviation.
    """
    if samples.ndim != 1:
        raise ValueError(f"samples must be an array with one axis, a number for each case; got shape {samples.shape}.")
    if not len(samples):
        return math.nan, math.nan
    if not np.isfinite(samples).all():
        with np.errstate(invalid="ignore"):
            return float(np.mean(samples)), math.nan
    exponent = int(np.frexp(np.abs(samples).max())[1])
    scaled = np.ldexp(samples, -exponent)
    least, most = scaled.min(), scaled.max()
    mean = np.clip(np.mean(scaled), least, most)
    deviation = np.std(scaled, ddof=1) if least < most else 0.0
    return math.ldexp(mean, exponent), math.ldexp(deviation / math.sqrt(len(samples)), exponent)


@in_usual_environment
def share_interval(found: int, cases: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the confidence interval of Clopper and Pearson (1934) for a probability.

    Parameters:
        found: the number of cases in which the event occurred.
        cases: the number of independent cases.
        confidence: the confidence, between 0 and 1.

    Returns:
        An `Interval`.

    Raises:
        ValueError: if `found` is not an integer from 0 to `cases`; if the confidence is not between 0 and 1.
    """
    _check_confidence(confidence)
    check_cases(found, cases)
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(found, cases - found + 1, tail)) if found else 0.0
    high = float(betaincinv(found + 1, cases - found, 1 - tail)) if found < cases else 1.0
    return Interval(low, high, cases)


def share_level(occurrences: int, cases: int, limit: float) -> float:
    """Return the level at which the upper end of that interval is `limit`."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(occurrences, cases, limit)))


def check_cases(occurrences: int, cases: int) -> None:
    """Raise ValueError unless the number of occurrences is an integer from 0 to the number of cases."""
    if not 0 <= occurrences <= cases or occurrences % 1 or cases % 1:
        raise ValueError(f"found must be an integer from 0 to cases; got found={occurrences!r}, cases={cases!r}.")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, such as {CONFIDENCE}; got {confidence!r}.")


class Discoveries(NamedTuple):
    """The number of claims that were tested and decided, and the false discovery rate of the decisions.

    `rate` bounds the expected share of false decisions; None if nothing was tested.
    """

    tested: int
    decided: int
    rate: float | None

    def __str__(self) -> str:
        if self.rate is None:
            return "No claim was tested by statistics."
        return (
            f"{self.decided} of {self.tested} tested claims are decided, at a false discovery rate of "
            f"{100 * self.rate:.2g} % (Benjamini-Hochberg)."
        )


@in_usual_environment
def discoveries(levels: Iterable[float | None]) -> Discoveries:
    """Count the decided claims, and compute their false discovery rate.

    Parameters:
        levels: the p values of all claims; 1 for an undecided claim, None for a claim without statistics.

    Returns:
        The `Discoveries`.
    """
    p = [level for level in levels if level is not None]
    decided = [level < 1 for level in p]
    rates = adjust_levels(p)[decided] if p else np.array([])
    return Discoveries(len(p), sum(decided), float(rates.max(initial=0.0)) if p else None)


def adjust_levels(p: Sequence[float]) -> NDArray[np.float64]:
    """Return, for each p value, the smallest false discovery rate at which it is among the discoveries."""
    values = as_rectangular_array(p, "p", np.float64)
    order = np.argsort(-values)
    rates = np.minimum.accumulate(values[order] * len(values) / np.arange(len(values), 0, -1))
    adjusted_levels = np.empty_like(rates)
    adjusted_levels[order] = rates
    return adjusted_levels


#: The number of the chosen option for each part; 0 for no change.
Choice = tuple[int, ...]

#: The largest number of combinations that are kept. If there are more, those that save most are kept at each of LEVELS
#: levels of error.
MOST_FOLLOWED, LEVELS = 4096, 32


def cheapest_choices(
    saved: Sequence[Sequence[float]], excess: Sequence[Sequence[float]], limit: float
) -> Iterator[Choice]:
    """Yield combinations with a total excess of at most `limit`, in descending order of savings.

    `saved` and `excess` contain, for each part, the savings and the excesses of its options. If there are few
    combinations, all of them are considered.
    """
    states: list[tuple[float, float, Choice]] = [(0.0, 0.0, ())]
    for gains, errors in zip(saved, excess, strict=True):
        states = [
            (gain - more, error + added, (*choice, option))
            for gain, error, choice in states
            for option, (more, added) in enumerate(zip(gains, errors, strict=True))
            if error + added <= limit
        ]
        states = _followed_states(sorted(states), limit)
    return (choice for _, _, choice in states)


def _followed_states(states: list[tuple[float, float, Choice]], limit: float) -> list[tuple[float, float, Choice]]:
    """Select the states to keep from the sorted ones."""
    if len(states) <= MOST_FOLLOWED:
        return states
    counts: dict[int, int] = {}
    followed = []
    for state in states:
        level = int(LEVELS * state[1] / limit)
        counts[level] = counts.get(level, 0) + 1
        if counts[level] <= MOST_FOLLOWED // LEVELS:
            followed.append(state)
    return followed


def combined_error(errors: Sequence[float], power: float) -> float:
    """Combine errors by a power: 1 gives their sum, a large power nearly the largest of them."""
    most = max(errors, default=0.0)
    return most if most in (0.0, math.inf) else most * sum((error / most) ** power for error in errors) ** (1 / power)


def error_power(errors: Sequence[float], total: float) -> float:
    """Return the power, at least 1, by which the errors combine to `total`, which is not below the largest of them."""
    low, high = 1.0, 64.0
    if combined_error(errors, low) <= total:
        return low
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if combined_error(errors, middle) > total else (low, middle)
    return low


def is_narrower(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """True if each value is equal to the other one or narrower; None is the widest."""
    return all(wider is None or _contains(wider, value) for value, wider in zip(values, others, strict=True))


def _contains(wide: Any, narrow: Any) -> bool:
    """True if the wide value represents every number of the narrow one; other values than formats must be equal."""
    if narrow == wide:
        return True
    wide, narrow = (
        value.format if isinstance(value, Cast) and value.scale is None else value for value in (wide, narrow)
    )
    if not isinstance(wide, Format) or not isinstance(narrow, Format):
        return False
    return (
        narrow.precision <= wide.precision
        and narrow.max <= wide.max
        and narrow.min >= wide.min
        and narrow.smallest_subnormal >= wide.smallest_subnormal
    )
