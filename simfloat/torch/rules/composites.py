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


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "_safe_softmax": Composed("softmax", safe_softmax),
    "logsumexp": Composed("logsumexp", logsumexp),
    "_softmax": Composed("softmax", softmax),
    "_softmax_backward_data": Composed("softmax", softmax_backward),
    "_log_softmax": Composed("log_softmax", log_softmax),
    "_log_softmax_backward_data": Composed("log_softmax", log_softmax_backward),
}
