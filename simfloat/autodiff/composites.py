"""What the composites that are methods of tensors are made of, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from simfloat.autodiff import joining
from simfloat.autodiff.record import Made
from simfloat.autodiff.reductions import Axes, normalized_axes
from simfloat.simulation.simulation import current

if TYPE_CHECKING:
    from simfloat.autodiff.tensor import Tensor


def softmax(x: Tensor, axis: int) -> Tensor:
    """exp(d) / sum(exp(d)) with d = x - max(x)."""
    powers = (x - _largest(x, axis)).exp()
    return powers / powers.sum(axis, keepdims=True)


def log_softmax(x: Tensor, axis: int) -> Tensor:
    """d - log(sum(exp(d))) with d = x - max(x)."""
    below = x - _largest(x, axis)
    return below - below.exp().sum(axis, keepdims=True).log()


def logsumexp(x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """log(sum(exp(d))) + m with d = x - m and m = max(x)."""
    largest = _largest(x, axis)
    nothing = largest.numbers == -np.inf
    # An infinity less itself is no number; 0 takes the place of the largest.
    largest.numbers = np.where(np.isinf(largest.numbers), largest.numbers.dtype.type(0), largest.numbers)
    total = (x - largest).exp().sum(axis, keepdims=True)
    if nothing.any():
        # The logarithm of 0 has no slope; 1 stands in for it.
        total = x.made(joining.where(nothing, 1.0, total))
    result = total.log() + largest
    if nothing.any():
        result = x.made(joining.where(nothing, -np.inf, result))
    return result if keepdims else result.squeeze(normalized_axes(axis, x.ndim))


def variance(x: Tensor, axis: Axes, keepdims: bool, correction: int) -> Tensor:
    """The sum of (x - mean(x))^2, divided by the number of terms less `correction`."""
    squares = (x - x.mean(axis, keepdims=True)).square()
    if not correction:
        return squares.mean(axis, keepdims)
    count = math.prod(x.shape[i] for i in normalized_axes(axis, x.ndim))
    return squares.sum(axis, keepdims) / float(max(count - correction, 0))


def _largest(x: Tensor, axis: Axes) -> Tensor:
    """The maximum along an axis as a constant: its gradient would cancel."""
    used = x.used_in(current())
    axes = normalized_axes(axis, x.ndim)
    if not all(x.shape[i] for i in axes):
        raise ValueError(f"A softmax needs at least one element along axis {axis}, got shape {x.shape}.")
    return x.made(Made(used.numbers.max(axis=axes, keepdims=True), used.format, None))
