"""The jobs: gradients of 8 to 1024 replicas, summed in each order and format, and their exact sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.options import Options
from simfloat.studies import Job, Result

#: Numbers of replicas, and elements of a gradient; those of a tiny run.
REPLICAS, TINY_REPLICAS = tuple(2**k for k in range(3, 11)), (8, 16)
SIZE, TINY_SIZE = 1024, 64

#: Gradients that are noise, as late in training, and gradients that are alike, as with large batches or early.
DATA = {
    "noise": lambda rng, shape: rng.standard_normal(shape),
    "alike": lambda rng, shape: 1 + 0.1 * rng.standard_normal(shape),
}

#: By name: the order, the format that is sent, and the rounding.
WAYS: dict[str, tuple[Any, sf.Accumulator]] = {
    "ring": ("ring", sf.sequential(sf.BF16)),
    "tree": ("tree", sf.pairwise(sf.BF16)),
    "ring, stochastic": ("ring", sf.sequential(sf.BF16, rounding=sf.stochastic())),
    "ring in FP32": ("ring", sf.sequential(sf.FP32)),
}


def jobs(options: Options) -> list[Job]:
    """Return a job for each kind of data and seed."""
    return [{"data": data, "seed": seed, "tiny": options.tiny} for data in DATA for seed in options.seed_numbers]


def run(job: Job) -> Result:
    """Run a job: a row for each number of replicas and method."""
    rng = np.random.default_rng([job["seed"], list(DATA).index(job["data"])])
    rows = []
    for count in TINY_REPLICAS if job["tiny"] else REPLICAS:
        shape = count, TINY_SIZE if job["tiny"] else SIZE
        parts = np.asarray(sf.round(DATA[job["data"]](rng, shape), sf.BF16), np.float64)
        rows += [{"replicas": count, "way": way, **lost(parts, way, job["seed"])} for way in WAYS]
    return {**job, "rows": rows}


def lost(parts: NDArray[np.float64], way: str, seed: int) -> dict[str, float]:
    """Return errors of sums: the root mean square, the largest one over the sum of magnitudes, and the mean.

    The root mean square is relative to that of the exact sums. "rounded" is the same for the exact sums, rounded once
    to BF16. "mean" is the mean of the sums relative to that of the exact ones.
    """
    order, accumulate = WAYS[way]
    stream = sf.BitStream(seed) if "stochastic" in way else None
    found = sf.all_reduce(parts, order=order, accumulate=accumulate, output=sf.BF16, stream=stream)
    exact = parts.sum(axis=0)  # BF16 numbers within some binades: exact in float64
    size = float(np.sqrt(np.mean(exact**2)))
    return {
        "error": float(np.sqrt(np.mean((found - exact) ** 2))) / size,
        "rounded": float(np.sqrt(np.mean((sf.round(exact, sf.BF16) - exact) ** 2))) / size,
        "greatest": float(np.max(np.abs(found - exact) / np.abs(parts).sum(axis=0))),
        "mean": float(np.mean(found) / np.mean(exact)),
    }
