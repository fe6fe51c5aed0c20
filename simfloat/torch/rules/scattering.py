"""Numbers that are added where several belong to one place: through `reduce`, in row-major order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.simulation import added_rows
from simfloat.torch.call import Call
from simfloat.torch.handlers import Handler, Movement, Ruled
from simfloat.torch.numbers import numbers_of
from simfloat.torch.tags import NOTHING, Tag

_aten = torch.ops.aten


def numbered(x: torch.Tensor) -> torch.Tensor:
    """The number of every element, in x's shape."""
    return torch.arange(x.numel()).reshape(x.shape)


def added_at(call: Call, x: torch.Tensor, places: torch.Tensor, values: NDArray) -> torch.Tensor:
    """x with values added at places, which are numbers of elements: first these, where they meet, and then x."""
    call.begin(x.shape)
    flat = np.ascontiguousarray(values).reshape(-1)
    total = added_rows(call.arithmetic, flat, places.reshape(-1).numpy(), (x.numel(), 1)).reshape(x.shape)
    numbers = numbers_of(x)
    return call.tensor(call.add(numbers, total) if numbers.any() else total)


def embedding_backward(
    call: Call, g: torch.Tensor, places: torch.Tensor, count: int, padding: int, by_frequency: bool
) -> torch.Tensor:
    """The gradient of a table of rows."""
    if by_frequency:
        raise ValueError("nn.Embedding(scale_grad_by_freq=True) has no rule; leave it out.")
    width = g.shape[-1]
    rows, names = numbers_of(g).reshape(-1, width), places.reshape(-1).numpy()
    call.begin((count, width))
    return call.tensor(added_rows(call.arithmetic, rows[names != padding], names[names != padding], (count, width)))


def index_put(
    call: Call, x: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False, *_: Any
) -> torch.Tensor:
    """x with values added at indices."""
    places = _aten.index(numbered(x), list(indices))
    return added_at(call, x, places, np.broadcast_to(numbers_of(values), places.shape))


def scatter_add(call: Call, x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """x with src added at places along an axis."""
    kept = numbers_of(src)[tuple(map(slice, index.shape))]
    return added_at(call, x, numbered(x).gather(dim, index), kept)


def index_add(
    call: Call, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> torch.Tensor:
    """x with alpha * source added at places along an axis."""
    call.begin(x.shape)
    return added_at(call, x, numbered(x).index_select(dim, index), call.times(float(alpha), source))


def max_pool2d_backward(call: Call, g: torch.Tensor, x: torch.Tensor, *options: Any) -> torch.Tensor:
    """The gradient of images, from the places that were the largest of windows."""
    places, pixels = options[-1], math.prod(x.shape[-2:])
    image = torch.arange(x.numel() // pixels).reshape(*x.shape[:-2], 1, 1) * pixels
    return added_at(call, torch.zeros_like(x), places + image, numbers_of(g))


def upsample_backward(call: Call, g: torch.Tensor, output: Any, size: Sequence[int], *_: Any) -> torch.Tensor:
    """The gradient of images whose pixels were repeated."""
    x = torch.zeros(tuple(size), dtype=g.dtype)
    places = _aten.upsample_nearest2d(numbered(x).double(), list(g.shape[-2:])).long()
    return added_at(call, x, places, numbers_of(g))


class IndexPut(Handler):
    """Numbers put at indices, or added there."""

    how = "rule"

    def __init__(self) -> None:
        self._added, self._moved = Ruled("index", index_put), Movement()

    def __call__(self, run: Any, func: Any, args: tuple[Any, ...], options: dict[str, Any], into: Tag = NOTHING) -> Any:
        """The first operand with the values at the indices."""
        accumulate = options.get("accumulate", args[3] if len(args) > 3 else False)
        return (self._added if accumulate else self._moved)(run, func, args, options, into)


#: By PyTorch's name.
TABLE: dict[str, Handler] = {
    "embedding_dense_backward": Ruled("embedding", embedding_backward),
    "index_put": IndexPut(),
    "_index_put_impl": IndexPut(),
    "_unsafe_index_put": IndexPut(),
    "scatter_add": Ruled("index", scatter_add),
    "index_add": Ruled("index", index_add),
    "max_pool2d_with_indices_backward": Ruled("max_pool2d", max_pool2d_backward),
    "upsample_nearest2d_backward": Ruled("index", upsample_backward),
}
