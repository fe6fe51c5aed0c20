"""Sums, means and their like, through the policy's `reduce`; and largest elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensor_arrays import numbers_of

Axes = int | Sequence[int] | None


def axes_of(x: torch.Tensor | NDArray, dim: Axes) -> tuple[int, ...]:
    """Axes as ascending numbers from 0; all of them for None and for none. ValueError for one that x does not have."""
    axes = [dim] if isinstance(dim, int) else list(dim or range(x.ndim))
    last = max(1, x.ndim) - 1
    for axis in axes:
        if not -last - 1 <= axis <= last:
            raise ValueError(f"dim must lie between {-last - 1} and {last} for shape {tuple(x.shape)}, got {axis}.")
    return tuple(sorted({axis % x.ndim for axis in axes})) if x.ndim else ()


def shape_without(x: torch.Tensor, axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The shape of what is left of x without these axes, or with one element along each."""
    return tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes)


def sum_over_axes(call: RuleCall, x: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """The sum over axes, in row-major order."""
    axes = axes_of(x, dim)
    shape = shape_without(x, axes, keepdim)
    call.begin()
    return call.tensor(call.sum(x, axes).reshape(shape))


def mean_over_axes(call: RuleCall, x: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """The sum, divided by the number of terms: two roundings."""
    axes = axes_of(x, dim)
    shape = shape_without(x, axes, keepdim)
    call.begin()
    return call.tensor(_mean(call, x, axes).reshape(shape))


def norm_over_axes(
    call: RuleCall, x: torch.Tensor, ord: float = 2, dim: Axes = None, keepdim: bool = False
) -> torch.Tensor:
    """The p-norm: powers, sum and root, each rounded; the largest |x| for inf, the least for -inf.

    For 0 it is how many are not zero.
    """
    axes = axes_of(x, dim)
    shape = shape_without(x, axes, keepdim)
    call.begin()
    return call.tensor(_norm(call, x.abs(), float(ord), axes).reshape(shape))


def cumsum(call: RuleCall, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The sums of all elements up to each along an axis, every one a sum of its own."""
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
    """The product along an axis, or of all elements, from the first on: every product is rounded."""
    axes = axes_of(x, dim)
    shape = shape_without(x, axes, keepdim)
    call.begin()
    rows = numbers_of(x) if dim is None or not x.ndim else np.moveaxis(numbers_of(x), dim, 0)
    rows = rows if dim is not None and x.ndim else rows.reshape(-1)
    return call.tensor(_products(call, rows)[-1].reshape(shape) if len(rows) else np.ones(shape, rows.dtype))


def cumprod(call: RuleCall, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The products of all elements up to each along an axis."""
    call.begin()
    if not x.numel() or not x.ndim:
        return call.tensor(call.round(x))
    return call.tensor(np.moveaxis(_products(call, np.moveaxis(numbers_of(x), dim, 0)), 0, dim))


def _products(call: RuleCall, rows: NDArray) -> NDArray:
    return call.running_products(rows.reshape(len(rows), -1)).reshape(rows.shape)


def rule_of_selection(function: Any) -> Any:
    """A rule that rounds the numbers that PyTorch chooses, and leaves the places where it found them."""

    def rule(call: RuleCall, *args: Any, **options: Any) -> Any:
        selected = function(*args, **options)
        values = selected if isinstance(selected, torch.Tensor) else selected[0]
        call.begin()
        rounded = call.tensor(call.round(values))
        return rounded if isinstance(selected, torch.Tensor) else (rounded, *selected[1:])

    return rule


def nansum(x: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """The sum over axes, NaN taken for 0."""
    return torch.where(x.isnan(), torch.zeros_like(x), x).sum(axes_of(x, dim), keepdim)


def trace(x: torch.Tensor) -> torch.Tensor:
    """The sum of the diagonal."""
    return x.diagonal().sum()


def aminmax(x: torch.Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest and the largest number, of all or along an axis."""
    axes = [] if dim is None else [dim]
    return x.amin(axes, keepdim), x.amax(axes, keepdim)


_aten = torch.ops.aten

#: By PyTorch's name, with the overload where there are several meanings.
TABLE: dict[str, Handler] = {
    "sum": Rule("sum", sum_over_axes),
    "cumsum": Rule("sum", cumsum),
    "prod": Rule("prod", prod),
    "cumprod": Rule("prod", cumprod),
    "nansum": Decomposition("sum", nansum),
    "trace": Decomposition("sum", trace),
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
