"""Rules of piecewise activations, by formulas, and of operations that consist of others.

Activations run forward and backward by `simfloat.simulation.formulas.activations`. The others are written in PyTorch's
operations.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.simulation.formulas import Rounded, activations, keepdims_shape, number, slopes
from simfloat.simulation.formulas.losses import log_sigmoid
from simfloat.torch.arguments import Arguments, Options
from simfloat.torch.formula import CompositeGradients, Formula, GradientRule
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.phases import target_operand
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.pointwise import PointwiseRule, leaky_relu
from simfloat.torch.rules.reductions import axes_of
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import NOTHING, Tag, exact_tensor

Tensor = torch.Tensor

_aten = torch.ops.aten


def log_sigmoid_forward(u: Rounded, x: NDArray) -> tuple[NDArray, NDArray]:
    """Return the result, and an empty array for the backward pass."""
    return log_sigmoid(u, x), np.empty(0, x.dtype)


def log_sigmoid_backward(u: Rounded, g: NDArray, x: NDArray, nothing: NDArray) -> NDArray:
    """Return the gradient of x."""
    return activations.log_sigmoid_slope(u, g, x)


def celu(u: Rounded, x: NDArray, alpha: float = 1.0) -> NDArray:
    """Return x if it is positive, otherwise expm1(x / alpha) * alpha."""
    return activations.elu(u, x, alpha, 1.0, 1 / alpha)


def elu_backward(
    u: Rounded, g: NDArray, alpha: float, scale: float, input_scale: float, is_result: bool, x: NDArray
) -> NDArray:
    """Return the gradient of x; with `is_result`, x is the result of the forward pass."""
    slope = activations.elu_slope_of_result if is_result else activations.elu_slope
    return slope(u, g, x, alpha, scale, input_scale)


#: Slopes that are closer than this are equal, and PyTorch draws no random slopes. PyTorch's rrelu_with_noise_backward
#: has the same bound.
EQUAL_WITHIN = 1e-6


def noisy_leaky_relu(
    call: RuleCall, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, generator: Any = None
) -> Tensor:
    """Return x if it is positive, otherwise x times a factor that PyTorch draws.

    The factor is rounded only for the backward pass.
    """
    call.begin()
    factors = torch.empty_like(noise, dtype=torch.promote_types(noise.dtype, torch.float32))
    _aten.rrelu_with_noise(x.to(factors.dtype), factors, lower, upper, training, generator)
    # PyTorch's own kernel draws the factors, so that its generator advances as usual. The result uses the factors
    # unrounded; only the backward pass reads the noise, which has the dtype of the tensor.
    noise.copy_(factors)
    return call.match_operand_layout(call.tensor(call.multiply(x, factors)))


class RandomSlopes(Rule):
    """A rule for random slopes, and the rule of leaky_relu with their mean, which is used outside of training.

    `operands` arguments come before the noise, and the bounds of the slopes come after it. In the backward pass the
    bounds may be equal.
    """

    def __init__(self, random_rule: Rule, mean_rule: Rule, leaky_relu: Any, operands: int) -> None:
        super().__init__(random_rule.operation, random_rule.rule)
        self.random_rule, self.mean_rule, self.leaky_relu, self.operands = random_rule, mean_rule, leaky_relu, operands

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of the rule that applies."""
        slope_arguments = args[self.operands + 1 :]
        lower, upper, training = [*slope_arguments, *(1 / 8, 1 / 3, False)[len(slope_arguments) :]][:3]
        if training and (self.operands == 1 or upper - lower > EQUAL_WITHIN):
            return self.random_rule(run, func, args, options, into)
        return self.mean_rule(run, self.leaky_relu, (*args[: self.operands], (lower + upper) / 2), {}, into)


class FormulaInOwnType(Formula):
    """A formula for which PyTorch's kernels convert Python numbers to the dtype of the program; others use float32."""

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> Any:
        """Return the results."""
        if call.phase.place.is_written:
            # This gives the bits of PyTorch's CPU for every 16-bit value, for thresholds of hardshrink and the
            # gradients of both shrinks.
            args = tuple(float(torch.tensor(x, dtype=call.dtype)) if isinstance(x, float) else x for x in args)
        return super().compute(call, *args, **options)


def silu_backward(u: Rounded, g: NDArray, x: NDArray) -> NDArray:
    """Return the gradient of x."""
    return activations.silu_slope(u, g, None, x)


#: Activations with PyTorch's names and arguments.
OF_ONE_NAME = ("softplus", "hardsigmoid", "hardswish", "mish", "glu")

#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "rrelu_with_noise": RandomSlopes(
        Rule("rrelu", noisy_leaky_relu), PointwiseRule("rrelu", leaky_relu), _aten.leaky_relu.default, 1
    ),
    "rrelu_with_noise_backward": RandomSlopes(
        GradientRule("rrelu", lambda u, g, x, noise, *_: u.multiply(g, noise)),
        GradientRule("rrelu", lambda u, g, x, slope: activations.leaky_relu_slope(u, g, None, x, number(slope))),
        _aten.leaky_relu_backward.default,
        2,
    ),
    **{name: Formula(name, getattr(activations, name)) for name in OF_ONE_NAME},
    **{f"{name}_backward": Formula(name, getattr(activations, f"{name}_slope")) for name in OF_ONE_NAME},
    "silu": Formula("silu", activations.silu),
    "silu_backward": Formula("silu", silu_backward),
    "celu": Formula("elu", celu),
    "elu": Formula("elu", activations.elu),
    "elu_backward": Formula("elu", elu_backward),
    "_prelu_kernel": Formula("prelu", activations.prelu),
    "_prelu_kernel_backward": CompositeGradients("prelu", activations.prelu_to_x, activations.prelu_to_slope),
    "log_sigmoid_forward": Formula("log_sigmoid", log_sigmoid_forward),
    "log_sigmoid_backward": Formula("log_sigmoid", log_sigmoid_backward),
    "softshrink": Formula("softshrink", activations.softshrink),
    "softshrink_backward": FormulaInOwnType("softshrink", activations.shrink_slope),
    "hardshrink": FormulaInOwnType("hardshrink", activations.hardshrink),
    "hardshrink_backward": FormulaInOwnType("hardshrink", activations.shrink_slope),
}


def logsumexp(u: Rounded, x: NDArray, dim: list[int], keepdim: bool = False) -> NDArray:
    """Return logsumexp over `dim`; with `keepdim`, these axes keep one element."""
    axes = axes_of(x, dim)
    result = slopes.logsumexp(u, x, axes)
    return result.reshape(keepdims_shape(x.shape, axes)) if keepdim else result


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """Return log1p(exp(-|x - y|)) + the larger of x and y."""
    return (-_distance(x, y)).exp().log1p() + torch.maximum(x, y)


def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    """Return log1p(exp2(-|x - y|)) / log(2) + the larger of x and y."""
    return (-_distance(x, y)).exp2().log1p() * (1 / math.log(2)) + torch.maximum(x, y)


def _distance(x: Tensor, y: Tensor) -> Tensor:
    """Return |x - y|, or 0 for infinities of the same sign."""
    # inf - inf is NaN, but logaddexp(inf, inf) is inf.
    return torch.where(x == y, torch.zeros_like(x), (x - y).abs())


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """Return log(x / (1 - x)), with x limited to eps and 1 - eps."""
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


def logit_backward(g: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """Return g / (x * (1 - x)), or 0 if x was not between eps and 1 - eps."""
    slope = g / (x * (1 - x))
    return slope if eps is None else torch.where((x < eps) | (x > 1 - eps), torch.zeros_like(slope), slope)


def distance(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """Return the p-norm of x - y."""
    return torch.linalg.vector_norm(x - y, p)


def trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand_a: list[int], expand_b: list[int], expand_c: list[int], axes: list[int],
    unrolled: int = 1,
) -> Tensor:  # fmt: skip
    """Return the sums over `axes` of a * b * c, after each operand got axes of one element."""
    for axis in range(a.ndim + len(expand_a)):
        a, b, c = (
            x.unsqueeze(axis) if axis in expand else x for x, expand in ((a, expand_a), (b, expand_b), (c, expand_c))
        )
    return (a * b * c).sum(axes) if axes else a * b * c


def cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Return the cross product of vectors along an axis, as a difference of products."""
    return x.roll(-1, dim) * y.roll(-2, dim) - x.roll(-2, dim) * y.roll(-1, dim)


def grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Return one matrix product for each group: of rows of a, of columns of b, or of both; groups end at `offs`.

    With three axes, a or b has a matrix for each group. The results are concatenated; for groups along the summed axis
    they form a batch. Elements after the last group are 0.
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
    """Raise ValueError unless there is an end for each group, and the shapes match."""
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
    """Return v * (g / |v|), and |v|, the root of the sum of squares over all axes except `dim`."""
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
    norm = (v * v).sum(axes, keepdim=True).sqrt()
    return v * (g / norm), norm


def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Return x with slices scaled by maxnorm / (n + 1e-7) if their p-norm n is above `maxnorm`."""
    axes = [axis for axis in range(x.ndim) if axis != dim % x.ndim]
    norm = torch.linalg.vector_norm(x, p, axes, keepdim=True)
    return x * torch.where(norm > maxnorm, exact_tensor(maxnorm) / (norm + 1e-7), torch.ones_like(norm))


def weight_norm_backward(w: Tensor, v: Tensor, g: Tensor, norm: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of v and g.

    They are (g / n) * (w - v * (t / (n * n))) and t / n, where w is the gradient, n = |v|, and t contains the sums of w
    * v.
    """
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
    with target_operand(0):
        # The sum belongs to the operand v: it is rounded as a step of its gradient, and the gradient of g reads it
        # again.
        total = (w * v).sum(axes, keepdim=True)
        to_v = (g / norm) * (w - v * (total / (norm * norm)))
    with target_operand(1):
        return to_v, total / norm


#: Rules, by PyTorch's name.
TABLE |= {
    "_safe_softmax": Formula("softmax", lambda u, x, dim, _=None: slopes.safe_softmax(u, x, axes_of(x, dim))),
    "logsumexp": Formula("logsumexp", logsumexp),
    "logaddexp": Decomposition("logaddexp", logaddexp),
    "logaddexp2": Decomposition("logaddexp", logaddexp2),
    "renorm": Decomposition("weight_norm", renorm),
    "logit": Decomposition("logit", logit),
    "logit_backward": Decomposition("logit", logit_backward),
    "dist": Decomposition("sum", distance),
    "linalg_cross": Decomposition("multiply", cross),
    "_trilinear": Decomposition("bilinear", trilinear),
    "_grouped_mm": Decomposition("matmul", grouped_mm),
    "_weight_norm_interface": Decomposition("weight_norm", weight_norm),
    "_weight_norm_interface_backward": Decomposition("weight_norm", weight_norm_backward),
    "_softmax": Formula("softmax", lambda u, x, dim, _: slopes.softmax(u, x, axes_of(x, dim))),
    "_softmax_backward_data": Formula(
        "softmax", lambda u, g, y, dim, _: slopes.softmax_slope(u, g, y, axes_of(y, dim))
    ),
    "_log_softmax": Formula("log_softmax", lambda u, x, dim, _: slopes.log_softmax(u, x, axes_of(x, dim))),
    "_log_softmax_backward_data": Formula(
        "log_softmax", lambda u, g, y, dim, _: slopes.log_softmax_slope(u, g, y, axes_of(y, dim))
    ),
}
