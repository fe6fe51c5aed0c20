"""Rows of attention scores: weights that are exactly one, the rest of the row, and the bias of rounding P V to BF16."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.models import GPT

#: The unit roundoff of BF16.
U = sf.BF16.unit_roundoff

#: Rows with at most this number of keys are left out.
FIRST = 16

#: A rest of a row that is smaller than this share of it biases the output (experiment flash-attention).
SMALL = 2.0**-9


def heads(model: GPT, tokens: NDArray[np.int64]) -> list[tuple[NDArray, NDArray, NDArray]]:
    """Return query, key and value (examples, heads, tokens, size of a head) in BF16, for each block of the model."""
    projections = []
    with sf.simulate("fp32"), sf.no_grad():
        x = model.token(tokens) + model.position(np.arange(tokens.shape[1]))
        for block in model.blocks:
            assert isinstance(block, sf.nn.TransformerEncoderLayer)
            attention = block.self_attn
            weights = dict(attention.named_parameters())
            joint = (block.norm1(x) @ weights["in_proj_weight"].swapaxes(0, 1) + weights["in_proj_bias"]).data
            parts = (
                part.reshape(*tokens.shape, attention.num_heads, -1).swapaxes(1, 2) for part in np.split(joint, 3, -1)
            )
            query, key, value = (sf.round(part, sf.BF16) for part in parts)
            projections.append((query, key, value))
            x = block(x, is_causal=True)
    return projections


def causal_scores(query: NDArray, key: NDArray, factor: float) -> NDArray[np.float64]:
    """Return FP32 scores of each query and the keys up to it, times a factor; -inf for later keys."""
    products = np.asarray(query, np.float64) @ np.asarray(key, np.float64).swapaxes(-1, -2)
    scores = np.float64(sf.round(products * factor / np.sqrt(query.shape[-1]), sf.FP32))
    later = np.triu(np.ones(scores.shape[-2:], bool), 1)
    return np.where(later, -np.inf, scores)[..., FIRST:, :]


def measure(scores: NDArray, values: NDArray) -> dict[str, float]:
    """Return shares of rows, and mean relative errors in u, positive away from zero.

    "ones" is the share of rows with at least two weights that are 1 in BF16, "small" the share of those whose other
    weights are less than SMALL of the row, and "both" the share of rows with both. "least" is the smallest share of the
    other weights in a row with at least two such weights, or 1 without such a row. "bias" is the mean error of P V,
    which is rounded to BF16 before it is divided, and "output" that of O / l, which is rounded once.
    """
    weights = np.float64(sf.exp(sf.subtract(scores, scores.max(axis=-1, keepdims=True), sf.FP32), sf.FP32))
    narrow = np.float64(sf.round(weights, sf.BF16))
    is_one = narrow == 1
    ones, rest = is_one.sum(axis=-1), np.where(is_one, 0, weights).sum(axis=-1) / weights.sum(axis=-1)
    product = narrow @ np.asarray(values, np.float64)
    total = weights.sum(axis=-1, keepdims=True)
    return {
        "ones": float(np.mean(ones > 1)),
        "small": float(np.mean(rest < SMALL)),
        "both": float(np.mean((ones > 1) & (rest < SMALL))),
        "least": float(np.min(rest, where=ones > 1, initial=1)),
        "rest": float(np.mean(rest)),
        "bias": mean_error(product),
        "output": mean_error(product / total),
    }


def mean_error(exact: NDArray[np.float64]) -> float:
    """Return the mean relative error of rounding numbers to BF16, in u; zeros have none."""
    exact = exact[exact != 0]
    return float(np.mean(np.float64(sf.round(exact, sf.BF16)) / exact - 1)) / U
