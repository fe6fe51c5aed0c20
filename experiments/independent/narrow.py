"""Rounding to a number of significant bits, and intervals, in plain NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Seeds that no experiment uses: theirs start at 1000.
FIRST_SEED = 5000

#: Student's t for an interval of 95 %, by the number of seeds.
STUDENT = {3: 4.302653, 5: 2.776445, 10: 2.262157, 20: 2.093024}

Array = NDArray[np.float64]


class Remade(NamedTuple):
    """A repeated finding: the experiment, the beginning of its claim, the measurement, and the verdict."""

    experiment: str
    claim: str
    measured: str
    verdict: str


def to_nearest(x: ArrayLike, bits: int) -> Array:
    """Round x to `bits` significant bits, ties to even, without limits of the exponent."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)


def stochastically(x: ArrayLike, bits: int, rng: np.random.Generator) -> Array:
    """Round x stochastically to one of its two neighbours; the nearer one is more likely."""
    fraction, exponent = np.frexp(x)
    scaled = np.ldexp(fraction, bits)
    return np.ldexp(np.floor(scaled + rng.random(np.shape(scaled))), exponent - bits)


def seeds(count: int) -> range:
    """Return `count` seeds."""
    return range(FIRST_SEED, FIRST_SEED + count)


def interval(samples: ArrayLike) -> tuple[float, float]:
    """Return Student's interval of the mean, 95 %."""
    x = np.asarray(samples, np.float64)
    reach = STUDENT[len(x)] * x.std(ddof=1) / np.sqrt(len(x))
    return float(x.mean() - reach), float(x.mean() + reach)


def lies_between(samples: ArrayLike, low: float, high: float) -> str:
    """Return the verdict on a claim that a mean is between two numbers."""
    least, most = interval(samples)
    if low < least and most < high:
        return "reproduced"
    return "not reproduced" if most <= low or high <= least else "inconclusive"


def ratio_above(values: ArrayLike, reference: ArrayLike, limit: float) -> str:
    """Return the verdict on a claim that a geometric mean of ratios is above a limit."""
    return lies_between(np.log(np.divide(values, reference)), np.log(limit), np.inf)


def matches(values: ArrayLike, reference: ArrayLike, margin: float = 1.05) -> str:
    """Return the verdict on values that should match a reference; smaller is better."""
    least, most = interval(np.log(np.divide(values, reference)))
    inside = -np.log(margin) < least and most < np.log(margin)
    if least > 0:
        return "worse within the margin" if inside else "worse"
    return "better" if most < 0 else "equal" if inside else "inconclusive"


def holds(exceptions: int) -> str:
    """Return the verdict on a claim about all cases."""
    return "not reproduced" if exceptions else "reproduced"
