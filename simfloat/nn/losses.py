"""Losses of numbers, and how losses are gathered: composites of rounded operations."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Tensor, where
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose
from simfloat.nn.layer_arguments import as_number

#: What becomes of the losses of all examples.
REDUCTIONS = ("mean", "sum", "none")


def mse_loss(input: Operand, target: Operand, *, reduction: str = "mean") -> Tensor:
    """The mean of (input - target)^2; their sum, or each of them, if `reduction` is "sum" or "none".

    Raises ValueError if the shapes differ: broadcasting here is a mistake more often than an intention.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.mse_loss([1.0, 2.0], [1.0, 4.0])
        >>> loss.item()
        2.0
    """
    x, y = _alike("mse_loss", input, target, reduction)
    return compose("mse_loss", lambda x, y: reduced((x - y).square(), reduction), x, y)


def smooth_l1_loss(input: Operand, target: Operand, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """The mean of d * d * 1/2 / beta where d = |input - target| is less than beta, else of d - beta / 2.

    The sum of these losses, or each of them, if `reduction` is "sum" or "none". With beta 0 they are d itself.

    Raises ValueError if the shapes differ, and for a negative beta.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.smooth_l1_loss([1.0, 2.0], [1.5, 4.0])
        >>> loss.item()
        0.8125
    """
    beta = as_number(beta, "beta", 0.0)
    x, y = _alike("smooth_l1_loss", input, target, reduction)

    def body(x: Tensor, y: Tensor) -> Tensor:
        d = (x - y).abs()
        if beta:
            d = where(d < beta, d.square() * 0.5 / beta, d - beta / 2)
        return reduced(d, reduction)

    return compose("smooth_l1_loss", body, x, y)


def binary_cross_entropy_with_logits(
    input: Operand,
    target: Operand,
    weight: ArrayLike | None = None,
    *,
    reduction: str = "mean",
    pos_weight: ArrayLike | None = None,
) -> Tensor:
    """The mean of (1 - y) * x + log(exp(-m) + exp(-x - m)) + m with m = max(-x, 0), a constant.

    x is the input, the logarithm of the odds of a probability, and y the target, from 0 to 1. The losses times `weight`
    are what is gathered: their sum, or each of them, if `reduction` is "sum" or "none". With `pos_weight`, the factor
    of the losses at positive targets, the sum of the logarithm and m is multiplied by (pos_weight - 1) * y + 1. Both
    weights are broadcast.

    Raises ValueError if the shapes of input and target differ, or a weight has another.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.binary_cross_entropy_with_logits([2.0, -1.0], [1.0, 0.0])
        >>> loss.item()
        0.22009482979774475
    """
    x, y = _alike("binary_cross_entropy_with_logits", input, target, reduction)
    factor = _broadcast_weight("weight", weight, x.shape)
    positive = _broadcast_weight("pos_weight", pos_weight, x.shape)

    def body(x: Tensor, y: Tensor) -> Tensor:
        # As PyTorch had it until 1.13: no exponential overflows, and at 0 the derivative is right.
        opposite = -x
        m = opposite.detach().relu()
        softplus = ((-m).exp() + (opposite - m).exp()).log() + m
        if positive is not None:
            softplus = softplus * ((Tensor(positive) - 1.0) * y + 1.0)
        losses = (1.0 - y) * x + softplus
        return reduced(losses if factor is None else losses * factor, reduction)

    return compose("binary_cross_entropy_with_logits", body, x, y)


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The mean of losses, their sum, or the losses themselves."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()


def check_reduction(reduction: str) -> None:
    """Raise ValueError for what is no reduction."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}.")


def _alike(name: str, input: Operand, target: Operand, reduction: str) -> tuple[Tensor, Tensor]:
    """Input and target as tensors of one shape."""
    check_reduction(reduction)
    x, y = as_tensor(input), as_tensor(target)
    if x.shape != y.shape:
        raise ValueError(f"{name} needs input and target of one shape, got {x.shape} and {y.shape}.")
    return x, y


def _broadcast_weight(name: str, weight: ArrayLike | None, shape: tuple[int, ...]) -> NDArray | None:
    """A weight, which the losses' shape must be able to hold."""
    if weight is None:
        return None
    numbers = as_operand(weight, name)
    try:
        fits = np.broadcast_shapes(numbers.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} of shape {numbers.shape} does not broadcast to the losses' shape {shape}.")
    return numbers
