"""The formulas of losses for values and classes, of their reduction, and of their gradients.

`reduction` is "mean", "sum" or "none". The slopes follow PyTorch: they compute the gradient of each single loss, then
the gradient of its operand. `g` is the gradient of the reduced losses; `x` and `y` are input and target.

The last part is connectionist temporal classification: Graves et al., ICML 2006.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array, on_device_of
from simfloat.simulation.formulas import Rounded, absolute, negative, number, sign, where
from simfloat.simulation.formulas.slopes import HALF, ONE, TWO, ZERO, logsumexp
from simfloat.simulation.inside import add_rows


def reduce_losses(u: Rounded, losses: NDArray, reduction: str) -> NDArray:
    """Return the mean or the sum of losses, or the losses."""
    if reduction == "none":
        return losses
    return (u.mean if reduction == "mean" else u.sum)(losses, tuple(range(losses.ndim)))


def gradient_per_loss(u: Rounded, g: NDArray, count: int, reduction: str) -> NDArray:
    """Return the gradient of each of `count` losses."""
    return u.divide(g, number(count)) if reduction == "mean" else g


def mse_loss(u: Rounded, x: NDArray, y: NDArray, reduction: str) -> NDArray:
    """d * d with d = x - y."""
    d = u.subtract(x, y)
    return reduce_losses(u, u.multiply(d, d), reduction)


def mse_loss_slope(u: Rounded, g: NDArray, x: NDArray, y: NDArray, reduction: str) -> NDArray:
    """g * (d * 2) with d = x - y; for the gradient of y, exchange x and y."""
    d = u.subtract(x, y)
    return u.multiply(gradient_per_loss(u, g, d.size, reduction), u.multiply(d, TWO))


def smooth_l1_loss(u: Rounded, x: NDArray, y: NDArray, reduction: str, beta: float = 1.0) -> NDArray:
    """d * d * 1/2 / beta if d = |x - y| is less than beta, otherwise d - beta / 2; d if beta is 0."""
    losses = absolute(u, u.subtract(x, y))
    if beta:
        curve = u.divide(u.multiply(u.multiply(losses, losses), HALF), number(beta))
        losses = where(u, losses < beta, curve, u.subtract(losses, number(beta / 2)))
    return reduce_losses(u, losses, reduction)


def smooth_l1_loss_slope(u: Rounded, g: NDArray, x: NDArray, y: NDArray, reduction: str, beta: float) -> NDArray:
    """d * g / beta if d = x - y is between -beta and beta, otherwise sign(d) * g; for the gradient of y, exchange x
    and y.
    """
    d = u.subtract(x, y)
    share = gradient_per_loss(u, g, d.size, reduction)
    if not beta:
        return u.multiply(sign(u, d), share)
    is_near = absolute(u, d) < beta
    near = u.divide(u.multiply(d, share), number(beta))
    return where(u, is_near, near, u.multiply(sign(u, d), share))


def huber_loss(u: Rounded, x: NDArray, y: NDArray, reduction: str, delta: float = 1.0) -> NDArray:
    """d * d * 1/2 if d = |x - y| is less than delta, otherwise (d - delta / 2) * delta."""
    d = absolute(u, u.subtract(x, y))
    curve = u.multiply(u.multiply(d, d), HALF)
    line = u.multiply(u.subtract(d, number(delta / 2)), number(delta))
    return reduce_losses(u, where(u, d < delta, curve, line), reduction)


def huber_loss_slope(u: Rounded, g: NDArray, x: NDArray, y: NDArray, reduction: str, delta: float) -> NDArray:
    """d * g if d = x - y is between -delta and delta, otherwise sign(d) * delta * g."""
    d = u.subtract(x, y)
    share = gradient_per_loss(u, g, d.size, reduction)
    is_near = absolute(u, d) < delta
    near = u.multiply(d, share)
    return where(u, is_near, near, u.multiply(u.multiply(sign(u, d), number(delta)), share))


def check_probabilities(x: NDArray) -> None:
    """Raise ValueError for a value below 0 or above 1; NaN is accepted: a narrow format may have produced it."""
    if ((x < 0) | (x > 1)).any():
        raise ValueError(
            "binary_cross_entropy takes probabilities from 0 to 1, got values outside. For logits, use "
            "binary_cross_entropy_with_logits."
        )


def binary_cross_entropy(u: Rounded, x: NDArray, y: NDArray, weight: NDArray | None, reduction: str) -> NDArray:
    """(y - 1) * max(log1p(-x), -100) - y * max(log(x), -100), times the weight."""
    against = u.multiply(u.subtract(y, ONE), _at_least(u, u.apply("log1p", negative(u, x))))
    losses = u.subtract(against, u.multiply(y, _at_least(u, u.apply("log", x))))
    return reduce_losses(u, losses if weight is None else u.multiply(losses, weight), reduction)


def binary_cross_entropy_slope(
    u: Rounded, g: NDArray, x: NDArray, y: NDArray, weight: NDArray | None, reduction: str
) -> NDArray:
    """g * (x - y) / max((1 - x) * x, 1e-12), times the weight."""
    product = u.multiply(u.subtract(ONE, x), x)
    divisor = u.round(as_array(np.maximum(product, 1e-12)), "clip", product)
    slope = u.divide(u.multiply(gradient_per_loss(u, g, x.size, reduction), u.subtract(x, y)), divisor)
    return slope if weight is None else u.multiply(slope, weight)


def _at_least(u: Rounded, logarithm: NDArray) -> NDArray:
    """max(logarithm, -100)."""
    return u.round(as_array(np.maximum(logarithm, -100.0)), "clip", logarithm)


def xlogy(u: Rounded, x: NDArray, y: NDArray) -> NDArray:
    """x * log(y); 0 if x is 0."""
    logarithms, is_needed = u.apply("log", y), (x != 0) | np.isnan(y)
    # An observer would count 0 * inf as NaN, although the result is 0.
    product = u.multiply(x, where(u, is_needed, logarithms, ZERO.astype(logarithms.dtype)))
    return where(u, is_needed, product, ZERO.astype(product.dtype))


def xlogy_to_x(u: Rounded, g: NDArray, x: NDArray, y: NDArray) -> NDArray:
    """g * log(y); 0 if g is 0, or if x is 0 and y is not above 0."""
    slope = xlogy(u, g, y)
    return where(u, (x != 0) | (y > 0), slope, ZERO.astype(slope.dtype))


def xlogy_to_y(u: Rounded, g: NDArray, x: NDArray, y: NDArray) -> NDArray:
    """g * x / y."""
    return u.divide(u.multiply(g, x), y)


def logistic_loss(
    u: Rounded, x: NDArray, y: NDArray, weight: NDArray | None, pos_weight: NDArray | None, reduction: str
) -> NDArray:
    """(1 - y) * x - l with l = log_sigmoid(x): binary cross-entropy with logits.

    With `pos_weight` p, l is multiplied by (p - 1) * y + 1. Losses are multiplied by `weight`.
    """
    s = log_sigmoid(u, x)
    if pos_weight is not None:
        s = u.multiply(s, u.add(u.multiply(u.subtract(pos_weight, ONE), y), ONE))
    losses = u.subtract(u.multiply(u.subtract(ONE, y), x), s)
    return reduce_losses(u, losses if weight is None else u.multiply(losses, weight), reduction)


def logistic_loss_slope(
    u: Rounded, g: NDArray, x: NDArray, y: NDArray, weight: NDArray | None, pos_weight: NDArray | None, reduction: str
) -> NDArray:
    """(sigmoid(x) - y) * g, or with `pos_weight` p ((t + 1 - y) * sigmoid(x) - t) * g with t = p * y.

    The result is multiplied by the weight and, for the mean, divided by the number of losses.
    """
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
    """-x * g, or with `pos_weight` p (l(-x) - l(x) * p) * g with l = log_sigmoid.

    The result is multiplied by the weight and, for the mean, divided by the number of losses.
    """
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
    """Multiply a gradient by the weights, and divide it by the number of losses for their mean."""
    slope = slope if weight is None else u.multiply(slope, weight)
    return u.divide(slope, number(slope.size)) if reduction == "mean" else slope


def nll_loss(
    u: Rounded, x: NDArray, target: NDArray, weight: NDArray | None, reduction: str, ignored: int, axis: int
) -> tuple[NDArray, NDArray]:
    """-x at the targets along an axis, times their weights; the mean divides the sum by the sum of the weights.

    This divisor is the second result. Losses and weights of targets that are `ignored` are 0.
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
    """-g at the targets, divided as in the mean, and times their weights."""
    places, is_counted, counts = _target_places(u, x, target, weight, ignored, axis)
    share = negative(u, g)
    share = u.divide(share, divisor) if reduction == "mean" else share
    share = np.broadcast_to(share, target.shape) if counts is None else u.multiply(share, counts)
    full = np.zeros(x.shape, share.dtype, like=share)
    full[places] = where(u, is_counted, share, ZERO)
    return full


def check_classes(labels: NDArray[np.integer], weight: NDArray | None, classes: int, ignored: int) -> None:
    """Raise ValueError for a label that is not a class or the ignored one, and for weights of a wrong shape."""
    # One check: on a GPU each check waits for its result.
    if ((labels != ignored) & ((labels < 0) | (labels >= classes))).any():
        labels = labels[labels != ignored]
        raise ValueError(f"Class numbers must be from 0 to {classes - 1}, got {labels.min()} to {labels.max()}.")
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"weight must have one element for each of {classes} classes, got shape {weight.shape}.")


def _target_places(
    u: Rounded, x: NDArray, target: NDArray, weight: NDArray | None, ignored: int, axis: int
) -> tuple[tuple[NDArray, ...], NDArray, NDArray | None]:
    """Return the index of the targets along the axis, a mask of those that count, and their weights, if any."""
    is_counted = target != ignored
    labels = np.where(is_counted, target, 0)
    counts = None if weight is None else u.multiply(weight[labels], is_counted.astype(x.dtype))
    sizes, last = labels.shape, labels.ndim - 1
    places = [np.arange(size, like=labels).reshape(-1, *(1,) * (last - i)) for i, size in enumerate(sizes)]
    return (*places[:axis], labels, *places[axis:]), is_counted, counts


IMPOSSIBLE, NAN = np.array(-np.inf), np.array(np.nan)


class Alignment(NamedTuple):
    """Everything that depends only on the N target sequences, with a blank before, between and after the targets."""

    labels: NDArray[np.integer]  # (N, 2 S + 1): blank, first target, blank, second target, ..., blank
    skips: NDArray[np.bool_]  # (N, 2 S + 1): True if a target may follow the previous one without a blank
    inputs: NDArray[np.integer]  # (N,): the number of steps of each sequence
    last: NDArray[np.integer]  # (N,): the index of the blank after its last target

    @classmethod
    def of(cls, targets: NDArray, inputs: NDArray, lengths: NDArray, blank: int) -> Alignment:
        """Return the alignment of targets (N, S), with blanks after the length of a sequence."""
        labels = np.full((len(targets), 2 * targets.shape[1] + 1), blank)
        labels[:, 1::2] = targets
        skips = np.zeros(labels.shape, bool)
        skips[:, 3::2] = targets[:, 1:] != targets[:, :-1]
        return cls(labels, skips, inputs, 2 * lengths)

    def on_device_of(self, x: NDArray) -> Alignment:
        """Move the alignment to the device of the array."""
        return Alignment(*(on_device_of(each, x) for each in self))


def pad_targets(targets: NDArray[np.integer], lengths: NDArray[np.integer], blank: int) -> NDArray[np.integer]:
    """Return targets (N, S), or all targets in one vector, as rows of the largest length, padded with blanks."""
    width = int(lengths.max(initial=0))
    is_target = np.arange(width) < lengths[:, np.newaxis]
    rows = np.full(is_target.shape, blank)
    rows[is_target] = targets[:, :width][is_target] if targets.ndim == 2 else targets
    return rows


def ctc_loss(u: Rounded, x: NDArray, alignment: Alignment) -> tuple[NDArray, NDArray]:
    """Return -log of the probability of the targets of each sequence, and the forward variables (N, T, positions).

    The forward variables are the logarithms of the probabilities of all beginnings. x (T, N, C) are logarithms of
    probabilities. The steps follow section 4.1 of the paper: `logsumexp` of one, two or three positions of the
    previous step, plus x. The probabilities of the last target and of the blank after it are added.
    """
    alignment = alignment.on_device_of(x)
    steps = _label_log_probabilities(u, x, alignment)
    running = alignment.inputs[:, np.newaxis]
    alphas = [where(u, np.arange(alignment.labels.shape[1], like=alignment.labels) < 2, steps[0], IMPOSSIBLE)]
    for t, emitted in enumerate(steps[1:], 1):
        before = alphas[-1]
        skipped = where(u, alignment.skips, _shift_rows(u, before, 2), IMPOSSIBLE)
        reached = u.add(_log_sum(u, before, _shift_rows(u, before, 1), skipped), emitted)
        alphas.append(where(u, running > t, reached, before))
    last = alignment.last[:, np.newaxis]
    final = u.with_format_of(np.take_along_axis(alphas[-1], last, 1)[:, 0], alphas[-1])
    ahead = u.with_format_of(np.take_along_axis(alphas[-1], np.maximum(last - 1, 0), 1)[:, 0], alphas[-1])
    total = _log_sum(u, where(u, alignment.last > 0, ahead, IMPOSSIBLE), final)
    # Without steps, only the empty target sequence is possible.
    nothing = np.where(alignment.last > 0, IMPOSSIBLE[()], ZERO[()]).astype(total.dtype)
    total = where(u, alignment.inputs > 0, total, nothing)
    return negative(u, total), u.with_format_of(np.stack(alphas, 1), alphas[-1])


def ctc_loss_slope(
    u: Rounded, g: NDArray, losses: NDArray, alphas: NDArray, x: NDArray, alignment: Alignment, zero_infinity: bool
) -> NDArray:
    """g * (exp(x) - p), where p is the sum of exp(a + b - x + loss) over the positions of a class.

    a and b are the logarithms of the probabilities of all beginnings and ends; p is the share of all paths through
    the class. As in PyTorch, this is the gradient if x is a log_softmax. It is zero after the last step. If a loss is
    infinite, the gradient is NaN for every class, or zero with zero_infinity.
    """
    alignment = alignment.on_device_of(x)
    steps, places = (
        _label_log_probabilities(u, x, alignment),
        np.arange(alignment.labels.shape[1], like=alignment.labels),
    )
    may_skip = np.zeros_like(alignment.skips)
    may_skip[:, :-2] = alignment.skips[:, 2:]
    last, running = alignment.last[:, np.newaxis], alignment.inputs[:, np.newaxis]
    is_end = (places == last) | (places == last - 1)
    after, ends = np.full_like(alphas[:, 0], -np.inf), []
    for t in reversed(range(len(steps))):
        skipped = where(u, may_skip, _shift_rows(u, after, -2), IMPOSSIBLE)
        ways = u.add(_log_sum(u, after, _shift_rows(u, after, -1), skipped), steps[t])
        first = where(u, is_end, steps[t], IMPOSSIBLE)
        after = where(u, running == t + 1, first, where(u, running > t, ways, IMPOSSIBLE))
        ends.append(after)
    both = u.add(np.moveaxis(alphas, 1, 0), u.with_format_of(np.stack(ends[::-1]), *ends))
    share = u.apply("exp", u.add(u.subtract(both, steps), losses[:, np.newaxis]))
    share = where(u, (both == -np.inf) & np.isfinite(losses)[:, np.newaxis], ZERO.astype(share.dtype), share)
    slope = u.subtract(u.apply("exp", x), _by_class(u, share, alignment.labels, x.shape[2]))
    is_lost = np.isinf(losses)[:, np.newaxis]
    slope = where(u, is_lost, NAN, slope)
    slope = where(u, np.arange(len(x), like=alignment.inputs)[:, np.newaxis, np.newaxis] < running, slope, ZERO)
    slopes = u.multiply(g[:, np.newaxis], slope)
    return where(u, is_lost, np.zeros_like(slopes), slopes) if zero_infinity else slopes


def _label_log_probabilities(u: Rounded, x: NDArray, alignment: Alignment) -> NDArray:
    """Return the logarithms of the probabilities of the labels at every step, (T, N, positions)."""
    labels = np.broadcast_to(alignment.labels, (len(x), *alignment.labels.shape))
    return u.with_format_of(np.take_along_axis(x, labels, 2), x)


def _shift_rows(u: Rounded, x: NDArray, count: int) -> NDArray:
    """Shift rows by `count` positions, to the right if it is positive, and fill with -inf."""
    moved = np.full_like(x, -np.inf)
    if count > 0:
        moved[:, count:] = x[:, :-count]
    else:
        moved[:, :count] = x[:, -count:]
    return u.with_format_of(moved, x)


def _log_sum(u: Rounded, *ways: NDArray) -> NDArray:
    """Return the logarithm of the sum of probabilities given by logarithms."""
    return u.composite("logsumexp", logsumexp, u.with_format_of(np.stack(ways), *ways), axes=(0,))


def _by_class(u: Rounded, share: NDArray, labels: NDArray[np.integer], classes: int) -> NDArray:
    """Sum shares (T, N, positions) over the positions of each class, (T, N, classes)."""
    rows = int(np.prod(share.shape[:2]))
    first = np.arange(rows, like=labels).reshape(*share.shape[:2], 1) * classes
    sums = add_rows(u.for_operation("index"), share.reshape(-1, 1), (labels + first).reshape(-1), (rows * classes, 1))
    return sums.reshape(*share.shape[:2], classes)
