"""Normalization: of layers, batches and groups, forward and backward, in PyTorch's operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from simfloat.torch.handlers import Composed
from simfloat.torch.phases import target_operand
from simfloat.torch.rules.aten_reductions import axes_of

Tensor = torch.Tensor
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def normalized(x: Tensor, axes: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """d * rsqrt(mean(d * d) + eps) with d = x - mean(x); the mean, and the factor."""
    mean = x.mean(axes, keepdim=True)
    d = x - mean
    factor = ((d * d).mean(axes, keepdim=True) + eps).rsqrt()
    return d * factor, mean, factor


def normalized_slope(g: Tensor, y: Tensor, factor: Tensor, axes: list[int]) -> Tensor:
    """(g - mean(g) - y * mean(g * y)) * factor, y being what was normalized."""
    return (g - g.mean(axes, keepdim=True) - y * (g * y).mean(axes, keepdim=True)) * factor


def scaled(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y * weight + bias, as far as there are any."""
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def sums(
    g: Tensor, normal: Callable[[], Tensor], axes: list[int], shape: Sequence[int], mask: Sequence[bool],
    has_weight: bool = True,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of weight and bias: the sums of g * y and of g, all being rounded by the role of what is reached.

    `normal` computes y, what was normalized, anew.
    """
    found: list[Tensor | None] = []
    for number, wanted in enumerate(mask[1:], 1):
        with target_operand(number if has_weight else 1):
            terms = g * normal() if number == 1 and wanted else g
            found.append((terms.sum(axes) if axes else terms * 1.0).reshape(shape) if wanted else None)
    to_weight, to_bias = found
    return to_weight, to_bias


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, the means and the factors; ValueError for another shape than that of x's last axes."""
    shapes = [x.shape[-len(shape) :], *(y.shape for y in (weight, bias) if y is not None)]
    if any(tuple(each) != tuple(shape) for each in shapes):
        raise ValueError(
            f"layer_norm takes x whose shape ends with {tuple(shape)}, and a weight and a bias of that shape; "
            f"got x of shape {tuple(x.shape)} and shapes {[tuple(each) for each in shapes]}."
        )
    y, mean, factor = normalized(x, list(range(x.ndim - len(shape), x.ndim)), eps)
    return scaled(y, weight, bias), mean, factor


def layer_norm_backward(
    g: Tensor, x: Tensor, shape: Sequence[int], mean: Tensor, factor: Tensor, weight: Tensor | None,
    bias: Tensor | None, mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    """The gradients of x, weight and bias."""
    outer, inner = list(range(x.ndim - len(shape))), list(range(x.ndim - len(shape), x.ndim))

    def normal() -> Tensor:
        return (x - mean) * factor

    to_x = None
    if mask[0]:
        with target_operand(0):
            to_x = normalized_slope(g if weight is None else g * weight, normal(), factor, inner)
    return to_x, *sums(g, normal, outer, shape, mask, weight is not None)


def channels(x: Tensor, vector: Tensor) -> Tensor:
    """One number for each channel, to be broadcast to (N, C, ...)."""
    return vector.reshape(1, -1, *[1] * (x.ndim - 2))


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The result, means and factors of the batch; running statistics take a step towards the batch's.

    Where these are used instead, there are no means and factors, as in PyTorch.
    """
    axes = [axis for axis in range(x.ndim) if axis != 1]
    rows = [None if vector is None else channels(x, vector) for vector in (weight, bias)]
    if not training and running_mean is not None and running_var is not None:
        y = (x - channels(x, running_mean)) * channels(x, (running_var + eps).rsqrt())
        return scaled(y, *rows), x.new_empty(0), x.new_empty(0)
    mean = x.mean(axes)
    d = x - channels(x, mean)
    total, count = (d * d).sum(axes), x.numel() // x.shape[1]
    factor = (total / count + eps).rsqrt()
    if running_mean is not None and running_var is not None:
        running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
        running_var.copy_(running_var * (1 - momentum) + total / (count - 1) * momentum)
    return scaled(d * channels(x, factor), *rows), mean.clone(), factor


def batch_norm_backward(
    g: Tensor, x: Tensor, weight: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    mean: Tensor, factor: Tensor, training: bool, eps: float, mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    """The gradients of x, weight and bias."""
    axes = [axis for axis in range(x.ndim) if axis != 1]
    is_own = not training and running_mean is not None and running_var is not None

    def scale() -> Tensor:
        return channels(x, (running_var + eps).rsqrt() if is_own and running_var is not None else factor)

    def normal() -> Tensor:
        return (x - channels(x, running_mean if is_own and running_mean is not None else mean)) * scale()

    to_x = None
    if mask[0]:
        with target_operand(0):
            passed = g if weight is None else g * channels(x, weight)
            to_x = normalized_slope(passed, normal(), scale(), axes) if training else passed * scale()
    return to_x, *sums(g, normal, axes, (x.shape[1],), mask, weight is not None)


def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the mean and factor of every group."""
    y, mean, factor = normalized(x.reshape(n, groups, c // groups * hxw), [2], eps)
    rows = [None if vector is None else channels(x, vector) for vector in (weight, bias)]
    return scaled(y.reshape(x.shape), *rows), mean.reshape(n, groups), factor.reshape(n, groups)


def group_norm_backward(
    g: Tensor, x: Tensor, mean: Tensor, factor: Tensor, weight: Tensor | None, n: int, c: int, hxw: int, groups: int,
    mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    """The gradients of x, weight and bias."""
    shape, axes = (n, groups, c // groups * hxw), [axis for axis in range(x.ndim) if axis != 1]
    by_group = factor.reshape(n, groups, 1)

    def normal() -> Tensor:
        return (x.reshape(shape) - mean.reshape(n, groups, 1)) * by_group

    to_x = None
    if mask[0]:
        with target_operand(0):
            passed = g if weight is None else g * channels(x, weight)
            to_x = normalized_slope(passed.reshape(shape), normal(), by_group, [2]).reshape(x.shape)
    return to_x, *sums(g, lambda: normal().reshape(x.shape), axes, (c,), mask, weight is not None)


def variance(x: Tensor, axes: Sequence[int] | None, correction: float | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The variance along axes, the sum of squared differences divided by their number less the correction; the mean."""
    along = list(axes_of(x, axes))
    count = math.prod(x.shape[axis] for axis in along)
    mean = x.mean(along, keepdim=True)
    d = x - mean
    total = (d * d).sum(along, keepdim=keepdim)
    return total / (count - (1 if correction is None else correction)), mean.reshape(total.shape)


def var(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """The variance along axes."""
    return variance(x, dim, correction, keepdim)[0]


def var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The variance along axes, and the mean."""
    return variance(x, dim, correction, keepdim)


def std(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """The root of the variance along axes."""
    return variance(x, dim, correction, keepdim)[0].sqrt()


def std_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The root of the variance along axes, and the mean."""
    square, mean = variance(x, dim, correction, keepdim)
    return square.sqrt(), mean


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "native_layer_norm": Composed("layer_norm", layer_norm),
    "native_layer_norm_backward": Composed("layer_norm", layer_norm_backward),
    "native_batch_norm": Composed("batch_norm", batch_norm),
    "native_batch_norm_backward": Composed("batch_norm", batch_norm_backward),
    "native_group_norm": Composed("group_norm", group_norm),
    "native_group_norm_backward": Composed("group_norm", group_norm_backward),
    "var.correction": Composed("var", var),
    "var_mean.correction": Composed("var", var_mean, 2),
    "std.correction": Composed("var", std),
    "std_mean.correction": Composed("var", std_mean, 2),
}
