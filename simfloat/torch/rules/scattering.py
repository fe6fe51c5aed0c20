"""Rules that add several values at one position, and bags of embeddings.

Additions use `reduce`, in row-major order. A bag is the sum, mean or maximum of rows of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.handlers import Handler, Movement, Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensors import NOTHING, Tag, array_on, numbers_of

_aten = torch.ops.aten


def element_numbers(x: torch.Tensor) -> torch.Tensor:
    """Return the index of every element, in the shape of x."""
    return torch.arange(x.numel(), device=x.device).reshape(x.shape)


def add_at(call: RuleCall, x: torch.Tensor, places: torch.Tensor, values: NDArray) -> torch.Tensor:
    """Return x with values added at places, which are indices of elements.

    Values at the same place are added first, and then x.
    """
    call.begin()
    flat = values.reshape(-1)
    # `reduce` may be any accumulator, so the values of an element are one sum, to which x is added once.
    total = call.added_rows(flat, array_on(places.reshape(-1)), (x.numel(), 1)).reshape(x.shape)
    array = numbers_of(x)
    return call.tensor(call.add(array, total) if array.any() else total)


def embedding_backward(
    call: RuleCall, g: torch.Tensor, places: torch.Tensor, count: int, padding: int, by_frequency: bool
) -> torch.Tensor:
    """Return the gradient of a table of rows; `by_frequency` multiplies each share by 1 / the count of its row."""
    width = g.shape[-1]
    rows, names = numbers_of(g).reshape(-1, width), array_on(places.reshape(-1))
    call.begin()
    rows, names = rows[names != padding], names[names != padding]
    if by_frequency:
        rows = call.multiply(rows, 1 / np.bincount(names)[names][:, np.newaxis])
    return call.tensor(call.added_rows(rows, names, (count, width)))


def index_put(
    call: RuleCall, x: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False, *_: Any
) -> torch.Tensor:
    """Return x with values added at indices."""
    places = _aten.index(element_numbers(x), list(indices))
    return add_at(call, x, places, np.broadcast_to(numbers_of(values), places.shape))


def masked_put(
    call: RuleCall, x: torch.Tensor, mask: torch.Tensor, indices: Sequence[Any], values: torch.Tensor
) -> torch.Tensor:
    """Return x with values added at the indices that a mask keeps."""
    places = _aten.index(
        element_numbers(x), [None if index is None else torch.where(mask, index, 0) for index in indices]
    )
    is_put = mask.reshape(*mask.shape, *[1] * (places.ndim - mask.ndim)).expand(places.shape)
    return add_at(call, x, places[is_put], numbers_of(values.expand(places.shape)[is_put]))


def scatter_add(call: RuleCall, x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Return x with src added at places along an axis."""
    values = numbers_of(src)[tuple(map(slice, index.shape))]
    return add_at(call, x, element_numbers(x).gather(dim, index), values)


def index_add(
    call: RuleCall, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> torch.Tensor:
    """Return x with alpha * source added at places along an axis."""
    call.begin()
    return add_at(call, x, element_numbers(x).index_select(dim, index), call.times(float(alpha), source))


def put(call: RuleCall, x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool) -> torch.Tensor:
    """Return x with source added at the elements of these indices."""
    return add_at(call, x, index % max(x.numel(), 1), numbers_of(source))


def scatter_reduce(
    call: RuleCall, x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *,
    include_self: bool = True,
) -> torch.Tensor:  # fmt: skip
    """Return x with src at places along an axis: summed, averaged, multiplied, or the largest or smallest of all."""
    if reduce in ("amax", "amin"):
        extremes = x.scatter_reduce(dim, index, src, reduce, include_self=include_self)
        call.begin()
        return call.tensor(call.round(extremes))
    if reduce == "prod":
        return multiply_at(
            call, x, element_numbers(x).gather(dim, index), src[tuple(map(slice, index.shape))], include_self
        )
    total = scatter_add(call, x if include_self else x.scatter(dim, index, 0.0), dim, index, src)
    if reduce == "sum":
        return total
    begun = torch.full(x.shape, float(include_self), dtype=torch.float64, device=x.device)
    counts = begun.scatter_add(dim, index, torch.ones(index.shape, dtype=torch.float64, device=x.device)).clamp(min=1)
    return call.tensor(call.divide(total, counts))


def multiply_at(
    call: RuleCall, x: torch.Tensor, places: torch.Tensor, src: torch.Tensor, include_self: bool
) -> torch.Tensor:
    """Multiply the elements of x, or ones, by their factors in order; every product is rounded."""
    call.begin()
    names, factors = array_on(places.reshape(-1)), numbers_of(src).reshape(-1)
    products = numbers_of(x).copy().reshape(-1)
    if not include_self:
        products[names] = 1
    # First the first factor of every element, then the second one, and so on. The sort is stable, so that factors of
    # one element keep their order.
    order = np.argsort(names, kind="stable")
    names, factors = names[order], factors[order]
    turn = np.arange(len(names), like=names) - np.searchsorted(names, names)
    for number in range(int(turn.max(initial=-1)) + 1):
        now = turn == number
        products[names[now]] = call.multiply(products[names[now]], factors[now])
    return call.tensor(call.round(products).reshape(x.shape))


def index_reduce(
    call: RuleCall, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *,
    include_self: bool = True,
) -> torch.Tensor:  # fmt: skip
    """Reduce whole slices of source into x along an axis, as `scatter_reduce` does single elements."""
    if not x.ndim:
        x, source = x.reshape(1), source.reshape(1)
    shape = [-1 if axis == dim % x.ndim else 1 for axis in range(x.ndim)]
    places = index.reshape(shape).expand(source.shape)
    reduced = scatter_reduce(call, x, dim, places, source, reduce, include_self=include_self)
    return reduced.reshape(call.operands[0].shape)


class Put(Handler):
    """Values that are put at positions, or added there."""

    how = "rule"

    def __init__(self, added: Callable[..., torch.Tensor]) -> None:
        self._added, self._moved = Rule("index", added), Movement(puts_in=True)

    def __call__(self, run: Any, func: Any, args: tuple[Any, ...], options: dict[str, Any], into: Tag = NOTHING) -> Any:
        """Return the first operand with the values at the indices."""
        accumulate = options.get("accumulate", args[3] if len(args) > 3 else False)
        return (self._added if accumulate else self._moved)(run, func, args, options, into)


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "embedding_dense_backward": Rule("embedding", embedding_backward),
    "index_put": Put(index_put),
    "_index_put_impl": Put(index_put),
    "_unsafe_index_put": Put(index_put),
    "_unsafe_masked_index_put_accumulate": Rule("index", masked_put),
    "put": Put(put),
    "scatter_reduce": Rule("index", scatter_reduce),
    "index_reduce": Rule("index", index_reduce),
    "scatter_add": Rule("index", scatter_add),
    "index_add": Rule("index", index_add),
}


#: PyTorch's numbers of the reductions of a bag's rows.
MEAN, MAX = 1, 2


def bags_of(
    indices: torch.Tensor, offsets: torch.Tensor, count: int, padding: int
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return the row and the bag of every index that is not padding."""
    rows, starts = array_on(indices).reshape(-1), array_on(offsets)[:count]
    bags = np.searchsorted(starts, np.arange(len(rows), like=rows), side="right") - 1
    return rows[rows != padding], bags[rows != padding]


def check_options(by_frequency: bool, has_sparse_gradient: bool = False) -> None:
    """Raise ValueError for an option without a rule."""
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
    """Return rows times their weights, if there are any; each product is rounded."""
    return rows if weights is None else call.multiply(rows, numbers_of(weights).reshape(-1)[is_no_padding, np.newaxis])


def check_mean(call: RuleCall) -> None:
    """Raise ValueError for a mean under a policy that rounds it once: the sum would be rounded before the division."""
    if call.phase.is_fused:
        raise ValueError(
            f"{call.name} with mode='mean' cannot be rounded once; add .override(operation='embedding_bag', "
            "fused=False) to the policy, or divide sums in the model."
        )


def embedding_bag(
    call: RuleCall, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, by_frequency: bool = False,
    mode: int = 0, sparse: bool = False, weights: torch.Tensor | None = None, has_last: bool = False, padding: int = -1,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Return the sum of every bag's rows, in order; or their mean, with sum and quotient rounded; or their maximum."""
    check_options(by_frequency)
    outputs = torch.ops.aten._embedding_bag(
        weight, indices, offsets, by_frequency, mode, sparse, weights, has_last, padding
    )
    result, *places = outputs
    call.begin()
    if mode == MAX:
        return (call.tensor(call.round(result)), *places)
    rows, bags = bags_of(indices, offsets, len(result), padding)
    is_no_padding = array_on(indices).reshape(-1) != padding
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
    """Return the gradient of the table."""
    check_options(by_frequency, sparse)
    bag_gradients, width = numbers_of(g), g.shape[1]
    call.begin()
    if mode == MAX:
        elements = array_on(largest) * width + np.arange(width, like=bag_gradients)
        named = elements[array_on(sizes) > 0].reshape(-1)
        flat = bag_gradients[array_on(sizes) > 0].reshape(-1)
        return call.tensor(call.added_rows(flat, named, (count * width, 1)).reshape(count, width))
    if mode == MEAN:
        check_mean(call)
    rows, bags = bags_of(indices, offsets, len(bag_gradients), padding)
    share = call.divide(bag_gradients, _counts(bags, len(bag_gradients))) if mode == MEAN else bag_gradients
    is_no_padding = array_on(indices).reshape(-1) != padding
    return call.tensor(call.added_rows(times_weights(call, share[bags], weights, is_no_padding), rows, (count, width)))


def weights_backward(
    call: RuleCall, g: torch.Tensor, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor,
    places: torch.Tensor, mode: int, padding: int = -1,
) -> torch.Tensor:  # fmt: skip
    """Return the gradient of the rows' weights: sums of products of a bag's gradient and the row."""
    call.begin()
    rows, bags = bags_of(indices, offsets, len(g), padding)
    products = call.multiply(numbers_of(g)[bags], numbers_of(weight)[rows])
    gradient = np.zeros(indices.numel(), products.dtype, like=products)
    gradient[array_on(indices).reshape(-1) != padding] = call.sum(products, (1,))
    return call.tensor(gradient.reshape(tuple(indices.shape)))


def _counts(bags: NDArray[np.integer], count: int) -> NDArray[np.float64]:
    """Return the number of rows of every bag, and 1 for an empty bag."""
    return np.maximum(np.bincount(bags, minlength=count), 1).astype(np.float64)[:, np.newaxis]


#: Rules, by PyTorch's name.
TABLE |= {
    "_embedding_bag": Rule("embedding_bag", embedding_bag),
    "_embedding_bag_forward_only": Rule("embedding_bag", embedding_bag),  # if the table needs no gradient
    "_embedding_bag_per_sample_weights_backward": Rule("embedding_bag", weights_backward),
    "_embedding_bag_backward": Rule("embedding_bag", embedding_bag_backward),
}
