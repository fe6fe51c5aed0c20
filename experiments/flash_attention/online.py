"""Attention in the way of FlashAttention: by blocks of keys, with a running maximum and a rescaled accumulator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf


def online(scores: NDArray, values: NDArray, block: int, kept: sf.Format) -> NDArray:
    """Return the output (queries, width) of FP32 scores (queries, keys) and BF16 values (keys, width), rounded to BF16.

    FlashAttention-2 (Dao, arXiv 2307.08691, algorithm 1), for each block of keys::

        m' = max(m, rows of S);  P = exp(S - m');  r = exp(m - m')
        l = r l + sum P;  O = r O + BF16(P) V

    and O / l at the end. O is kept in the format `kept`: r O and the sum are rounded to it. Everything else is FP32.
    """
    top: NDArray = np.full((len(scores), 1), -np.inf)
    sums: NDArray = np.zeros((len(scores), 1))
    output: NDArray = np.zeros((len(scores), values.shape[1]))
    for start in range(0, scores.shape[1], block):
        part = scores[:, start : start + block]
        higher = np.maximum(top, part.max(axis=1, keepdims=True))
        weights, rescale = exponentials(part, higher), exponentials(top, higher)
        sums = sf.fma(rescale, sums, row_sums(weights), sf.FP32)
        output = sf.add(sf.multiply(rescale, output, kept), product(weights, values[start : start + block]), kept)
        top = higher
    return sf.divide(output, sums, sf.BF16)


def ordinary(scores: NDArray, values: NDArray) -> NDArray:
    """Return the same by a softmax of whole rows in FP32; weights are rounded to BF16 for the product."""
    weights = exponentials(scores, scores.max(axis=1, keepdims=True))
    return product(sf.divide(weights, row_sums(weights), sf.FP32), values, sf.BF16)


def exact(scores: NDArray, values: NDArray) -> NDArray[np.float64]:
    """Return the same in float64."""
    weights = np.exp(np.asarray(scores, np.float64) - scores.max(axis=1, keepdims=True))
    return weights @ values / weights.sum(axis=1, keepdims=True)


def exponentials(scores: NDArray, top: NDArray) -> NDArray:
    """Return exp(scores - top) in FP32."""
    return sf.exp(sf.subtract(scores, top, sf.FP32), sf.FP32)


def row_sums(weights: NDArray) -> NDArray:
    """Return the sums of rows in FP32 (queries, 1)."""
    return sf.sum(weights, axis=1, accumulate=sf.FP32)[:, None]


def product(weights: NDArray, values: NDArray, output: sf.Format = sf.FP32) -> NDArray:
    """Return BF16(weights) @ values, summed in FP32."""
    return sf.matmul(sf.round(weights, sf.BF16), values, accumulate=sf.FP32, output=output)
