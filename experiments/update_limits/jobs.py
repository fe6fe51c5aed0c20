"""The jobs: stochastic gradient descent on least squares without noise; only the update is rounded."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.options import Options
from experiments.update_cancellation.problems import ALPHA, MOST_NORM
from experiments.update_cancellation.theorem1 import largest_input, safe_radius
from simfloat.studies import Job, Result

#: Step sizes: the paper's, and smaller ones.
ALPHAS = (ALPHA, ALPHA / 2, ALPHA / 4, ALPHA / 8)

#: Mantissa bits with BF16's eight bits of exponent, and largest weights of the optimum.
BITS, WIDTHS = (3, 5, 7, 9), (1.0, 10.0, 100.0)

#: A fixed-point format up to 2^11 with a spacing of 2^-8, half of BF16's spacing from 1 to 2.
FIXED = sf.fixed(20, 8)

#: Steps times step size: without rounding the distance falls by e^-40. The last tenth is averaged. With half of this
#: duration, weights up to 100 are not yet at rest in fixed point.
DURATION, LAST, TINY = 40, 0.1, 0.005

#: Number of random problems for each seed with an optimum that is a BF16 number, and the steps of a search for a run
#: that reaches it.
SEARCHED, SEARCH_STEPS = 10, 200

#: Runs with stochastic updates whose weights are averaged.
REPEATED = 100

#: Weights and samples of the problem that does not determine its weights.
MANY, FEW = 50, 20


class Descent(NamedTuple):
    """A run: the format of the weights, the step size, the largest weight, and whether samples are few."""

    format: sf.Format
    alpha: float = ALPHA
    width: float = 100.0
    few: bool = False


#: The runs, by the varied parameter.
RUNS: dict[str, list[Descent]] = {
    "alpha": [Descent(sf.BF16, alpha) for alpha in ALPHAS],
    "bits": [Descent(sf.Format(8, bits)) for bits in BITS],
    "floating": [Descent(sf.BF16, width=width) for width in WIDTHS],
    "fixed": [Descent(FIXED, width=width) for width in WIDTHS],
    "few": [Descent(format, few=True) for format in (sf.BF16, sf.FP32)],
}


def jobs(options: Options) -> list[Job]:
    """Return a job for each seed."""
    return [{"kind": "descents", "seed": seed, "tiny": options.tiny} for seed in options.seed_numbers]


def run(job: Job) -> Result:
    """Run a job: a row for each run."""
    rows = [{"varied": varied, **descend(job, each)} for varied, runs in RUNS.items() for each in runs]
    rng = np.random.default_rng([job["seed"], 2])
    searches = [{"varied": "search", **approach(rng)} for _ in range(SEARCHED)]
    return {**job, "rows": [*rows, *searches, {"varied": "mean", **mean_of_stochastic(job)}]}


def mean_of_stochastic(job: Job) -> dict[str, float]:
    """Return the distance from exact updates to the mean of stochastic runs, and to nearest updates, in BF16."""
    x, optimum = data(job["seed"], Descent(sf.BF16))
    rng = np.random.default_rng([job["seed"], 3])
    steps = int(DURATION / ALPHA * (TINY if job["tiny"] else 1))
    exact, nearest, weights = np.zeros(len(optimum)), np.zeros(len(optimum)), np.zeros((REPEATED, len(optimum)))
    stream = sf.BitStream(job["seed"])
    for row in x[rng.integers(0, len(x), steps)]:
        exact = exact - ALPHA * (row @ exact - row @ optimum) * row
        gradient = (row @ nearest - row @ optimum) * row
        nearest = np.asarray(sf.subtract(nearest, ALPHA * gradient, sf.BF16), np.float64)
        updates = ALPHA * (weights @ row - row @ optimum)[:, np.newaxis] * row
        weights = np.asarray(sf.subtract(weights, updates, sf.BF16, rounding=sf.stochastic(), stream=stream), float)
    mean = weights.mean(axis=0)
    return {
        "distance": float(np.linalg.norm(mean - exact)),
        "single": float(np.sqrt(np.mean(((weights - exact) ** 2).sum(axis=1)))),
        "nearest": float(np.linalg.norm(nearest - exact)),
    }


def approach(rng: np.random.Generator) -> dict[str, float]:
    """Train one or two weights to an optimum that is a BF16 number; return the smallest distance to it."""
    count = int(rng.integers(1, 3))
    optimum = np.asarray(sf.round(rng.uniform(1, 100, count), sf.BF16), np.float64)
    x = rng.standard_normal((20, count))
    alpha = float(rng.uniform(0.1, 1) / largest_input(x))
    return {
        "distance": smallest_distance(x[rng.integers(0, len(x), SEARCH_STEPS)], optimum, alpha),
        "start": float(np.linalg.norm(optimum)),
        "radius": safe_radius(alpha, largest_input(x), float(np.abs(optimum).min())),
    }


def smallest_distance(rows: NDArray, optimum: NDArray, alpha: float) -> float:
    """Return the smallest distance to the optimum that nearest updates in BF16 reach from zero, by these samples."""
    weight, least = np.zeros(len(optimum)), np.inf
    for row in rows:
        update = alpha * (row @ weight - row @ optimum) * row
        weight = np.asarray(sf.subtract(weight, update, sf.BF16), np.float64)
        least = min(least, float(np.linalg.norm(weight - optimum)))
    return least


def descend(job: Job, descent: Descent) -> dict[str, Any]:
    """Return the final distance to the optimum, the loss, and the radius inside which no BF16 weight changes."""
    x, optimum = data(job["seed"], descent)
    rng = np.random.default_rng([job["seed"], 1])
    steps = int(DURATION / descent.alpha * (TINY if job["tiny"] else 1))
    weight, distances = np.zeros(len(optimum)), []
    for row in x[rng.integers(0, len(x), steps)]:
        gradient = (row @ weight - row @ optimum) * row
        weight = np.asarray(sf.subtract(weight, descent.alpha * gradient, descent.format), np.float64)
        distances.append(float(np.linalg.norm(weight - optimum)))
    return {
        "format": str(descent.format),
        "alpha": descent.alpha,
        "bits": descent.format.mantissa_bits,
        "width": descent.width,
        "distance": float(np.mean(distances[-max(1, int(LAST * steps)) :])),
        "loss": float(np.mean((x @ (weight - optimum)) ** 2)),
        "start": float(np.linalg.norm(optimum)),
        "radius": safe_radius(descent.alpha, largest_input(x), float(np.abs(optimum).min())),
    }


def data(seed: int, descent: Descent) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw inputs from N(0, I), again until |x|^2 is small enough for the theorem, and w* uniform from 0."""
    rng = np.random.default_rng(seed)
    count, width = (FEW, MANY) if descent.few else (2000, 10)
    x = rng.standard_normal((count, width))
    if not descent.few:
        while (large := (x**2).sum(axis=1) > MOST_NORM).any():
            x[large] = rng.standard_normal((int(large.sum()), width))
    return x, rng.uniform(0, descent.width, width)
