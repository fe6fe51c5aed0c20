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

    and O (1 / l) at the end. r O and the sum O are rounded to the format `kept`. Everything else is FP32.
    """
    kernel = sf.flash_attention(block, output=kept)
    policy = sf.Policy(compute=sf.BF16).override(operation="scaled_dot_product_attention", fused=kernel)
    # The scores are a mask that is added to products of zeros.
    with sf.simulate(policy), sf.no_grad():
        zeros = np.zeros((len(scores), 1)), np.zeros((len(values), 1))
        return sf.nn.scaled_dot_product_attention(*zeros, values, attn_mask=scores).data


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
