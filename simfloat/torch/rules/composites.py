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


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "_softmax": Composed("softmax", softmax),
    "_softmax_backward_data": Composed("softmax", softmax_backward),
    "_log_softmax": Composed("log_softmax", log_softmax),
    "_log_softmax_backward_data": Composed("log_softmax", log_softmax_backward),
}
