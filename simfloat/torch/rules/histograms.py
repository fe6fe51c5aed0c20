"""Histograms: borders of bins are rounded, and numbers counted between them, or their weights added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.handlers import Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensor_arrays import numbers_of, tensor_of

Tensor = torch.Tensor
_aten = torch.ops.aten


def borders_of(call: RuleCall, x: Tensor, bins: Sequence[int], **options: Any) -> list[NDArray]:
    """The borders of bins of one size along every column of x (M, N), as PyTorch finds them, rounded."""
    call.begin()
    return [call.round(edges) for edges in _aten._histogramdd_bin_edges(x, bins, **options)]


def count_in_bins(
    call: RuleCall, x: Tensor, borders: Sequence[NDArray], weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """How many rows of x (M, N) each bin holds, which is exact, or the sum of their weights, in their order.

    A bin has its lower border, the last one its upper border too. As a density these are divided by their sum, then by
    the widths of bins along each column.
    """
    shape = [len(edges) - 1 for edges in borders]
    rows, is_inside, places = numbers_of(x), np.ones(len(x), bool), []
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
    """The borders of bins along every column."""
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


#: By PyTorch's name.
TABLE: dict[str, Rule] = {
    "histogram.bin_ct": Rule("sum", histogram),
    "histogram.bins_tensor": Rule("sum", histogram_between),
    "_histogramdd_bin_edges": Rule("sum", histogram_borders),
    "_histogramdd_from_bin_cts": Rule("sum", histogram_of_rows),
    "_histogramdd_from_bin_tensors": Rule("sum", histogram_of_rows_between),
}
