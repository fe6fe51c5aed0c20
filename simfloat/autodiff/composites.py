"""Functions made of operations, each of which is rounded on its own."""

from __future__ import annotations

from simfloat.autodiff.pointwise import divide, exp, log, subtract
from simfloat.autodiff.record import composite
from simfloat.autodiff.reductions import normalized_axes, sum
from simfloat.autodiff.tensor import Tensor


def softmax(a: Tensor, axis: int = -1) -> Tensor:
    """exp(d) / sum(exp(d)) with d = a - max along `axis`."""
    with composite("softmax"):
        powers = exp(subtract(a, _largest(a, axis)))
        return divide(powers, sum(powers, axis, keepdims=True))


def log_softmax(a: Tensor, axis: int = -1) -> Tensor:
    """d - log(sum(exp(d))) with d = a - max along `axis`."""
    with composite("log_softmax"):
        below = subtract(a, _largest(a, axis))
        return subtract(below, log(sum(exp(below), axis, keepdims=True)))


def _largest(a: Tensor, axis: int) -> Tensor:
    """The maximum along an axis as a constant: its gradient would cancel."""
    return Tensor(a.data.max(axis=normalized_axes(axis, a.ndim), keepdims=True))
