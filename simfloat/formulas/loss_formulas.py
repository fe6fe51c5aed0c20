"""Losses of numbers and of classes, and how they are gathered.

`reduction` is "mean", "sum", or "none". Slopes are PyTorch's: the gradient of each loss comes first, then that of what
it is a loss of; `g` is the gradient of what was gathered, and `x`, `y` are input and target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.formulas.rounded import Rounded, absolute, negative, number, sign, where
from simfloat.formulas.slopes import HALF, ONE, TWO, ZERO


def reduce_losses(u: Rounded, losses: NDArray, reduction: str) -> NDArray:
    """The mean of losses, their sum, or the losses themselves."""
    if reduction == "none":
        return losses
    return (u.mean if reduction == "mean" else u.sum)(losses, tuple(range(losses.ndim)))


def gradient_per_loss(u: Rounded, g: NDArray, count: int, reduction: str) -> NDArray:
    """The gradient of each of so many losses."""
    return u.divide(g, number(count)) if reduction == "mean" else g


def mse_loss(u: Rounded, x: NDArray, y: NDArray, reduction: str) -> NDArray:
    """d * d with d = x - y."""
    d = u.subtract(x, y)
    return reduce_losses(u, u.multiply(d, d), reduction)


def mse_loss_slope(u: Rounded, g: NDArray, x: NDArray, y: NDArray, reduction: str) -> NDArray:
    """g * (d * 2) with d = x - y; that of y with x and y exchanged."""
    d = u.subtract(x, y)
    return u.multiply(gradient_per_loss(u, g, d.size, reduction), u.multiply(d, TWO))


def smooth_l1_loss(u: Rounded, x: NDArray, y: NDArray, reduction: str, beta: float = 1.0) -> NDArray:
    """d * d * 1/2 / beta where d = |x - y| is less than beta, else d - beta / 2; d itself where beta is 0."""
    losses = absolute(u, u.subtract(x, y))
    if beta:
        curve = u.divide(u.multiply(u.multiply(losses, losses), HALF), number(beta))
        losses = where(u, losses < beta, curve, u.subtract(losses, number(beta / 2)))
    return reduce_losses(u, losses, reduction)


def smooth_l1_loss_slope(u: Rounded, g: NDArray, x: NDArray, y: NDArray, reduction: str, beta: float) -> NDArray:
    """d * g / beta where d = x - y lies between -beta and beta, else d's sign times g; that of y exchanges them."""
    d = u.subtract(x, y)
    share = gradient_per_loss(u, g, d.size, reduction)
    if not beta:
        return u.multiply(sign(u, d), share)
    is_near = absolute(u, d) < beta
    near = u.divide(u.multiply(d, share), number(beta))
    return where(u, is_near, near, u.multiply(sign(u, d), share))


def huber_loss(u: Rounded, x: NDArray, y: NDArray, reduction: str, delta: float = 1.0) -> NDArray:
    """d * d * 1/2 where d = |x - y| is less than delta, else (d - delta / 2) * delta."""
    d = absolute(u, u.subtract(x, y))
    curve = u.multiply(u.multiply(d, d), HALF)
    line = u.multiply(u.subtract(d, number(delta / 2)), number(delta))
    return reduce_losses(u, where(u, d < delta, curve, line), reduction)


def huber_loss_slope(u: Rounded, g: NDArray, x: NDArray, y: NDArray, reduction: str, delta: float) -> NDArray:
    """d * g where d = x - y lies between -delta and delta, else the sign of d times delta times g."""
    d = u.subtract(x, y)
    share = gradient_per_loss(u, g, d.size, reduction)
    is_near = absolute(u, d) < delta
    near = u.multiply(d, share)
    return where(u, is_near, near, u.multiply(u.multiply(sign(u, d), number(delta)), share))


def check_probabilities(x: NDArray) -> None:
    """Raise ValueError for a number below 0 or above 1; NaN, which a narrow format may have made, is let through."""
    if ((x < 0) | (x > 1)).any():
        raise ValueError(
            "binary_cross_entropy takes probabilities from 0 to 1; got others. The loss of logits is "
            "binary_cross_entropy_with_logits."
        )


def binary_cross_entropy(u: Rounded, x: NDArray, y: NDArray, weight: NDArray | None, reduction: str) -> NDArray:
    """(y - 1) * log1p(-x) - y * log(x), logarithms being no less than -100; times the weight."""
    against = u.multiply(u.subtract(y, ONE), _at_least(u, u.apply("log1p", negative(u, x))))
    losses = u.subtract(against, u.multiply(y, _at_least(u, u.apply("log", x))))
    return reduce_losses(u, losses if weight is None else u.multiply(losses, weight), reduction)


def binary_cross_entropy_slope(
    u: Rounded, g: NDArray, x: NDArray, y: NDArray, weight: NDArray | None, reduction: str
) -> NDArray:
    """g * (x - y) / ((1 - x) * x), the divisor being no less than 1e-12; times the weight."""
    product = u.multiply(u.subtract(ONE, x), x)
    divisor = u.round(as_array(np.maximum(product, 1e-12)), "clip", product)
    slope = u.divide(u.multiply(gradient_per_loss(u, g, x.size, reduction), u.subtract(x, y)), divisor)
    return slope if weight is None else u.multiply(slope, weight)


def _at_least(u: Rounded, logarithm: NDArray) -> NDArray:
    """A logarithm, no less than -100."""
    return u.round(as_array(np.maximum(logarithm, -100.0)), "clip", logarithm)


def xlogy(u: Rounded, x: NDArray, y: NDArray) -> NDArray:
    """x * log(y), and 0 where x is."""
    product = u.multiply(x, u.apply("log", y))
    return where(u, (x != 0) | np.isnan(y), product, ZERO.astype(product.dtype))


def xlogy_to_x(u: Rounded, g: NDArray, x: NDArray, y: NDArray) -> NDArray:
    """g * log(y), and 0 where g is, or x and no y above 0."""
    slope = xlogy(u, g, y)
    return where(u, (x != 0) | (y > 0), slope, ZERO.astype(slope.dtype))


def xlogy_to_y(u: Rounded, g: NDArray, x: NDArray, y: NDArray) -> NDArray:
    """g * x / y."""
    return u.divide(u.multiply(g, x), y)


def logistic_loss(
    u: Rounded, x: NDArray, y: NDArray, weight: NDArray | None, pos_weight: NDArray | None, reduction: str
) -> NDArray:
    """(1 - y) * x - l with l = log_sigmoid(x): binary cross-entropy with logits.

    With `pos_weight` p, l is multiplied by (p - 1) * y + 1; losses by `weight`.
    """
    s = log_sigmoid(u, x)
    if pos_weight is not None:
        s = u.multiply(s, u.add(u.multiply(u.subtract(pos_weight, ONE), y), ONE))
    losses = u.subtract(u.multiply(u.subtract(ONE, y), x), s)
    return reduce_losses(u, losses if weight is None else u.multiply(losses, weight), reduction)


def logistic_loss_slope(
    u: Rounded, g: NDArray, x: NDArray, y: NDArray, weight: NDArray | None, pos_weight: NDArray | None, reduction: str
) -> NDArray:
    """(sigmoid(x) - y) * g, or ((t + 1 - y) * sigmoid(x) - t) * g with t = p * y; times the weight, by their number."""
    if pos_weight is None:
        slope = u.subtract(u.apply("sigmoid", x), y)
    else:
        t = u.multiply(pos_weight, y)
        factor = u.subtract(u.add(t, ONE), y)
        slope = u.subtract(u.multiply(factor, u.apply("sigmoid", x)), t)
    return _weight_gradient(u, u.multiply(slope, g), weight, reduction)


def logistic_loss_slope_of_target(
    u: Rounded, g: NDArray, x: NDArray, weight: NDArray | None, pos_weight: NDArray | None, reduction: str
) -> NDArray:
    """-x * g, or (l(-x) - l(x) * p) * g with l = log_sigmoid; times the weight, by their number."""
    opposite = negative(u, x)
    if pos_weight is None:
        slope = opposite
    else:
        slope = u.subtract(log_sigmoid(u, opposite), u.multiply(log_sigmoid(u, x), pos_weight))
    return _weight_gradient(u, u.multiply(slope, g), weight, reduction)


def log_sigmoid(u: Rounded, x: NDArray) -> NDArray:
    """min(x, 0) - log1p(exp(-|x|))."""
    least = u.round(np.minimum(x, 0), "clip", x)
    powers = u.apply("exp", negative(u, absolute(u, x)))
    return u.subtract(least, u.apply("log1p", powers))


def _weight_gradient(u: Rounded, slope: NDArray, weight: NDArray | None, reduction: str) -> NDArray:
    """The gradient of losses times their weights, and of their mean."""
    slope = slope if weight is None else u.multiply(slope, weight)
    return u.divide(slope, number(slope.size)) if reduction == "mean" else slope


def nll_loss(
    u: Rounded, x: NDArray, target: NDArray, weight: NDArray | None, reduction: str, ignored: int, axis: int
) -> tuple[NDArray, NDArray]:
    """-x at the targets along an axis, times their weights; the mean divides the sum by that of the weights.

    That divisor comes second. Losses of targets that are `ignored` are 0, and so are their weights.
    """
    places, is_counted, counts = _target_places(u, x, target, weight, ignored, axis)
    at_targets = u.with_format_of(as_array(x[places]), x)
    losses = where(u, is_counted, negative(u, at_targets), ZERO)
    every = tuple(range(target.ndim))
    if counts is None:
        divisor = as_array(is_counted.sum().astype(x.dtype))
    else:
        losses, divisor = u.multiply(losses, counts), u.sum(counts, every)
    if reduction == "none":
        return losses, divisor
    total = u.sum(losses, every)
    return (u.divide(total, divisor) if reduction == "mean" else total), divisor


def nll_loss_slope(
    u: Rounded, g: NDArray, x: NDArray, target: NDArray, weight: NDArray | None, reduction: str, ignored: int,
    divisor: NDArray, axis: int,
) -> NDArray:  # fmt: skip
    """-g at the targets, divided as the mean was, and times their weights."""
    places, is_counted, counts = _target_places(u, x, target, weight, ignored, axis)
    share = negative(u, g)
    share = u.divide(share, divisor) if reduction == "mean" else share
    share = np.broadcast_to(share, target.shape) if counts is None else u.multiply(share, counts)
    full = np.zeros(x.shape, share.dtype, like=share)
    full[places] = where(u, is_counted, share, ZERO)
    return full


def check_classes(labels: NDArray[np.integer], weight: NDArray | None, classes: int, ignored: int) -> None:
    """Raise ValueError for a label that is no class, and not the one that is ignored; and for weights of others."""
    if ((labels != ignored) & ((labels < 0) | (labels >= classes))).any():  # one look, which on a GPU is to wait for it
        labels = labels[labels != ignored]
        raise ValueError(f"Class numbers go from 0 to {classes - 1}; {labels.min()} to {labels.max()} came.")
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"weight has one number for each of {classes} classes, got shape {weight.shape}.")


def _target_places(
    u: Rounded, x: NDArray, target: NDArray, weight: NDArray | None, ignored: int, axis: int
) -> tuple[tuple[NDArray, ...], NDArray, NDArray | None]:
    """The index of the targets' places along the axis, which of them count, and their weights if there are any."""
    is_counted = target != ignored
    labels = np.where(is_counted, target, 0)
    counts = None if weight is None else u.multiply(weight[labels], is_counted.astype(x.dtype))
    sizes, last = labels.shape, labels.ndim - 1
    places = [np.arange(size, like=labels).reshape(-1, *(1,) * (last - i)) for i, size in enumerate(sizes)]
    return (*places[:axis], labels, *places[axis:]), is_counted, counts
