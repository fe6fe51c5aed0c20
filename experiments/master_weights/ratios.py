"""The ratio of a weight to its update at which FP16 loses the update: every weight of a binade with many updates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.studies import Result

#: The ratios between which the result depends on the weight: 2^11 and 2^12.
LEAST, MOST = 2048, 4096

#: The number of updates that are tried with each weight: around both ratios, and between.
COUNT = 2000


def ratios(seed: int) -> Result:
    """Count tried and lost updates with a ratio below 2048, from 2048 to 4096, and of at least 4096.

    The weights are all FP16 numbers from 1 up to 2, the updates are FP16 numbers of both signs. "largest" is the
    largest ratio at which an update was kept.
    """
    counts = {"below": [0, 0], "between": [0, 0], "above": [0, 0]}
    largest = 0.0
    for weights, updates in pairs(seed):
        lost = np.asarray(sf.add(weights, updates, sf.FP16)) == weights
        ratio = np.abs(weights / updates)
        for name, place in (
            ("below", ratio < LEAST),
            ("between", (ratio >= LEAST) & (ratio < MOST)),
            ("above", ratio >= MOST),
        ):
            counts[name][0] += int(place.sum())
            counts[name][1] += int((lost & place).sum())
        largest = max(largest, float(ratio[~lost].max()))
    tried = {f"{name}_tried": tried for name, (tried, _) in counts.items()}
    lost = {f"{name}_lost": lost for name, (_, lost) in counts.items()}
    return {**tried, **lost, "largest": largest}


def pairs(seed: int) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return weights (1, 1024) with updates (COUNT, 1) of either sign."""
    weights = np.array([value for value in sf.FP16.values() if 1 <= value < 2], np.float64)[np.newaxis]
    drawn = 2.0 ** np.random.default_rng(seed).uniform(-13.5, -9.5, (COUNT, 1))
    edges = np.array([[2.0**-k] for k in (10, 11, 12, 13)])
    updates = np.vstack([np.asarray(sf.round(drawn, sf.FP16), np.float64), edges])
    yield weights, updates
    yield weights, -updates
