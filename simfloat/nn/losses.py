"""Losses for regression and for distributions, and their reduction: composites of rounded operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.environment import in_usual_environment
from simfloat.nn.arguments import as_positive, number_from_zero
from simfloat.simulation.formulas import Slope, losses
from simfloat.simulation.formulas import losses as loss_formulas

#: How the losses of all examples are combined.
REDUCTIONS = ("mean", "sum", "none")


def as_reduction(name: str, value: Any, words: tuple[str, ...] = REDUCTIONS) -> str:
    """Return one of these words; raise ValueError for anything else."""
    if value not in words:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, got {value!r}.")
    return value


as_divergence_reduction = partial(as_reduction, words=(*REDUCTIONS, "batchmean"))


@in_usual_environment
def mse_loss(input: Operand, target: Operand, *, reduction: str = "mean") -> Tensor:
    """Return the mean of (input - target)^2.

    Parameters:
        input, target: arrays of one shape; broadcasting is not allowed, because it is usually a mistake.
        reduction: "mean", "sum", or "none" for each loss separately.

    Returns:
        A scalar Tensor, or one with the shape of input for "none".

    Raises:
        ValueError: if the shapes differ.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.mse_loss([1.0, 2.0], [1.0, 4.0])
        >>> loss.item()
        2.0
    """
    formula, slope = loss_formulas.mse_loss, loss_formulas.mse_loss_slope
    return _symmetric_loss("mse_loss", formula, slope, input, target, reduction)


@in_usual_environment
def smooth_l1_loss(input: Operand, target: Operand, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Return the mean of d * d * 1/2 / beta if d = |input - target| is less than beta, otherwise of d - beta / 2.

    Parameters:
        input, target: arrays of one shape.
        reduction: "mean", "sum", or "none" for each loss separately.
        beta: the distance at which the parabola becomes a line, a number from 0; with 0 the loss is d.

    Returns:
        A scalar Tensor, or one with the shape of input for "none".

    Raises:
        ValueError: if the shapes differ; if beta is negative.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.smooth_l1_loss([1.0, 2.0], [1.5, 4.0])
        >>> loss.item()
        0.8125
    """
    beta = number_from_zero("beta", beta)
    formula, slope = loss_formulas.smooth_l1_loss, loss_formulas.smooth_l1_loss_slope
    return _symmetric_loss("smooth_l1_loss", formula, slope, input, target, reduction, beta=beta)


@in_usual_environment
def huber_loss(input: Operand, target: Operand, *, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Return the mean of d * d * 1/2 if d = |input - target| is less than delta, otherwise of (d - delta / 2) * delta.

    Parameters:
        input, target: arrays of one shape.
        reduction: "mean", "sum", or "none" for each loss separately.
        delta: the distance at which the parabola becomes a line, a number above 0.

    Returns:
        A scalar Tensor, or one with the shape of input for "none".

    Raises:
        ValueError: if the shapes differ; if delta is not above 0.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.huber_loss([1.0, 2.0], [1.5, 4.0], delta=0.5)
        >>> loss.item()
        0.5
    """
    delta = as_positive("delta", delta)
    formula, slope = loss_formulas.huber_loss, loss_formulas.huber_loss_slope
    return _symmetric_loss("huber_loss", formula, slope, input, target, reduction, delta=delta)


def _symmetric_loss(
    name: str,
    formula: Callable[..., NDArray],
    slope: Callable[..., NDArray],
    input: Operand,
    target: Operand,
    reduction: str,
    **options: float,
) -> Tensor:
    """Return a loss of |input - target|: its derivative is one formula for the input, and exchanged for the target."""
    x, y = _same_shape_tensors(name, input, target, reduction)
    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: slope(u, g, x, y, reduction, **options),
        lambda u, g, outputs, x, y: slope(u, g, y, x, reduction, **options),
    )
    formula = partial(formula, reduction=reduction, **options)
    return tensor_of(composite_operation(name, formula, slopes, x, y, reads="operands"))


@in_usual_environment
def l1_loss(input: Operand, target: Operand, *, reduction: str = "mean") -> Tensor:
    """Return the mean of |input - target|.

    The loss consists of operations with their own names in policies: subtract, abs, and mean or sum.

    Parameters:
        input, target: arrays of one shape.
        reduction: "mean", "sum", or "none" for each loss separately.

    Returns:
        A scalar Tensor, or one with the shape of input for "none".

    Raises:
        ValueError: if the shapes differ.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.l1_loss([1.0, 2.0], [1.5, 4.0])
        >>> loss.item()
        1.25
    """
    x, y = _same_shape_tensors("l1_loss", input, target, reduction)
    return reduce_tensor_losses((x - y).abs(), reduction)


def reduce_tensor_losses(losses: Tensor, reduction: str) -> Tensor:
    """Return the mean of losses, their sum, or the losses themselves."""
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


@in_usual_environment
def binary_cross_entropy(
    input: Operand, target: ArrayLike, weight: ArrayLike | None = None, *, reduction: str = "mean"
) -> Tensor:
    """Return the mean of (y - 1) * log1p(-x) - y * log(x), for probabilities x and targets y.

    Logarithms below -100 are replaced by -100. In a narrow format, 1 - x loses small probabilities: use
    `binary_cross_entropy_with_logits` instead.

    Parameters:
        input: the probabilities x, from 0 to 1.
        target: the targets y, with the shape of input; they have no gradient.
        weight: factors of the losses, broadcast to their shape; by default 1.
        reduction: "mean", "sum", or "none" for each weighted loss separately.

    Returns:
        A scalar Tensor, or one with the shape of input for "none".

    Raises:
        ValueError: if the shapes differ; if a probability is outside [0, 1]; if the target requires a gradient.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.binary_cross_entropy([0.5, 0.25], [1.0, 0.0])
        >>> loss.item()
        0.4904146194458008
    """
    x, y = _same_shape_tensors("binary_cross_entropy", input, constant("binary_cross_entropy", target), reduction)
    loss_formulas.check_probabilities(x.numbers)
    factor = _broadcast_weight("weight", weight, x.shape)
    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: loss_formulas.binary_cross_entropy_slope(u, g, x, y, factor, reduction),
    )
    formula = partial(loss_formulas.binary_cross_entropy, weight=factor, reduction=reduction)
    return tensor_of(composite_operation("binary_cross_entropy", formula, slopes, x, y, reads="operands"))


def constant(name: str, target: Operand) -> Tensor:
    """Return a target as a tensor; raise ValueError if it requires a gradient, which the loss does not have."""
    tensor = as_tensor(target)
    if tensor.requires_grad:
        raise ValueError(f"{name} has no gradient of its target; pass target.detach() if none is wanted.")
    return tensor


@in_usual_environment
def binary_cross_entropy_with_logits(
    input: Operand,
    target: Operand,
    weight: ArrayLike | None = None,
    *,
    reduction: str = "mean",
    pos_weight: ArrayLike | None = None,
) -> Tensor:
    """Return the mean of (1 - y) * x - l with l = min(x, 0) - log1p(exp(-|x|)), for logits x and targets y.

    A logit is the logarithm of the odds of a probability, and l is the logarithm of that probability.

    Parameters:
        input: the logits x.
        target: the targets y from 0 to 1, with the shape of input.
        weight: factors of the losses, broadcast to their shape; by default 1.
        reduction: "mean", "sum", or "none" for each weighted loss separately.
        pos_weight: the factor of the losses at positive targets: l is multiplied by (pos_weight - 1) * y + 1. It is
            broadcast.

    Returns:
        A scalar Tensor, or one with the shape of input for "none".

    Raises:
        ValueError: if the shapes of input and target differ; if a weight does not broadcast to that shape.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.binary_cross_entropy_with_logits([2.0, -1.0], [1.0, 0.0])
        >>> loss.item()
        0.22009488940238953
    """
    x, y = _same_shape_tensors("binary_cross_entropy_with_logits", input, target, reduction)
    factor = _broadcast_weight("weight", weight, x.shape)
    positive = _broadcast_weight("pos_weight", pos_weight, x.shape)

    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: loss_formulas.logistic_loss_slope(u, g, x, y, factor, positive, reduction),
        lambda u, g, outputs, x, y: loss_formulas.logistic_loss_slope_of_target(u, g, x, factor, positive, reduction),
    )
    formula = partial(loss_formulas.logistic_loss, weight=factor, pos_weight=positive, reduction=reduction)
    return tensor_of(composite_operation("binary_cross_entropy_with_logits", formula, slopes, x, y, reads="operands"))


def _same_shape_tensors(name: str, input: Operand, target: Operand, reduction: str) -> tuple[Tensor, Tensor]:
    """Return input and target as tensors; raise ValueError if their shapes differ."""
    if reduction not in REDUCTIONS:
        as_reduction("reduction", reduction)
    x, y = as_tensor(input), as_tensor(target)
    if x.numbers.shape != y.numbers.shape:
        raise ValueError(f"{name} needs input and target of one shape, got {x.shape} and {y.shape}.")
    return x, y


def _broadcast_weight(name: str, weight: ArrayLike | None, shape: tuple[int, ...]) -> NDArray | None:
    """Return a weight as an array; raise ValueError if it does not broadcast to the shape of the losses."""
    if weight is None:
        return None
    factors = as_operand(weight, name)
    try:
        fits = np.broadcast_shapes(factors.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} of shape {factors.shape} does not broadcast to the losses' shape {shape}.")
    return factors


@in_usual_environment
def kl_div(input: Operand, target: Operand, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Return the mean of y * log(y) - y * input, for targets y: the Kullback-Leibler divergence.

    The divergence consists of operations with their own names in policies.

    Parameters:
        input: logarithms of probabilities.
        target: the probabilities y, or their logarithms with `log_target`; the same shape.
        reduction: "mean", "sum", "none" for each term separately, or "batchmean" for the sum divided by the length of
            the first axis.
        log_target: True if the targets are logarithms; the terms are then exp(y) * (y - input).

    Returns:
        A scalar Tensor, or one with the shape of input for "none".

    Raises:
        ValueError: if the shapes differ.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.kl_div(np.log([[0.5, 0.5]]), [[0.25, 0.75]], reduction="batchmean")
        >>> loss.item()
        0.13081201910972595
    """
    as_divergence_reduction("reduction", reduction)
    x, y = as_tensor(input), as_tensor(target)
    if x.shape != y.shape:
        raise ValueError(f"kl_div needs input and target of one shape, got {x.shape} and {y.shape}.")
    if log_target:
        terms = y.exp() * (y - x)
    else:
        terms = xlogy(y, y) - y * x
    if reduction != "batchmean":
        return reduce_tensor_losses(terms, reduction)
    return terms.sum() / float(x.shape[0] if x.ndim else 1)


def xlogy(x: Operand, y: Operand) -> Tensor:
    """Return x * log(y), or 0 if x is 0."""
    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: losses.xlogy_to_x(u, g, x, y),
        lambda u, g, outputs, x, y: losses.xlogy_to_y(u, g, x, y),
    )
    return tensor_of(composite_operation("xlogy", losses.xlogy, slopes, x, y, reads="operands"))
