"""Bags of embeddings: sums, means and maxima of rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.handlers import Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensor_arrays import numbers_of

#: The numbers by which PyTorch names what becomes of a bag's rows.
MEAN, MAX = 1, 2


def bags_of(
    indices: torch.Tensor, offsets: torch.Tensor, count: int, padding: int
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The row and the bag of every index that is not padding."""
    rows, starts = indices.numpy().reshape(-1), offsets.numpy()[:count]
    bags = np.searchsorted(starts, np.arange(len(rows)), side="right") - 1
    return rows[rows != padding], bags[rows != padding]


def check_options(by_frequency: bool, has_sparse_gradient: bool = False) -> None:
    """Raise ValueError for an option that has no rule."""
    if by_frequency:
        raise ValueError("nn.EmbeddingBag has no rule for scale_grad_by_freq=True; leave it out.")
    if has_sparse_gradient:
        raise ValueError(
            "The gradient of nn.EmbeddingBag(sparse=True) is sparse, and sparse tensors have no rules; leave it out, "
            "for a gradient of the whole table with the same rows."
        )


def times_weights(
    call: RuleCall, rows: NDArray, weights: torch.Tensor | None, is_no_padding: NDArray[np.bool_]
) -> NDArray:
    """Rows times their weights, where there are any, each product rounded."""
    return rows if weights is None else call.multiply(rows, numbers_of(weights).reshape(-1)[is_no_padding, np.newaxis])


def check_mean(call: RuleCall) -> None:
    """Raise ValueError for the mean of a policy that fuses it: the sum would be rounded before it is divided."""
    if call.phase.is_fused:
        raise ValueError(
            f"{call.name} with mode='mean' is not fused; give the policy .override(operation='embedding_bag', "
            "fused=False), or divide sums in the model."
        )


def embedding_bag(
    call: RuleCall, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, by_frequency: bool = False,
    mode: int = 0, sparse: bool = False, weights: torch.Tensor | None = None, has_last: bool = False, padding: int = -1,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """The sum of every bag's rows, in their order; the mean, sum and quotient being rounded; or the maximum."""
    check_options(by_frequency)
    outputs = torch.ops.aten._embedding_bag(
        weight, indices, offsets, by_frequency, mode, sparse, weights, has_last, padding
    )
    result, *places = outputs
    call.begin()
    if mode == MAX:
        return (call.tensor(call.round(result)), *places)
    rows, bags = bags_of(indices, offsets, len(result), padding)
    is_no_padding = indices.numpy().reshape(-1) != padding
    total = call.added_rows(
        times_weights(call, numbers_of(weight)[rows], weights, is_no_padding), bags, tuple(result.shape)
    )
    if mode == MEAN:
        check_mean(call)
        total = call.divide(total, _counts(bags, len(result)))
    return (call.tensor(total), *places)


def embedding_bag_backward(
    call: RuleCall, g: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, places: torch.Tensor,
    sizes: torch.Tensor, largest: torch.Tensor, count: int, by_frequency: bool, mode: int, sparse: bool,
    weights: torch.Tensor | None, padding: int = -1,
) -> torch.Tensor:  # fmt: skip
    """The gradient of the table."""
    check_options(by_frequency, sparse)
    bag_gradients, width = numbers_of(g), g.shape[1]
    call.begin()
    if mode == MAX:
        elements = largest.numpy() * width + np.arange(width)
        named = elements[sizes.numpy() > 0].reshape(-1)
        flat = bag_gradients[sizes.numpy() > 0].reshape(-1)
        return call.tensor(call.added_rows(flat, named, (count * width, 1)).reshape(count, width))
    if mode == MEAN:
        check_mean(call)
    rows, bags = bags_of(indices, offsets, len(bag_gradients), padding)
    share = call.divide(bag_gradients, _counts(bags, len(bag_gradients))) if mode == MEAN else bag_gradients
    is_no_padding = indices.numpy().reshape(-1) != padding
    return call.tensor(call.added_rows(times_weights(call, share[bags], weights, is_no_padding), rows, (count, width)))


def weights_backward(
    call: RuleCall, g: torch.Tensor, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor,
    places: torch.Tensor, mode: int, padding: int = -1,
) -> torch.Tensor:  # fmt: skip
    """The gradient of the rows' weights: sums of products of a bag's gradient and the row."""
    call.begin()
    rows, bags = bags_of(indices, offsets, len(g), padding)
    products = call.multiply(numbers_of(g)[bags], numbers_of(weight)[rows])
    gradient = np.zeros(indices.numel(), products.dtype)
    gradient[indices.numpy().reshape(-1) != padding] = call.sum(products, (1,))
    return call.tensor(gradient.reshape(tuple(indices.shape)))


def _counts(bags: NDArray[np.integer], count: int) -> NDArray[np.float64]:
    """How many rows every bag has; 1 for those without any."""
    return np.maximum(np.bincount(bags, minlength=count), 1).astype(np.float64)[:, np.newaxis]


#: By PyTorch's name.
TABLE: dict[str, Any] = {
    "_embedding_bag": Rule("embedding_bag", embedding_bag),
    "_embedding_bag_forward_only": Rule("embedding_bag", embedding_bag),  # of a table that needs no gradient
    "_embedding_bag_per_sample_weights_backward": Rule("embedding_bag", weights_backward),
    "_embedding_bag_backward": Rule("embedding_bag", embedding_bag_backward),
}
