"""Attention: Vaswani et al., Attention Is All You Need, arXiv 1706.03762."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array, on_device_of
from simfloat.autodiff import Tensor, where
from simfloat.autodiff.composites import run_composite
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.checks import check_flags
from simfloat.environment import in_usual_environment
from simfloat.nn.dropout import dropout
from simfloat.nn.layer_arguments import as_probability
from simfloat.simulation.simulation import current

#: What policies call attention, whose operations are parts of it.
ATTENTION = "scaled_dot_product_attention"


@in_usual_environment
def scaled_dot_product_attention(
    query: Operand,
    key: Operand,
    value: Operand,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query key^T * scale + mask) value: (..., L, E), (..., S, E), (..., S, V) -> (..., L, V).

    As in PyTorch query and key are both multiplied by the root of the scale, which keeps their product in the range of
    narrow formats. Two contractions, two products, the addition of a mask of numbers, and the composite `softmax`, each
    rounded as the policy says. A mask of truth values says which keys take part; a query without any gives zeros. With
    `is_causal` the i-th query sees the keys up to the i-th. scale is 1 / sqrt(E) by default. Weights are dropped with
    probability `dropout_p`, as by Dropout.

    Where the policy fuses the composite ``"scaled_dot_product_attention"``, as the presets of automatic mixed precision
    do, it is one operation: operands of both contractions are rounded to `compute`, the softmax's probabilities among
    them; scores, their products with the scale, and the softmax have the format of `reduce`; the result is rounded
    once, and so is each gradient. ``policy.override(operation="scaled_dot_product_attention", fused=False)`` rounds
    every step instead.

    Raises ValueError for shapes that do not fit, and for a mask beside is_causal.

    Examples:
        >>> q = k = v = np.eye(3)
        >>> with sf.simulate("fp32"):
        ...     y = sf.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
        >>> y.data[0]
        array([1., 0., 0.], dtype=float32)
    """
    check_flags(is_causal=is_causal)
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"Attention needs query (..., L, E), key (..., S, E) and value (..., S, V), got shapes {q.shape}, "
            f"{k.shape} and {v.shape}."
        )
    if is_causal and attn_mask is not None:
        raise ValueError("Attention takes an attn_mask or is_causal=True, got both.")
    masks = [causal_mask(q.shape[-2], k.shape[-2])] if is_causal else []
    masks += [] if attn_mask is None else [as_array(attn_mask)]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return attention_composite(q, k, v, masks, scale, as_probability(dropout_p, "dropout_p"))


def attention_composite(
    q: Tensor, k: Tensor, v: Tensor, masks: list[NDArray], scale: float, dropout_p: float
) -> Tensor:
    """The composite of attention: in one operation where the policy fuses it, else of both operands' scaled numbers."""
    is_fused = current().place(ATTENTION).recipe.fused

    def steps(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if is_fused:
            weights = masked_softmax((q @ k.swapaxes(-1, -2)) * scale, masks)
            return dropout(weights, dropout_p).weighted_sum(v)
        return dropout(attention_weights(*scale_by_root(q, k, scale), masks), dropout_p) @ v

    return run_composite(ATTENTION, steps, [q, k, v], q.from_result)


def causal_mask(queries: int, keys: int) -> NDArray[np.bool_]:
    """True where a key does not lie behind the query."""
    return np.tril(np.ones((queries, keys), bool))


def scale_by_root(q: Tensor, k: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Queries and keys times the root of the scale; a negative scale turns the sign of queries."""
    root = math.sqrt(abs(scale))
    return q * math.copysign(root, scale), k * root


def attention_weights(q: Tensor, k: Tensor, masks: list[NDArray]) -> Tensor:
    """The weight of every key for every query, whose products are those of scaled operands.

    Masks hold numbers to be added, or True where a key takes part.
    """
    return masked_softmax(q @ k.swapaxes(-1, -2), masks)


def masked_softmax(scores: Tensor, masks: list[NDArray]) -> Tensor:
    """The softmax of masked scores, and zeros for a query that sees no key."""
    allowed: NDArray[np.bool_] | None = None
    for mask in masks:
        _check_mask(mask, scores.shape)
        mask = on_device_of(mask, scores.numbers)
        if mask.dtype != bool:
            # What -inf is added to takes no part, whether the format has infinities or not.
            mask, addend = mask != -np.inf, mask
            scores = scores + np.where(mask, addend, addend.dtype.type(0))
        allowed = mask if allowed is None else allowed & mask
    if not scores.shape[-1]:
        return scores  # without keys there is nothing to weigh
    if allowed is None or allowed.all():
        return scores.softmax(-1)
    # A query that sees no key weighs them all, and its weights are then replaced by zeros.
    sees = allowed.any(-1, keepdims=True)
    lowest = -np.inf if scores.format is None or scores.format.has_infinity else scores.format.min
    weights = where(allowed | ~sees, scores, lowest).softmax(-1)
    return weights if sees.all() else where(sees, weights, 0.0)


def _check_mask(mask: NDArray, shape: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(mask.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits or mask.dtype.kind not in "bf":
        raise ValueError(
            f"A mask holds truth values or numbers, and broadcasts to {shape} (..., queries, keys); got shape "
            f"{mask.shape} and dtype {mask.dtype}."
        )
