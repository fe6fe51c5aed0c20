"""Operations that are made of others: functions of their own arguments, in PyTorch's operations."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from numpy.typing import NDArray

from simfloat.formulas import exponentials
from simfloat.formulas.rounded import Rounded, keepdims_shape
from simfloat.torch.formula import Formula
from simfloat.torch.handlers import Decomposition, Handler
from simfloat.torch.phases import target_operand
from simfloat.torch.rules.aten_reductions import axes_of
from simfloat.torch.tensor_arrays import exact_tensor

Tensor = torch.Tensor


def logsumexp(u: Rounded, x: NDArray, dim: list[int], keepdim: bool = False) -> NDArray:
    """The formula of this name, the axes kept with one element where that is asked for."""
    axes = axes_of(x, dim)
    result = exponentials.logsumexp(u, x, axes)
    return result.reshape(keepdims_shape(x.shape, axes)) if keepdim else result


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """log1p(exp(-|x - y|)) + the larger of x and y."""
    return (-_distance(x, y)).exp().log1p() + torch.maximum(x, y)


def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    """log1p(exp2(-|x - y|)) / log(2) + the larger of x and y."""
    return (-_distance(x, y)).exp2().log1p() * (1 / math.log(2)) + torch.maximum(x, y)


def _distance(x: Tensor, y: Tensor) -> Tensor:
    """|x - y|, 0 for infinities of one sign."""
    # inf - inf is NaN, and logaddexp(inf, inf) is inf.
    return torch.where(x == y, torch.zeros_like(x), (x - y).abs())


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), of x between eps and 1 - eps."""
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


def logit_backward(g: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """g / (x * (1 - x)), and 0 where x was not between eps and 1 - eps."""
    slope = g / (x * (1 - x))
    return slope if eps is None else torch.where((x < eps) | (x > 1 - eps), torch.zeros_like(slope), slope)


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


def grouped_mm(
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


def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along an axis, those whose p-norm n is above the largest one times maxnorm / (n + 1e-7)."""
    axes = [axis for axis in range(x.ndim) if axis != dim % x.ndim]
    norm = torch.linalg.vector_norm(x, p, axes, keepdim=True)
    return x * torch.where(norm > maxnorm, exact_tensor(maxnorm) / (norm + 1e-7), torch.ones_like(norm))


def weight_norm_backward(w: Tensor, v: Tensor, g: Tensor, norm: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(g / n) * (w - v * (t / (n * n))) and t / n, where w is the gradient, n = |v|, and t the sums of w * v."""
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
    with target_operand(0):
        # Within the operand v: the sum is rounded as a step of its gradient, and read again by that of g.
        total = (w * v).sum(axes, keepdim=True)
        to_v = (g / norm) * (w - v * (total / (norm * norm)))
    with target_operand(1):
        return to_v, total / norm


#: By PyTorch's name.
TABLE: dict[str, Handler] = {
    "_safe_softmax": Formula("softmax", lambda u, x, dim, _=None: exponentials.safe_softmax(u, x, axes_of(x, dim))),
    "logsumexp": Formula("logsumexp", logsumexp),
    "logaddexp": Decomposition("logaddexp", logaddexp),
    "logaddexp2": Decomposition("logaddexp", logaddexp2),
    "renorm": Decomposition("weight_norm", renorm),
    "logit": Decomposition("logit", logit),
    "logit_backward": Decomposition("logit", logit_backward),
    "dist": Decomposition("sum", distance),
    "linalg_cross": Decomposition("multiply", cross),
    "_trilinear": Decomposition("matmul", trilinear),
    "_grouped_mm": Decomposition("matmul", grouped_mm),
    "_weight_norm_interface": Decomposition("weight_norm", weight_norm),
    "_weight_norm_interface_backward": Decomposition("weight_norm", weight_norm_backward),
    "_softmax": Formula("softmax", lambda u, x, dim, _: exponentials.softmax(u, x, axes_of(x, dim))),
    "_softmax_backward_data": Formula(
        "softmax", lambda u, g, y, dim, _: exponentials.softmax_slope(u, g, y, axes_of(y, dim))
    ),
    "_log_softmax": Formula("log_softmax", lambda u, x, dim, _: exponentials.log_softmax(u, x, axes_of(x, dim))),
    "_log_softmax_backward_data": Formula(
        "log_softmax", lambda u, g, y, dim, _: exponentials.log_softmax_slope(u, g, y, axes_of(y, dim))
    ),
}
