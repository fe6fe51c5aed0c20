"""Activations with a bend, forward and backward, by the formulas of `simfloat.formulas.bent_activations`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.formulas import activation_formulas, bent_activations
from simfloat.formulas.loss_formulas import log_sigmoid
from simfloat.formulas.rounded import Rounded
from simfloat.torch.formula import Formula, Slopes
from simfloat.torch.handlers import Ruled


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


def silu_backward(u: Rounded, g: NDArray, x: NDArray) -> NDArray:
    """The gradient of x."""
    return activation_formulas.silu_slope(u, g, None, x)


#: By PyTorch's name.
TABLE: dict[str, Ruled] = {
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
