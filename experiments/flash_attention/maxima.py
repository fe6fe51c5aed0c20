"""The bias of rounding P V to BF16 in rows whose largest score occurs more than once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.flash_attention.online import exact, exponentials, product, row_sums

#: Rows, keys, and the width of a value; those of a tiny run.
SHAPE, TINY_SHAPE = (256, 64, 64), (4, 16, 8)

#: The number of times that the largest score occurs, and the gap to the mean of the others.
REPEATS = (1, 2, 4)
GAPS, TINY_GAPS = (4, 6, 8, 9, 10, 11, 12, 13, 14, 16), (12, 14)

#: Of BF16.
U = sf.BF16.unit_roundoff

#: The value that is subtracted from scores, as a multiple of the maximum, and the format of P V.
CURES = {"as it is": (1, sf.BF16), "maximum doubled": (2, sf.BF16), "P V in FP32": (1, sf.FP32)}


def draw(seed: int, repeats: int, gap: float, shape: tuple[int, int, int]) -> tuple[NDArray, NDArray]:
    """Draw FP32 scores (rows, keys) with maxima from 6 to 8, `repeats` of them in a row, and negative BF16 values."""
    rows, keys, width = shape
    rng = np.random.default_rng([seed, 2])
    scores = np.minimum(rng.standard_normal((rows, keys)) - gap, 0)
    places = rng.permuted(np.tile(np.arange(keys), (rows, 1)), axis=1)[:, :repeats]
    np.put_along_axis(scores, places, 0, axis=1)
    values = -np.exp(0.3 * rng.standard_normal((keys, width)))
    return sf.round(scores + rng.uniform(6, 8, (rows, 1)), sf.FP32), sf.round(values, sf.BF16)


def measure_bias(scores: NDArray, values: NDArray, cure: str) -> dict[str, float]:
    """Return relative errors in u, positive away from zero: the mean of P V's, and mean and root mean square of O's."""
    times, format = CURES[cure]
    weights = exponentials(scores, times * scores.max(axis=1, keepdims=True))
    rounded, unrounded = (np.asarray(product(weights, values, output), float) for output in (format, sf.FP64))
    found, output = np.asarray(sf.divide(rounded, row_sums(weights), sf.BF16), float), exact(scores, values)
    errors = (found / output - 1) / U
    return {
        "bias": float(np.mean(rounded / unrounded - 1)) / U,
        "output": float(np.mean(errors)),
        "error": float(np.sqrt(np.mean(errors**2))),
    }


def rest(scores: NDArray, repeats: int) -> float:
    """Return the mean share of the weights other than those of the maxima."""
    weights = np.exp(np.asarray(scores, float) - scores.max(axis=1, keepdims=True))
    return float(np.mean(1 - repeats / weights.sum(axis=1)))
