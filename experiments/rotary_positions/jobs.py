"""The jobs: scores of rotated queries and keys, with some parts of the rotation in BF16, compared with float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import simfloat as sf
from experiments.options import Options
from simfloat.studies import Job, Result

#: The size of a head, the base of the frequencies, and the number of pairs of a query and a key; in a tiny run.
SIZE, BASE, PAIRS, TINY_PAIRS = 64, 10000.0, 256, 4

#: Positions of the queries; those of a tiny run.
POSITIONS, TINY_POSITIONS = tuple(2**k for k in range(4, 18)), (256, 1024)

#: Distances of keys from their queries are below this number, or below the position of the query.
NEAR, FAR = "near", "far"
DISTANCE = 16

#: The steps of the computation in their order.
STEPS = ("positions", "frequencies", "angles", "tables", "rotation")

#: The steps that are in BF16, by the name of the variant; the others are in FP32.
PARTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    **{step: (step,) for step in STEPS},
    "tables and rotation": ("tables", "rotation"),
    "everything": STEPS,
}

#: A variant with angles in FP64, and everything else in FP32.
FP64_ANGLES = "FP64 angles"


def jobs(options: Options) -> list[Job]:
    """Return a job for each seed."""
    return [{"seed": seed, "tiny": options.tiny} for seed in options.seed_numbers]


def run(job: Job) -> Result:
    """Return a row for each position, distance of keys, and variant."""
    positions = TINY_POSITIONS if job["tiny"] else POSITIONS
    return {**job, "rows": [row for at in positions for keys in (NEAR, FAR) for row in measure(job, at, keys)]}


def measure(job: Job, position: int, keys: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each variant: the error of scores of random queries at a position with keys before them."""
    rng = np.random.default_rng([job["seed"], position])
    pairs = TINY_PAIRS if job["tiny"] else PAIRS
    vectors = as_float64(sf.round(rng.standard_normal((2, pairs, SIZE)), sf.BF16))
    distances = rng.integers(0, DISTANCE if keys == NEAR else position, pairs)
    places = np.full(pairs, position), position - distances
    exact = scores(*(turned(x, frequencies() * at[:, np.newaxis]) for x, at in zip(vectors, places, strict=True)))
    for part, narrow in {**PARTS, FP64_ANGLES: ()}.items():
        rotated = [rotate(x, at, narrow, part == FP64_ANGLES) for x, at in zip(vectors, places, strict=True)]
        yield {"position": position, "keys": keys, "part": part, "error": error(scores(*rotated), exact)}


def frequencies() -> NDArray[np.float64]:
    """Return BASE^(-2 i / SIZE) for each pair of features."""
    return BASE ** (-np.arange(0, SIZE, 2) / SIZE)


def turned(x: NDArray, angles: NDArray) -> NDArray[np.float64]:
    """Return x (pairs, SIZE) with each two features rotated by an angle (pairs, SIZE / 2), in float64."""
    first, second, cos, sin = *np.split(x, 2, axis=1), np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)


def rotate(x: NDArray, places: NDArray, narrow: tuple[str, ...], is_exact: bool) -> NDArray[np.float64]:
    """Return x rotated and rounded to BF16; each step is rounded to BF16 if it is narrow, otherwise to FP32.

    If `is_exact` is True, the angles are in float64.
    """
    formats: dict[str, Any] = {step: sf.BF16 if step in narrow else sf.FP32 for step in STEPS}
    if is_exact:
        angles = places[:, np.newaxis] * frequencies()
    else:
        column = as_float64(sf.round(places, formats["positions"]))[:, np.newaxis]
        angles = as_float64(sf.multiply(column, sf.round(frequencies(), formats["frequencies"]), formats["angles"]))
    cos, sin = (as_float64(sf.round(table(angles), formats["tables"])) for table in (np.cos, np.sin))
    first, second = np.split(x, 2, axis=1)
    wanted = formats["rotation"]
    halves = (
        sf.subtract(sf.multiply(first, cos, wanted), sf.multiply(second, sin, wanted), wanted),
        sf.add(sf.multiply(second, cos, wanted), sf.multiply(first, sin, wanted), wanted),
    )
    return as_float64(sf.round(np.concatenate(halves, axis=1), sf.BF16))


def as_float64(x: ArrayLike) -> NDArray[np.float64]:
    """Return numbers of a narrower format as float64."""
    return np.asarray(x, np.float64)


def scores(query: NDArray, key: NDArray) -> NDArray[np.float64]:
    """Return the score of each pair, in float64."""
    return (query * key).sum(axis=1) / np.sqrt(SIZE)


def error(found: NDArray, exact: NDArray) -> float:
    """Return the root mean square error, relative to the root mean square of the exact scores."""
    return float(np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)))
