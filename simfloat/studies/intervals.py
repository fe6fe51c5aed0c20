"""Intervals of a mean and of a probability, the levels at which they would just touch a limit, and false discoveries.

The level of a limit is the p value of the two-sided test that the mean, or the probability, is that limit: an interval
with a confidence of 1 - level ends there. How many of several verdicts may be false is their false discovery rate
(Benjamini and Hochberg, 1995).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: How surely an interval holds what it is of.
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Where something lies, with the confidence that was asked for, by so many independent cases."""

    low: float
    high: float
    cases: int


def spread(values: NDArray, digits: int = 2) -> str:
    """Mean and standard deviation over seeds, as text."""
    deviation = np.std(values, ddof=1) if len(values) > 1 and np.isfinite(values).all() else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"


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

    reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * _deviation(samples)
    return Interval(mean - reach, mean + reach, n)


def mean_level(samples: NDArray, limit: float) -> float:
    """The p value of Student's t test that the mean is `limit`: 1 where the samples say nothing."""
    samples = np.asarray(samples, np.float64)
    n, distance = len(samples), abs(float(np.mean(samples)) - limit)
    if n < 2 or math.isnan(distance):
        return 1.0
    if math.isinf(distance):
        return 0.0
    from scipy.special import stdtr

    deviation = _deviation(samples)
    if deviation == 0:
        return float(distance == 0)
    return 2 * float(stdtr(n - 1, -distance / deviation))


def _deviation(samples: NDArray[np.float64]) -> float:
    """The standard deviation of the mean."""
    return float(np.std(samples, ddof=1)) / math.sqrt(len(samples))


def share_interval(found: int, cases: int, confidence: float = CONFIDENCE) -> Interval:
    """The interval of Clopper and Pearson (1934) of a probability, of which `found` of independent cases are known."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(found, cases - found + 1, tail)) if found else 0.0
    high = float(betaincinv(found + 1, cases - found, 1 - tail)) if found < cases else 1.0
    return Interval(low, high, cases)


def share_level(found: int, cases: int, limit: float) -> float:
    """The level at which the upper end of that interval is `limit`."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(found, cases, limit)))


class Discoveries(NamedTuple):
    """How many claims were tested, how many of them were decided, and the false discovery rate of the decisions.

    `rate` bounds the share of false ones that is to be expected among them; None if nothing was tested.
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


def discoveries(levels: Iterable[float | None]) -> Discoveries:
    """Of the p values of all claims: 1 is that of a claim that is left open, None that of one without statistics."""
    p = [level for level in levels if level is not None]
    decided = [level < 1 for level in p]
    rates = adjusted(p)[decided] if p else np.array([])
    return Discoveries(len(p), sum(decided), float(rates.max(initial=0.0)) if p else None)


def adjusted(p: Sequence[float]) -> NDArray[np.float64]:
    """The least false discovery rate at which each of the p values is among the discoveries."""
    values = np.asarray(p, np.float64)
    order = np.argsort(-values)
    rates = np.minimum.accumulate(values[order] * len(values) / np.arange(len(values), 0, -1))
    found = np.empty_like(rates)
    found[order] = rates
    return found
