"""Rules of normalization by the formulas of `simfloat.simulation.formulas.norms`, and of variances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.simulation.formulas import Rounded, norms
from simfloat.simulation.inside import CompositeArithmetic
from simfloat.torch.arguments import Arguments
from simfloat.torch.formula import CompositeGradients, Formula
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.phases import Forward
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.reductions import axes_of
from simfloat.torch.tensors import NARROW, numbers_of, put_tag, result_type, tag_of, tensor_of

Tensor = torch.Tensor
Gradient = NDArray | None


def layer_norm(u: Rounded, x: NDArray, shape: Sequence[int], weight: Gradient, bias: Gradient, eps: float) -> Any:
    """Return the result, the means and the factors; raise ValueError if shapes differ from the last axes of x."""
    shapes = [x.shape[-len(shape) :], *(y.shape for y in (weight, bias) if y is not None)]
    if any(tuple(each) != tuple(shape) for each in shapes):
        raise ValueError(
            f"layer_norm takes x with a shape that ends with {tuple(shape)}, and a weight and a bias of that shape; "
            f"got x of shape {tuple(x.shape)} and shapes {[tuple(each) for each in shapes]}."
        )
    return norms.norm(u, x, weight, bias, norms.inner_axes(x.ndim, len(shape)), eps)


def layer_to_x(u: Rounded, g: Any, x: Any, shape: Any, mean: Any, factor: Any, weight: Any, *_: Any) -> NDArray:
    """Return the gradient of x."""
    return norms.norm_to_x(u, g, x, mean, factor, weight, norms.inner_axes(x.ndim, len(shape)))


def layer_to_weight(u: Rounded, g: Any, x: Any, shape: Any, mean: Any, factor: Any, *_: Any) -> NDArray:
    """Return the gradient of the weight."""
    return norms.norm_to_weight(u, g, x, mean, factor, norms.outer_axes(x.ndim, len(shape)))


def layer_to_bias(u: Rounded, g: Any, x: Any, shape: Any, *_: Any) -> NDArray:
    """Return the gradient of the bias."""
    return norms.norm_to_bias(u, g, norms.outer_axes(x.ndim, len(shape)))


class TypeOfFirst:
    """A rule with results in the dtype of x, or of its gradient, even if parameters are in FP32."""

    def type_of(self, phase: Forward, operands: list[Tensor], args: Arguments) -> torch.dtype:
        """Return the dtype of the result; raise ValueError if parameters are narrower than x, as in PyTorch."""
        # 16-bit models often keep the weights of such layers in FP32; PyTorch's promotion would make the results wide.
        if not (phase.place.is_written and args[0].is_floating_point()):
            return result_type(operands)
        dtype = args[0].dtype
        allowed = (dtype, torch.float32) if dtype in NARROW else (dtype,)
        others = [x.dtype for x in args if isinstance(x, Tensor) and x.is_floating_point() and x.dtype not in allowed]
        if others:
            raise ValueError(
                f"{phase.place.where} takes parameters of {' or '.join(map(str, allowed))} for x of {dtype}, as in "
                f"PyTorch, got {others[0]}; convert one of them, for example by x.to({others[0]})."
            )
        return dtype


class Norm(TypeOfFirst, Formula):
    """Normalization, or the gradient of its operand."""


class BatchNorm(TypeOfFirst, Rule):
    """Batch normalization. The running statistics move towards the statistics of the batch, rounded to `activations`.

    If the running statistics are used instead, the returned means and factors are empty, as in PyTorch. PyTorch has
    several names for this operation; `arrange` puts their arguments in the order of the first one.
    """

    how = "decomposition"

    def __init__(self, arrange: Callable[..., Sequence[Any]] | None = None) -> None:
        rule = self.compute if arrange is None else lambda call, *args: self.compute(call, *arrange(*args))
        super().__init__("batch_norm", rule)

    def compute(
        self, call: RuleCall, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
        running_var: Tensor | None, training: bool, momentum: float, eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Return the result, means and factors of the batch."""
        u = call.begin_composite(list(map(numbers_of, call.operands)))
        array = numbers_of(x)
        scale, shift = (None if vector is None else numbers_of(vector) for vector in (weight, bias))
        if running_mean is None or running_var is None:
            result, mean, factor, _ = norms.batch_norm(u, array, scale, shift, eps)
        elif training:
            result, mean, factor, variance = norms.batch_norm(u, array, scale, shift, eps)
        else:
            y = norms.running_norm(u, array, scale, shift, numbers_of(running_mean), numbers_of(running_var), eps)
            return call.result(u, y), x.new_empty(0), x.new_empty(0)
        results = call.result(u, result), call.saved_for_backward(u, mean), call.saved_for_backward(u, factor)
        if running_mean is not None and running_var is not None:
            for running, new in ((running_mean, mean), (running_var, variance)):
                # `begin` returns the arithmetic of the place itself; begin_composite returned an arithmetic for steps
                # inside it.
                moved = norms.moving_average(call.begin(), numbers_of(running), new, momentum)
                running.copy_(tensor_of(moved, running.dtype))
                put_tag(running, tag_of(running)._replace(format=call.format))
        return results


def batch_norm(
    u: CompositeArithmetic, x: NDArray, weight: Gradient, bias: Gradient, running_mean: Gradient, running_var: Gradient,
    training: bool, momentum: float, eps: float,
) -> tuple[NDArray, NDArray, NDArray]:  # fmt: skip
    """Return the result, means and factors, and write the running statistics, as `BatchNorm` does."""
    if not training and running_mean is not None and running_var is not None:
        y = norms.running_norm(u, x, weight, bias, running_mean, running_var, eps)
        return y, np.empty(0, x.dtype), np.empty(0, x.dtype)
    result, mean, factor, variance = norms.batch_norm(u, x, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        for running, new in ((running_mean, mean), (running_var, variance)):
            running[...] = norms.moving_average(u.place.forward, running, new, momentum)
    return result, mean, factor


def without_statistics(x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Sequence[Any]:
    """Return the arguments of the operation without running statistics."""
    return x, weight, bias, None, None, training, momentum, eps


def with_update(x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Sequence[Any]:
    """Return the arguments of the operation that always uses the statistics of the batch."""
    return x, weight, bias, mean, var, True, momentum, eps


class BatchNormWithUpdate(BatchNorm):
    """Batch normalization that also returns the reserve of cuDNN or MIOpen for the backward pass, which is empty."""

    def compute(self, call: RuleCall, x: Tensor, *args: Any) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Return the result, means and factors of the batch, and an empty tensor."""
        return *super().compute(call, x, *args), torch.empty(0, dtype=torch.uint8)


def gradient_with_update(slope: Callable[..., NDArray]) -> Callable[..., NDArray]:
    """Convert a gradient to the arguments of the operation that always uses the statistics of the batch."""

    def function(
        u: Rounded, g: Any, x: Any, weight: Any, running_mean: Any, running_var: Any, mean: Any, factor: Any,
        training: bool, eps: float, mask: Any, reserve: Any,
    ) -> NDArray:  # fmt: skip
        return slope(u, g, x, weight, running_mean, running_var, mean, factor, training, eps)

    return function


def batch_to_x(
    u: Rounded, g: Any, x: Any, weight: Any, running_mean: Any, running_var: Any, mean: Any, factor: Any,
    training: bool, eps: float, *_: Any,
) -> NDArray:  # fmt: skip
    """Return the gradient of x."""
    if training or running_var is None:
        return norms.batch_norm_to_x(u, g, x, mean, factor, weight)
    return norms.running_norm_to_x(u, g, weight, running_var, eps)


def batch_to_weight(
    u: Rounded, g: Any, x: Any, weight: Any, running_mean: Any, running_var: Any, mean: Any, factor: Any,
    training: bool, eps: float, *_: Any,
) -> NDArray:  # fmt: skip
    """Return the gradient of the weight."""
    if not training and running_var is not None:
        mean, factor = running_mean, norms.inverse_root(u, running_var, eps)
    return norms.batch_norm_to_weight(u, g, x, mean, factor)


def batch_to_bias(u: Rounded, g: NDArray, *_: Any) -> NDArray:
    """Return the gradient of the bias."""
    return norms.batch_norm_to_bias(u, g)


def group_norm(
    u: Rounded, x: NDArray, weight: Gradient, bias: Gradient, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple[NDArray, NDArray, NDArray]:
    """Return the result, and the mean and factor of every group."""
    result, mean, factor = norms.group_norm(u, x, weight, bias, groups, eps)
    return result, mean.reshape(n, groups), factor.reshape(n, groups)


def group_to_x(
    u: Rounded, g: Any, x: Any, mean: Any, factor: Any, weight: Any, n: int, c: int, hxw: int, groups: int, *_: Any
) -> NDArray:
    """Return the gradient of x."""
    of_groups = mean.reshape(n, groups, 1), factor.reshape(n, groups, 1)
    return norms.group_norm_to_x(u, g, x, *of_groups, weight, groups)


def group_to_weight(
    u: Rounded, g: Any, x: Any, mean: Any, factor: Any, weight: Any, n: int, c: int, hxw: int, groups: int, *_: Any
) -> NDArray:
    """Return the gradient of the weight."""
    return norms.group_norm_to_weight(u, g, x, mean.reshape(n, groups, 1), factor.reshape(n, groups, 1), groups)


class NormGradients(CompositeGradients):
    """The gradients of x, weight and bias; without a weight, the bias is operand number 1 of the operation."""

    def __init__(self, operation: str, weight_at: int, *functions: Callable[..., NDArray], mask_at: int = -1) -> None:
        super().__init__(operation, *functions, are_wanted=lambda *args, **_: args[mask_at])
        self.formulas[0] = Norm(operation, functions[0])
        self._weight_at = weight_at

    def operand_number(self, number: int, args: tuple[Any, ...]) -> int:
        """Return the number of the forward operand that the gradient of this number belongs to."""
        return 1 if number == 2 and args[self._weight_at] is None else number


def variance(x: Tensor, axes: Sequence[int] | None, correction: float | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return the variance along axes, and the mean.

    The variance is the sum of squared differences, divided by their number minus the correction.
    """
    along = list(axes_of(x, axes))
    count = math.prod(x.shape[axis] for axis in along)
    mean = x.mean(along, keepdim=True)
    d = x - mean
    total = (d * d).sum(along, keepdim=keepdim)
    return total / (count - (1 if correction is None else correction)), mean.reshape(total.shape)


def var(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """Return the variance along axes."""
    return variance(x, dim, correction, keepdim)[0]


def var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variance along axes, and the mean."""
    return variance(x, dim, correction, keepdim)


def std(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """Return the root of the variance along axes."""
    return variance(x, dim, correction, keepdim)[0].sqrt()


def std_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the root of the variance along axes, and the mean."""
    square, mean = variance(x, dim, correction, keepdim)
    return square.sqrt(), mean


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "native_layer_norm": Norm("layer_norm", layer_norm),
    "native_layer_norm_backward": NormGradients("layer_norm", 5, layer_to_x, layer_to_weight, layer_to_bias),
    "native_batch_norm": BatchNorm(),
    "_native_batch_norm_legit": BatchNorm(),
    "_native_batch_norm_legit.no_stats": BatchNorm(without_statistics),
    "_batch_norm_with_update": BatchNormWithUpdate(with_update),
    "batch_norm_backward": NormGradients(
        "batch_norm",
        2,
        *(gradient_with_update(slope) for slope in (batch_to_x, batch_to_weight, batch_to_bias)),
        mask_at=9,
    ),
    "native_batch_norm_backward": NormGradients("batch_norm", 2, batch_to_x, batch_to_weight, batch_to_bias),
    "native_group_norm": Norm("group_norm", group_norm),
    "native_group_norm_backward": NormGradients("group_norm", 4, group_to_x, group_to_weight, batch_to_bias),
    "var.correction": Decomposition("var", var),
    "var_mean.correction": Decomposition("var", var_mean, 2),
    "std.correction": Decomposition("var", std),
    "std_mean.correction": Decomposition("var", std_mean, 2),
}
