"""Activations with a bend, forward and backward, by the formulas of `simfloat.formulas.bent_activations`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.formulas import activation_formulas, bent_activations
from simfloat.formulas.loss_formulas import log_sigmoid
from simfloat.formulas.rounded import Rounded, number
from simfloat.torch.formula import Formula, Sloped, Slopes
from simfloat.torch.handlers import Ruled
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensor_arrays import numbers_of

Tensor = torch.Tensor


def log_sigmoid_forward(u: Rounded, x: NDArray) -> tuple[NDArray, NDArray]:
    """The result; and nothing for the way back."""
    return log_sigmoid(u, x), np.empty(0, x.dtype)


def log_sigmoid_backward(u: Rounded, g: NDArray, x: NDArray, nothing: NDArray) -> NDArray:
    """The gradient of x."""
    return bent_activations.log_sigmoid_slope(u, g, x)


def celu(u: Rounded, x: NDArray, alpha: float = 1.0) -> NDArray:
    """x where it is positive, else expm1(x / alpha) * alpha."""
    return bent_activations.elu(u, x, alpha, 1.0, 1 / alpha)


def elu_backward(
    u: Rounded, g: NDArray, alpha: float, scale: float, input_scale: float, is_result: bool, x: NDArray
) -> NDArray:
    """The gradient of x, or the same by the result, where that took the place of x."""
    slope = bent_activations.elu_slope_of_result if is_result else bent_activations.elu_slope
    return slope(u, g, x, alpha, scale, input_scale)


#: Slopes that lie nearer to each other than this are one slope: PyTorch draws none.
APART = 1e-6


def noisy_leaky_relu(
    call: RuleCall, x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
    generator: Any = None,
) -> Tensor:  # fmt: skip
    """x where it is positive, else x times a factor that PyTorch draws; or their mean, when nothing is trained."""
    call.begin(x.shape)
    if not training:
        mean = (lower + upper) / 2
        return call.laid_out(call.tensor(call.multiply(x, np.where(numbers_of(x) > 0, 1.0, mean))))
    torch.ops.aten.rrelu_with_noise(x, noise, lower, upper, True, generator)
    return call.laid_out(call.tensor(call.multiply(x, noise)))


def noisy_leaky_relu_backward(
    u: Rounded, g: NDArray, x: NDArray, noise: NDArray, lower: float, upper: float, training: bool, is_result: bool
) -> NDArray:
    """g times the factor that x was multiplied by."""
    if training and upper - lower > APART:
        return u.multiply(g, noise)
    return activation_formulas.leaky_relu_slope(u, g, None, x, number((lower + upper) / 2))


def silu_backward(u: Rounded, g: NDArray, x: NDArray) -> NDArray:
    """The gradient of x."""
    return activation_formulas.silu_slope(u, g, None, x)


#: By PyTorch's name.
TABLE: dict[str, Ruled] = {
    "rrelu_with_noise": Ruled("rrelu", noisy_leaky_relu),
    "rrelu_with_noise_backward": Sloped("rrelu", noisy_leaky_relu_backward),
    "silu": Formula("silu", activation_formulas.silu),
    "silu_backward": Formula("silu", silu_backward),
    "softplus": Formula("softplus", bent_activations.softplus),
    "softplus_backward": Formula("softplus", bent_activations.softplus_slope),
    "celu": Formula("elu", celu),
    "elu": Formula("elu", bent_activations.elu),
    "elu_backward": Formula("elu", elu_backward),
    "_prelu_kernel": Formula("prelu", bent_activations.prelu),
    "_prelu_kernel_backward": Slopes("prelu", bent_activations.prelu_to_x, bent_activations.prelu_to_slope),
    "hardsigmoid": Formula("hardsigmoid", bent_activations.hardsigmoid),
    "hardsigmoid_backward": Formula("hardsigmoid", bent_activations.hardsigmoid_slope),
    "hardswish": Formula("hardswish", bent_activations.hardswish),
    "hardswish_backward": Formula("hardswish", bent_activations.hardswish_slope),
    "mish": Formula("mish", bent_activations.mish),
    "mish_backward": Formula("mish", bent_activations.mish_slope),
    "log_sigmoid_forward": Formula("log_sigmoid", log_sigmoid_forward),
    "log_sigmoid_backward": Formula("log_sigmoid", log_sigmoid_backward),
    "softshrink": Formula("softshrink", bent_activations.softshrink),
    "softshrink_backward": Formula("softshrink", bent_activations.shrink_slope),
    "hardshrink": Formula("hardshrink", bent_activations.hardshrink),
    "hardshrink_backward": Formula("hardshrink", bent_activations.shrink_slope),
    "glu": Formula("glu", bent_activations.glu),
    "glu_backward": Formula("glu", bent_activations.glu_slope),
}
