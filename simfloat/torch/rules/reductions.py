"""Rules of reductions: sums, means, products, extremes, segments of an axis, and histograms.

Sums and means use the `reduce` of the policy. The gradients of segments are also in this module. The borders of
histogram bins are rounded; the values between them are counted, or their weights are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensors import host_numbers, numbers_of, tensor_of

Axes = int | Sequence[int] | None


def axes_of(x: torch.Tensor | NDArray, dim: Axes) -> tuple[int, ...]:
    """Return axes as ascending numbers from 0; None and an empty list mean all.

    Raises ValueError for an invalid axis.
    """
    axes = [dim] if isinstance(dim, int) else list(dim or range(x.ndim))
    last = max(1, x.ndim) - 1
    for axis in axes:
        if not -last - 1 <= axis <= last:
            raise ValueError(f"dim must be between {-last - 1} and {last} for shape {tuple(x.shape)}, got {axis}.")
    return tuple(sorted({axis % x.ndim for axis in axes})) if x.ndim else ()


def shape_without(x: torch.Tensor, axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """Return the shape of x without these axes, or with one element along each of them."""
    return tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes)


def sum_over_axes(call: RuleCall, x: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """Return the sum over axes, in row-major order."""
    axes = axes_of(x, dim)
    shape = shape_without(x, axes, keepdim)
    call.begin()
    return call.tensor(call.sum(x, axes).reshape(shape))


def mean_over_axes(call: RuleCall, x: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """Return the sum, divided by the number of terms, with two roundings."""
    axes = axes_of(x, dim)
    shape = shape_without(x, axes, keepdim)
    call.begin()
    return call.tensor(_mean(call, x, axes).reshape(shape))


def norm_over_axes(
    call: RuleCall, x: torch.Tensor, ord: float = 2, dim: Axes = None, keepdim: bool = False
) -> torch.Tensor:
    """Return the p-norm: powers, sum and root, each rounded; the largest |x| for inf, the smallest for -inf.

    For 0 it is the number of nonzero elements.
    """
    axes = axes_of(x, dim)
    shape = shape_without(x, axes, keepdim)
    call.begin()
    return call.tensor(_norm(call, x.abs(), float(ord), axes).reshape(shape))


def cumsum(call: RuleCall, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the sums of all elements up to each one along an axis; every result is a separate sum."""
    call.begin()
    if not x.ndim:
        return call.tensor(call.round(x))
    if not x.numel():
        return call.tensor(numbers_of(x))
    rows = numbers_of(x.movedim(dim, 0).contiguous())
    sums = call.running_sums(rows.reshape(len(rows), -1))
    return call.tensor(np.moveaxis(sums.reshape(rows.shape), 0, dim))


def _mean(call: RuleCall, x: torch.Tensor, axes: tuple[int, ...]) -> NDArray:
    return call.divide(call.sum(x, axes), float(math.prod(x.shape[axis] for axis in axes)))


def _norm(call: RuleCall, size: torch.Tensor, p: float, axes: tuple[int, ...]) -> NDArray:
    magnitudes = numbers_of(size)
    if p == math.inf:
        return call.round(magnitudes.max(axes, initial=0.0))
    if p == -math.inf:
        return call.round(magnitudes.min(axes))
    if p in (0, 1):
        return call.sum(magnitudes if p else (magnitudes != 0).astype(magnitudes.dtype), axes)
    if p == 2:
        return call.apply("sqrt", call.sum(call.multiply(magnitudes, magnitudes), axes))
    return call.apply("power", call.sum(call.apply("power", magnitudes, p), axes), 1 / p)


def prod(call: RuleCall, x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """Return the product along an axis, or of all elements, in order; every product is rounded."""
    axes = axes_of(x, dim)
    shape = shape_without(x, axes, keepdim)
    call.begin()
    rows = numbers_of(x) if dim is None or not x.ndim else np.moveaxis(numbers_of(x), dim, 0)
    rows = rows if dim is not None and x.ndim else rows.reshape(-1)
    return call.tensor(_products(call, rows)[-1].reshape(shape) if len(rows) else np.ones(shape, rows.dtype, like=rows))


def cumprod(call: RuleCall, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the products of all elements up to each one along an axis."""
    call.begin()
    if not x.numel() or not x.ndim:
        return call.tensor(call.round(x))
    return call.tensor(np.moveaxis(_products(call, np.moveaxis(numbers_of(x), dim, 0)), 0, dim))


def _products(call: RuleCall, rows: NDArray) -> NDArray:
    return call.running_products(rows.reshape(len(rows), -1)).reshape(rows.shape)


def rule_of_selection(function: Any) -> Any:
    """Return a rule that rounds the values that PyTorch chooses, and does not change their indices."""

    def rule(call: RuleCall, *args: Any, **options: Any) -> Any:
        call.operands = call.operands[:1]  # the random numbers that choose windows widen no result
        selected = function(*args, **options)
        values = selected if isinstance(selected, torch.Tensor) else selected[0]
        call.begin()
        rounded = call.tensor(call.round(values))
        return rounded if isinstance(selected, torch.Tensor) else (rounded, *selected[1:])

    return rule


def nansum(x: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """Return the sum over axes, with NaN replaced by 0."""
    return torch.where(x.isnan(), torch.zeros_like(x), x).sum(axes_of(x, dim), keepdim)


def trace(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of the diagonal."""
    return x.diagonal().sum()


def aminmax(x: torch.Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and the largest value, of all elements or along an axis."""
    axes = [] if dim is None else [dim]
    return x.amin(axes, keepdim), x.amax(axes, keepdim)


_aten = torch.ops.aten

#: By PyTorch's name, with the overload if there are several meanings.
TABLE: dict[str, Handler] = {
    "sum": Rule("sum", sum_over_axes),
    "cumsum": Rule("sum", cumsum),
    "prod": Rule("prod", prod),
    "cumprod": Rule("prod", cumprod),
    "nansum": Decomposition("nansum", nansum),
    "trace": Decomposition("trace", trace),
    "mean": Rule("mean", mean_over_axes),
    "linalg_vector_norm": Rule("sum", norm_over_axes),
    "norm.Scalar": Rule("sum", norm_over_axes),
    "norm.ScalarOpt_dim": Rule("sum", norm_over_axes),
    "amax": Rule("max", rule_of_selection(_aten.amax)),
    "amin": Rule("min", rule_of_selection(_aten.amin)),
    "max.default": Rule("max", rule_of_selection(_aten.max)),
    "max.dim": Rule("max", rule_of_selection(_aten.max)),
    "min.default": Rule("min", rule_of_selection(_aten.min)),
    "min.dim": Rule("min", rule_of_selection(_aten.min)),
    "cummax": Rule("max", rule_of_selection(_aten.cummax)),
    "cummin": Rule("min", rule_of_selection(_aten.cummin)),
    "aminmax": Decomposition("max", aminmax, 2),
    **{
        name: Rule("max", rule_of_selection(getattr(_aten, name)))
        for name in ("median", "nanmedian", "kthvalue", "mode")
    },
    **{
        name: Rule("max_pool2d", rule_of_selection(getattr(_aten, name)))
        for name in (
            "max_pool2d_with_indices",
            "max_pool3d_with_indices",
            "adaptive_max_pool2d",
            "adaptive_max_pool3d",
            "fractional_max_pool2d",
            "fractional_max_pool3d",
        )
    },
}


Tensor = torch.Tensor

#: The result of a segment without elements; its mean is NaN.
EMPTY = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "max": -math.inf, "min": math.inf}


class Row(NamedTuple):
    """The elements at one index of the axes before the segment axis, and the borders of the segments."""

    elements: Tensor
    borders: list[int]

    def segments(self) -> list[Tensor]:
        """Return the elements of every segment."""
        return [self.elements[start:end] for start, end in pairwise(self.borders)]


def rows_of(x: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> list[Row]:
    """Return the rows of x; if segments are along the first axis, there is one row."""
    counts = lengths if offsets is None else offsets
    if counts is None:
        raise ValueError("segment_reduce takes the lengths of segments, or their offsets.")
    ends = counts.reshape(-1, counts.shape[-1]) if offsets is not None else F.pad(counts.cumsum(-1), (1, 0))
    rows = x.flatten(0, axis - 1) if axis else x.unsqueeze(0)
    return list(map(Row, rows, ends.reshape(len(rows), -1).tolist()))


def reduce_segment(part: Tensor, reduce: str, initial: float | None) -> Tensor:
    """Reduce one segment: its elements in order, after the initial value if there is one."""
    if not len(part):
        return torch.full(
            part.shape[1:], EMPTY[reduce] if initial is None else initial, dtype=part.dtype, device=part.device
        )
    begun = part if initial is None else torch.cat([torch.full_like(part[:1], initial), part])
    if reduce in ("sum", "mean"):
        total = begun.sum(0)
        return total / len(part) if reduce == "mean" else total
    return begun.prod(0) if reduce == "prod" else begun.amax(0) if reduce == "max" else begun.amin(0)


def segment_reduce(
    x: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Reduce every segment; the results are concatenated along the axis."""
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
    """Return the gradient of x.

    Every element of a segment receives g for a sum, g / n for a mean, g * y / x for a product. For an extreme, the
    elements that equal it share g. A factor of zero receives g times the product of all others.
    """
    results, gradients, reached = iter(y.flatten(0, axis)), iter(g.flatten(0, axis)), []
    for elements, borders in rows_of(x, lengths, offsets, axis):
        # Elements outside all segments receive no gradient.
        reached.append(torch.zeros_like(elements[: borders[0]]))
        for part in Row(elements, borders).segments():
            reached.append(segment_gradient(part, next(results), next(gradients), reduce, initial))
        reached.append(torch.zeros_like(elements[borders[-1] :]))
    return torch.cat(reached).reshape(x.shape)


def segment_gradient(part: Tensor, y: Tensor, g: Tensor, reduce: str, initial: float | None) -> Tensor:
    """Return the gradient of the elements of one segment."""
    if not len(part):
        return torch.zeros_like(part)
    if reduce in ("sum", "mean"):
        share = g if reduce == "sum" else g / len(part)
        return share.unsqueeze(0).expand(part.shape).clone()
    if reduce == "prod":
        # PyTorch's g * y / x is NaN at x = 0.
        return torch.where((part == 0) | part.isnan(), g * without_each(part, initial), g * y / part)
    equal = (part == y) | part.isnan()
    counts = equal.sum(0).clamp(min=1)
    return torch.where(equal, torch.where(counts > 1, g / counts, g), torch.zeros_like(part))


def without_each(part: Tensor, initial: float | None) -> Tensor:
    """Return for every element the product of all others, in order."""
    first = torch.full_like(part[:1], 1.0 if initial is None else initial)
    return torch.stack([torch.cat([first, part[:i], part[i + 1 :]]).prod(0) for i in range(len(part))])


#: Rules, by PyTorch's name.
TABLE |= {
    "segment_reduce": Decomposition("sum", segment_reduce),
    "_segment_reduce_backward": Decomposition("sum", segment_reduce_backward),
}


def borders_of(call: RuleCall, x: Tensor, bins: Sequence[int], **options: Any) -> list[NDArray]:
    """Return the borders of bins of equal width along every column of x (M, N), computed by PyTorch, and rounded."""
    call.begin()
    return [call.round(edges) for edges in _aten._histogramdd_bin_edges(x, bins, **options)]


def count_in_bins(
    call: RuleCall, x: Tensor, borders: Sequence[NDArray], weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """Return the exact number of rows of x (M, N) in each bin, or the sum of their weights in order.

    A bin includes its lower border; the last one also includes its upper border. With `density` the results are divided
    by their sum, and then by the widths of bins along each column.
    """
    shape = [len(edges) - 1 for edges in borders]
    rows, is_inside, places = host_numbers(x), np.ones(len(x), bool), []
    for column, edges in enumerate(borders):
        number = rows[:, column]
        is_inside &= (number >= edges[0]) & (number <= edges[-1])
        places.append(np.minimum(np.searchsorted(edges, number, side="right") - 1, len(edges) - 2))
    flat = np.ravel_multi_index([place[is_inside] for place in places], shape)
    size = math.prod(shape)
    call.begin()
    if weight is None:
        totals = np.bincount(flat, minlength=size).astype(np.float64).reshape(shape)
        if not density:
            return tensor_of(totals, call.dtype)
    else:
        totals = call.added_rows(numbers_of(weight).reshape(-1)[is_inside], flat, (size, 1)).reshape(shape)
    if density:
        totals = call.divide(totals, call.sum(totals, tuple(range(totals.ndim))))
        for column, edges in enumerate(borders):
            widths = call.subtract(edges[1:], edges[:-1])
            totals = call.divide(totals, widths.reshape([-1 if axis == column else 1 for axis in range(totals.ndim)]))
    return call.tensor(totals)


def histogram(
    call: RuleCall, x: Tensor, bins: int = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the contents of `bins` bins of equal width, and their borders."""
    borders = borders_of(call, x.reshape(-1, 1), [bins], range=range)
    edges = call.tensor(borders[0])
    return count_in_bins(call, x.reshape(-1, 1), borders, weight, density), edges


def histogram_between(
    call: RuleCall, x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the contents of bins with these borders, and the borders."""
    call.begin()
    borders = [call.round(bins)]
    edges = call.tensor(borders[0])
    return count_in_bins(call, x.reshape(-1, 1), borders, weight, density), edges


def histogram_borders(call: RuleCall, x: Tensor, bins: Sequence[int], *, range: Any = None, **_: Any) -> list[Tensor]:
    """Return the borders of bins along every column."""
    return [call.tensor(edges) for edges in borders_of(call, x, bins, range=range)]


def histogram_of_rows(
    call: RuleCall, x: Tensor, bins: Sequence[int], *, range: Any = None, weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:  # fmt: skip
    """Return the contents of bins of equal width along every column."""
    rows = x.flatten(0, -2)
    return count_in_bins(call, rows, borders_of(call, rows, bins, range=range), weight, density)


def histogram_of_rows_between(
    call: RuleCall, x: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """Return the contents of bins with these borders along every column."""
    call.begin()
    return count_in_bins(call, x.flatten(0, -2), [call.round(edges) for edges in bins], weight, density)


#: Rules, by PyTorch's name.
TABLE |= {
    "histogram.bin_ct": Rule("sum", histogram),
    "histogram.bins_tensor": Rule("sum", histogram_between),
    "_histogramdd_bin_edges": Rule("sum", histogram_borders),
    "_histogramdd_from_bin_cts": Rule("sum", histogram_of_rows),
    "_histogramdd_from_bin_tensors": Rule("sum", histogram_of_rows_between),
}
