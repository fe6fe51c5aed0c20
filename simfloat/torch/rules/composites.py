"""Operations that are made of others: functions of their own arguments, in PyTorch's operations."""

from __future__ import annotations

from typing import Any

import torch

from simfloat.torch.handlers import Composed

Tensor = torch.Tensor


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """exp(d) / sum(exp(d)) with d = x - max(x)."""
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    """y * g - y * sum(y * g)."""
    product = y * g
    return product - y * product.sum(dim, keepdim=True)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """d - log(sum(exp(d))) with d = x - max(x)."""
    d = x - x.amax(dim, keepdim=True)
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
    m = x.amax(dim, keepdim=True)
    m = torch.where(m.abs() == torch.inf, torch.zeros_like(m), m)
    total = (x - m).exp().sum(dim, keepdim=keepdim).log()
    return total + m.reshape(total.shape)


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


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "_safe_softmax": Composed("softmax", safe_softmax),
    "logsumexp": Composed("logsumexp", logsumexp),
    "softplus": Composed("softplus", softplus),
    "softplus_backward": Composed("softplus", softplus_backward),
    "celu": Composed("elu", celu),
    "elu": Composed("elu", elu),
    "elu_backward": Composed("elu", elu_backward),
    "_softmax": Composed("softmax", softmax),
    "_softmax_backward_data": Composed("softmax", softmax_backward),
    "_log_softmax": Composed("log_softmax", log_softmax),
    "_log_softmax_backward_data": Composed("log_softmax", log_softmax_backward),
}
