"""Losses of numbers and of distributions, and their reduction: composites of rounded operations."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.environment import in_usual_environment
from simfloat.nn.arguments import as_number
from simfloat.simulation.formulas import Slope, losses
from simfloat.simulation.formulas import losses as loss_formulas

#: What becomes of the losses of all examples.
REDUCTIONS = ("mean", "sum", "none")


@in_usual_environment
def mse_loss(input: Operand, target: Operand, *, reduction: str = "mean") -> Tensor:
    """The mean of (input - target)^2; their sum, or each of them, if `reduction` is "sum" or "none".

    Raises ValueError if the shapes differ: broadcasting here is a mistake more often than an intention.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.mse_loss([1.0, 2.0], [1.0, 4.0])
        >>> loss.item()
        2.0
    """
    x, y = _same_shape_tensors("mse_loss", input, target, reduction)
    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: loss_formulas.mse_loss_slope(u, g, x, y, reduction),
        lambda u, g, outputs, x, y: loss_formulas.mse_loss_slope(u, g, y, x, reduction),
    )
    formula = partial(loss_formulas.mse_loss, reduction=reduction)
    return tensor_of(composite_operation("mse_loss", formula, slopes, x, y, reads="operands"))


@in_usual_environment
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
    x, y = _same_shape_tensors("smooth_l1_loss", input, target, reduction)

    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: loss_formulas.smooth_l1_loss_slope(u, g, x, y, reduction, beta),
        lambda u, g, outputs, x, y: loss_formulas.smooth_l1_loss_slope(u, g, y, x, reduction, beta),
    )
    formula = partial(loss_formulas.smooth_l1_loss, reduction=reduction, beta=beta)
    return tensor_of(composite_operation("smooth_l1_loss", formula, slopes, x, y, reads="operands"))


@in_usual_environment
def huber_loss(input: Operand, target: Operand, *, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """The mean of d * d * 1/2 where d = |input - target| is less than delta, else of (d - delta / 2) * delta.

    The sum of these losses, or each of them, if `reduction` is "sum" or "none".

    Raises ValueError if the shapes differ, and unless delta is above 0.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.huber_loss([1.0, 2.0], [1.5, 4.0], delta=0.5)
        >>> loss.item()
        0.5
    """
    delta = check_delta(delta)
    x, y = _same_shape_tensors("huber_loss", input, target, reduction)
    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: loss_formulas.huber_loss_slope(u, g, x, y, reduction, delta),
        lambda u, g, outputs, x, y: loss_formulas.huber_loss_slope(u, g, y, x, reduction, delta),
    )
    formula = partial(loss_formulas.huber_loss, reduction=reduction, delta=delta)
    return tensor_of(composite_operation("huber_loss", formula, slopes, x, y, reads="operands"))


@in_usual_environment
def l1_loss(input: Operand, target: Operand, *, reduction: str = "mean") -> Tensor:
    """The mean of |input - target|; their sum, or each of them, if `reduction` is "sum" or "none".

    It is made of operations that policies know by their own names: subtract, abs, and mean or sum.

    Raises ValueError if the shapes differ.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.l1_loss([1.0, 2.0], [1.5, 4.0])
        >>> loss.item()
        1.25
    """
    x, y = _same_shape_tensors("l1_loss", input, target, reduction)
    return reduce_tensor_losses((x - y).abs(), reduction)


def reduce_tensor_losses(losses: Tensor, reduction: str) -> Tensor:
    """The mean of losses, their sum, or the losses themselves."""
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def check_delta(delta: float) -> float:
    """Where Huber's loss becomes a line, a number above 0."""
    if as_number(delta, "delta") <= 0:
        raise ValueError(f"delta must be above 0, got {delta!r}.")
    return float(delta)


@in_usual_environment
def binary_cross_entropy(
    input: Operand, target: ArrayLike, weight: ArrayLike | None = None, *, reduction: str = "mean"
) -> Tensor:
    """The mean of (y - 1) * log1p(-x) - y * log(x), of probabilities x and targets y, which are constants.

    Logarithms are no less than -100. The losses times `weight`, which is broadcast, are what is gathered: their sum, or
    each of them, if `reduction` is "sum" or "none". In a narrow format 1 - x loses what is small: compute of logarithms
    of odds, by `binary_cross_entropy_with_logits`.

    Raises ValueError if the shapes differ, for probabilities outside [0, 1], and for a target that requires a gradient.

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
    """A target as a tensor; ValueError for one that requires a gradient, which the loss of this name has not."""
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
    """The mean of (1 - y) * x - l with l = min(x, 0) - log1p(exp(-|x|)), the logarithm of the probability.

    x is the input, the logarithm of the odds of a probability, and y the target, from 0 to 1. The losses times `weight`
    are what is gathered: their sum, or each of them, if `reduction` is "sum" or "none". With `pos_weight`, the factor
    of the losses at positive targets, l is multiplied by (pos_weight - 1) * y + 1. Both weights are broadcast.

    Raises ValueError if the shapes of input and target differ, or a weight has another.

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


def check_reduction(reduction: str) -> None:
    """Raise ValueError for what is no reduction."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}.")


def _same_shape_tensors(name: str, input: Operand, target: Operand, reduction: str) -> tuple[Tensor, Tensor]:
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
    """The mean of y * log(y) - y * input, of targets y: Kullback and Leibler's divergence.

    input are logarithms of probabilities; so are the targets with `log_target`, and the terms exp(y) * (y - input).
    `reduction` "sum" gives their sum, "batchmean" that divided by the length of the first axis, "none" each of them. It
    is made of operations that policies know by their own names.

    Raises ValueError if the shapes differ.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.kl_div(np.log([[0.5, 0.5]]), [[0.25, 0.75]], reduction="batchmean")
        >>> loss.item()
        0.13081201910972595
    """
    check_divergence(reduction)
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
    """x * log(y), and 0 where x is."""
    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: losses.xlogy_to_x(u, g, x, y),
        lambda u, g, outputs, x, y: losses.xlogy_to_y(u, g, x, y),
    )
    return tensor_of(composite_operation("xlogy", losses.xlogy, slopes, x, y, reads="operands"))


def check_divergence(reduction: str) -> None:
    """Raise ValueError for what is no reduction of a divergence."""
    reductions = (*REDUCTIONS, "batchmean")
    if reduction not in reductions:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, reductions))}, got {reduction!r}.")
