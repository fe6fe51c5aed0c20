"""Operations that are made of others: functions of their own arguments, in PyTorch's operations."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from simfloat.torch.handlers import Composed
from simfloat.torch.phases import target_operand
from simfloat.torch.rules.aten_reductions import axes_of

Tensor = torch.Tensor


def largest(x: Tensor, dim: int | list[int]) -> Tensor:
    """The largest elements along axes, each of which is kept with one element; 0 where there are none."""
    if x.numel():
        return x.amax(dim, keepdim=True)
    along = axes_of(x, dim)
    return x.new_zeros([1 if axis in along else size for axis, size in enumerate(x.shape)])


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """exp(d) / sum(exp(d)) with d = x - max(x)."""
    e = (x - largest(x, dim)).exp()
    return e / e.sum(dim, keepdim=True)


def softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    """y * g - y * sum(y * g)."""
    product = y * g
    return product - y * product.sum(dim, keepdim=True)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """d - log(sum(exp(d))) with d = x - max(x)."""
    d = x - largest(x, dim)
    return d - d.exp().sum(dim, keepdim=True).log()


def log_softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    """g - exp(y) * sum(g)."""
    return g - y.exp() * g.sum(dim, keepdim=True)


def safe_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax, and zeros where all of x is -inf."""
    nothing = (x == -torch.inf).all(dim, keepdim=True)
    return torch.where(nothing, torch.zeros_like(x), softmax(x, dim, False))


def logsumexp(x: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
    """log(sum(exp(d))) + m with d = x - m and m = max(x)."""
    m = largest(x, dim)
    m = torch.where(m.abs() == torch.inf, torch.zeros_like(m), m)
    total = (x - m).exp().sum(dim, keepdim=keepdim).log()
    return total + m.reshape(total.shape)


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """log(exp(x - m) + exp(y - m)) + m with m the larger of x and y."""
    m = torch.maximum(x, y)
    m = torch.where(m.abs() == torch.inf, torch.zeros_like(m), m)
    return ((x - m).exp() + (y - m).exp()).log() + m


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), of x between eps and 1 - eps."""
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


def logit_backward(g: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """g / (x * (1 - x)), and 0 where x was not between eps and 1 - eps."""
    slope = g / (x * (1 - x))
    return slope if eps is None else torch.where((x < eps) | (x > 1 - eps), torch.zeros_like(slope), slope)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x * x + y * y)."""
    return (x * x + y * y).sqrt()


def distance(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """The p-norm of x - y."""
    return torch.linalg.vector_norm(x - y, p)


def trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand_a: list[int], expand_b: list[int], expand_c: list[int], axes: list[int],
    unrolled: int = 1,
) -> Tensor:  # fmt: skip
    """The sums over axes of a * b * c, each of which first gets axes of one element."""
    for axis in range(a.ndim + len(expand_a)):
        a, b, c = (
            x.unsqueeze(axis) if axis in expand else x for x, expand in ((a, expand_a), (b, expand_b), (c, expand_c))
        )
    return (a * b * c).sum(axes) if axes else a * b * c


def cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors along an axis, a difference of products."""
    return x.roll(-1, dim) * y.roll(-2, dim) - x.roll(-2, dim) * y.roll(-1, dim)


def grouped(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """One product of matrices for each group: of rows of a, or columns of b, or of both, that end at offs.

    With three axes a, or b, has a matrix for each group. The results stand beside each other, or, of groups along the
    axis of the products' sums, in a batch. What lies behind the last group is 0.
    """
    if offs is None:
        return torch.bmm(a, b)
    ends = offs.tolist()
    _check_groups(a, b, ends)
    groups = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    if a.ndim == b.ndim == 2:
        return torch.stack([a[:, group] @ b[group] for group in groups])
    if a.ndim == 2:
        parts = [a[group] @ matrix for group, matrix in zip(groups, b, strict=True)]
        return torch.cat([*parts, parts[0].new_zeros(len(a) - ends[-1], b.shape[-1])])
    parts = [matrix @ b[:, group] for group, matrix in zip(groups, a, strict=True)]
    return torch.cat([*parts, parts[0].new_zeros(a.shape[1], b.shape[1] - ends[-1])], 1)


def _check_groups(a: Tensor, b: Tensor, ends: list[int]) -> None:
    """Raise ValueError unless there is an end for each group, and shapes fit."""
    if a.ndim == b.ndim:
        count, length = len(ends), a.shape[1]
    else:
        count, length = (len(b), len(a)) if a.ndim == 2 else (len(a), b.shape[1])
    if len(ends) != count or any(x > y for x, y in pairwise([0, *ends, length])) or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"grouped_mm takes an end for each of {count} groups, ascending up to {length}, and k of one size; got "
            f"{ends} with shapes {tuple(a.shape)} and {tuple(b.shape)}."
        )


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """v * (g / |v|), |v| being the root of the sum of squares over all axes but one; and |v|."""
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
    norm = (v * v).sum(axes, keepdim=True).sqrt()
    return v * (g / norm), norm


def weight_norm_backward(w: Tensor, v: Tensor, g: Tensor, norm: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(g / n) * (w - v * (t / (n * n))) and t / n, where w is the gradient, n = |v|, and t the sums of w * v."""
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
    with target_operand(0):
        total = (w * v).sum(axes, keepdim=True)
        to_v = (g / norm) * (w - v * (total / (norm * norm)))
    with target_operand(1):
        return to_v, total / norm


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "_safe_softmax": Composed("softmax", safe_softmax),
    "logsumexp": Composed("logsumexp", logsumexp),
    "logaddexp": Composed("logaddexp", logaddexp),
    "logit": Composed("logit", logit),
    "logit_backward": Composed("logit", logit_backward),
    "hypot": Composed("sqrt", hypot),
    "dist": Composed("sum", distance),
    "linalg_cross": Composed("multiply", cross),
    "_trilinear": Composed("matmul", trilinear),
    "_grouped_mm": Composed("matmul", grouped),
    "_weight_norm_interface": Composed("weight_norm", weight_norm),
    "_weight_norm_interface_backward": Composed("weight_norm", weight_norm_backward),
    "_softmax": Composed("softmax", softmax),
    "_softmax_backward_data": Composed("softmax", softmax_backward),
    "_log_softmax": Composed("log_softmax", log_softmax),
    "_log_softmax_backward_data": Composed("log_softmax", log_softmax_backward),
}
