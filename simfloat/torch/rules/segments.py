"""Sums, means, products, largest and smallest numbers of segments of an axis, and their gradients."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F

from simfloat.torch.handlers import Decomposition

Tensor = torch.Tensor

#: What a segment without elements comes to; the mean of none is no number.
EMPTY = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "max": -math.inf, "min": math.inf}


class Row(NamedTuple):
    """The elements of a place along the axes before that of segments, and where segments begin and end among them."""

    elements: Tensor
    borders: list[int]

    def segments(self) -> list[Tensor]:
        """The elements of every segment."""
        return [self.elements[start:end] for start, end in pairwise(self.borders)]


def rows_of(x: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> list[Row]:
    """The rows of x; there is one of segments that are along the first axis."""
    counts = lengths if offsets is None else offsets
    if counts is None:
        raise ValueError("segment_reduce takes the lengths of segments, or their offsets.")
    ends = counts.reshape(-1, counts.shape[-1]) if offsets is not None else F.pad(counts.cumsum(-1), (1, 0))
    rows = x.flatten(0, axis - 1) if axis else x.unsqueeze(0)
    return list(map(Row, rows, ends.reshape(len(rows), -1).tolist()))


def reduce_segment(part: Tensor, reduce: str, initial: float | None) -> Tensor:
    """One segment's: its elements in their order, behind the initial number where there is one."""
    if not len(part):
        return torch.full(part.shape[1:], EMPTY[reduce] if initial is None else initial, dtype=part.dtype)
    begun = part if initial is None else torch.cat([torch.full_like(part[:1], initial), part])
    if reduce in ("sum", "mean"):
        total = begun.sum(0)
        return total / len(part) if reduce == "mean" else total
    return begun.prod(0) if reduce == "prod" else begun.amax(0) if reduce == "max" else begun.amin(0)


def segment_reduce(
    x: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Every segment's, side by side along the axis."""
    rows = rows_of(x, lengths, offsets, axis)
    reductions = [reduce_segment(part, reduce, initial) for row in rows for part in row.segments()]
    shape = (*x.shape[:axis], -1, *x.shape[axis + 1 :])
    return (
        torch.stack(reductions).reshape(shape) * 1
        if reductions
        else x.new_zeros(*x.shape[:axis], 0, *x.shape[axis + 1 :])
    )


def segment_reduce_backward(
    g: Tensor, y: Tensor, x: Tensor, reduce: str, *, lengths: Tensor | None = None, offsets: Tensor | None = None,
    axis: int = 0, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """g to every element of a segment; of a mean g / n, of a product g * y / x, of an extreme to those equal to it.

    Several that are as large share g. A factor of zero gets g times the product of all others.
    """
    results, gradients, reached = iter(y.flatten(0, axis)), iter(g.flatten(0, axis)), []
    for elements, borders in rows_of(x, lengths, offsets, axis):
        # What lies outside of all segments reaches nothing.
        reached.append(torch.zeros_like(elements[: borders[0]]))
        for part in Row(elements, borders).segments():
            reached.append(segment_gradient(part, next(results), next(gradients), reduce, initial))
        reached.append(torch.zeros_like(elements[borders[-1] :]))
    return torch.cat(reached).reshape(x.shape)


def segment_gradient(part: Tensor, y: Tensor, g: Tensor, reduce: str, initial: float | None) -> Tensor:
    """The gradient of one segment's elements."""
    if not len(part):
        return torch.zeros_like(part)
    if reduce in ("sum", "mean"):
        share = g if reduce == "sum" else g / len(part)
        return share.unsqueeze(0).expand(part.shape).clone()
    if reduce == "prod":
        # g * y / x, as PyTorch has it, is NaN at x = 0.
        return torch.where((part == 0) | part.isnan(), g * without_each(part, initial), g * y / part)
    equal = (part == y) | part.isnan()
    counts = equal.sum(0).clamp(min=1)
    return torch.where(equal, torch.where(counts > 1, g / counts, g), torch.zeros_like(part))


def without_each(part: Tensor, initial: float | None) -> Tensor:
    """For every element the product of all others, from the first on."""
    first = torch.full_like(part[:1], 1.0 if initial is None else initial)
    return torch.stack([torch.cat([first, part[:i], part[i + 1 :]]).prod(0) for i in range(len(part))])


#: By PyTorch's name.
TABLE: dict[str, Decomposition] = {
    "segment_reduce": Decomposition("sum", segment_reduce),
    "_segment_reduce_backward": Decomposition("sum", segment_reduce_backward),
}
