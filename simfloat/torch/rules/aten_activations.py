"""Activations with a bend, forward and backward, in PyTorch's operations."""

from __future__ import annotations

import torch

from simfloat.torch.handlers import Composed
from simfloat.torch.phases import target_operand

Tensor = torch.Tensor


def times(x: Tensor, factor: float) -> Tensor:
    """x * factor, which for a factor of 1 is not rounded."""
    return x if factor == 1 else x * factor


def itself(x: Tensor) -> Tensor:
    """x, rounded as results are: data enter as they are."""
    return x.clamp(max=torch.inf)


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(exp(b * x) + 1) / b with b = beta, and x where b * x is above the threshold."""
    z = times(x, beta)
    return torch.where(z > threshold, itself(x), times((z.clamp(max=threshold).exp() + 1).log(), 1 / beta))


def softplus_backward(g: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    """g * sigmoid(b * x) with b = beta, and g where b * x is above the threshold."""
    z = times(x, beta)
    return torch.where(z > threshold, itself(g), g * z.sigmoid())


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """x * scale where x is positive, else (exp(x * input_scale) - 1) * (alpha * scale)."""
    low = times(times(x.clamp(max=0), input_scale).exp() - 1, alpha * scale)
    return torch.where(x > 0, times(itself(x), scale), low)


def elu_backward(g: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor) -> Tensor:
    """g * scale where x is positive, else g * (alpha * scale * input_scale) * exp(x * input_scale).

    x may be the result, from which the exponential follows: x + alpha * scale.
    """
    if is_result:
        low = times(g, input_scale) * (x + alpha * scale)
    else:
        low = times(g, alpha * scale * input_scale) * times(x.clamp(max=0), input_scale).exp()
    return torch.where(x > 0, times(itself(g), scale), low)


def celu(x: Tensor, alpha: float = 1) -> Tensor:
    """x where it is positive, else (exp(x / alpha) - 1) * alpha."""
    return elu(x, alpha, 1, 1 / alpha)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x where it is positive, else slope * x."""
    return torch.where(x > 0, itself(x), slope * x)


def prelu_backward(g: Tensor, x: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """g where x is positive, else slope * g; and for the slope x * g where x is not."""
    with target_operand(0):
        to_x = torch.where(x > 0, itself(g), slope * g)
    with target_operand(1):
        return to_x, torch.where(x > 0, torch.zeros_like(g), x * g)


def hardsigmoid(x: Tensor) -> Tensor:
    """x + 3, no less than 0 and no more than 6, divided by 6."""
    return (x + 3).clamp(0, 6) / 6


def hardsigmoid_backward(g: Tensor, x: Tensor) -> Tensor:
    """g / 6 between -3 and 3, else 0."""
    return torch.where((x > -3) & (x < 3), g / 6, torch.zeros_like(g))


def hardswish(x: Tensor) -> Tensor:
    """x times x + 3, no less than 0 and no more than 6, divided by 6."""
    return x * (x + 3).clamp(0, 6) / 6


def hardswish_backward(g: Tensor, x: Tensor) -> Tensor:
    """g * (x / 3 + 1/2) between -3 and 3; 0 below and g above."""
    inner = torch.where(x < 3, g * (x / 3 + 0.5), itself(g))
    return torch.where(x <= -3, torch.zeros_like(g), inner)


def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return x * softplus(x).tanh()


def mish_backward(g: Tensor, x: Tensor) -> Tensor:
    """g * (t + (1 - t * t) * sigmoid(x) * x) with t = tanh(softplus(x))."""
    t = softplus(x).tanh()
    return g * (t + (1 - t * t) * x.sigmoid() * x)


def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """min(x, 0) - log(exp(-|x|) + 1); and nothing for the way back."""
    return x.clamp(max=0) - ((-x.abs()).exp() + 1).log(), torch.empty(0, dtype=x.dtype)


def log_sigmoid_backward(g: Tensor, x: Tensor, nothing: Tensor) -> Tensor:
    """g * sigmoid(-x)."""
    return g * (-x).sigmoid()


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x - lambd above lambd, x + lambd below -lambd, and 0 between."""
    return torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, torch.zeros_like(x)))


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x, and 0 between -lambd and lambd."""
    return torch.where(x.abs() <= lambd, torch.zeros_like(x), itself(x))


def shrink_backward(g: Tensor, x: Tensor, lambd: float) -> Tensor:
    """g, and 0 where x is between -lambd and lambd."""
    return torch.where(x.abs() <= lambd, torch.zeros_like(g), itself(g))


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), x being a and b side by side."""
    a, b = x.chunk(2, dim)
    return a * b.sigmoid()


def glu_backward(g: Tensor, x: Tensor, dim: int) -> Tensor:
    """g * s, and beside it g * s * (1 - s) * a, with s = sigmoid(b)."""
    a, b = x.chunk(2, dim)
    s = b.sigmoid()
    passed = g * s
    return torch.cat([passed, passed * (1 - s) * a], dim)


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "softplus": Composed("softplus", softplus),
    "softplus_backward": Composed("softplus", softplus_backward),
    "celu": Composed("elu", celu),
    "elu": Composed("elu", elu),
    "elu_backward": Composed("elu", elu_backward),
    "_prelu_kernel": Composed("prelu", prelu),
    "_prelu_kernel_backward": Composed("prelu", prelu_backward),
    "hardsigmoid": Composed("hardsigmoid", hardsigmoid),
    "hardsigmoid_backward": Composed("hardsigmoid", hardsigmoid_backward),
    "hardswish": Composed("hardswish", hardswish),
    "hardswish_backward": Composed("hardswish", hardswish_backward),
    "mish": Composed("mish", mish),
    "mish_backward": Composed("mish", mish_backward),
    "log_sigmoid_forward": Composed("log_sigmoid", log_sigmoid),
    "log_sigmoid_backward": Composed("log_sigmoid", log_sigmoid_backward),
    "softshrink": Composed("softshrink", softshrink),
    "softshrink_backward": Composed("softshrink", shrink_backward),
    "hardshrink": Composed("hardshrink", hardshrink),
    "hardshrink_backward": Composed("hardshrink", shrink_backward),
    "glu": Composed("glu", glu),
    "glu_backward": Composed("glu", glu_backward),
}
