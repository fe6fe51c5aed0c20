"""Losses for classifiers, and connectionist temporal classification (Graves et al., ICML 2006)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array, on_cpu, on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Tensor, where
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose, tensor_of
from simfloat.common import check_flags, is_integer
from simfloat.environment import in_usual_environment
from simfloat.nn.arguments import as_indices, as_probability
from simfloat.nn.losses import as_reduction
from simfloat.simulation.formulas import Rounded
from simfloat.simulation.formulas import losses as loss_formulas


@in_usual_environment
def cross_entropy(
    input: Operand,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Tensor:
    """Return the mean of -log_softmax(input)[target] over all examples.

    With `weight`, the mean is the sum of the weighted losses divided by the sum of their weights. With
    `label_smoothing` e, a loss is (1 - e) times the above, plus e / classes times the sum of -log_softmax(input),
    weighted, over all classes.

    Parameters:
        input: scores (..., classes), or as in PyTorch (N, classes, d1, ...).
        target: class numbers, integers (...) or (N, d1, ...).
        weight: a factor for each class (classes); by default 1.
        ignore_index: a target that does not count; the loss of such an example is 0.
        reduction: "mean", "sum", or "none" for each loss separately.
        label_smoothing: the share e of all classes, from 0 to 1.
        axis: the axis of classes, 1 or -1; by default it follows from the shape of the target. It is required if both
            axes fit.

    Returns:
        A scalar Tensor, or one with the shape of target for "none".

    Raises:
        ValueError: if the shapes do not fit, or both axes fit and `axis` is missing; if a target is not a class; if
            label_smoothing is not from 0 to 1.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.cross_entropy([[2.0, 0.0, 0.0]], [0])
        >>> loss.item()
        0.2395448386669159
    """
    smoothing = as_probability("label_smoothing", label_smoothing)
    arguments = _LossArguments.read("cross_entropy", input, target, weight, ignore_index, reduction, axis)

    def body(x: Tensor) -> Tensor:
        logarithms = x.log_softmax(arguments.axis)
        loss = _loss_at_targets(logarithms, arguments)
        return loss if not smoothing else loss * (1.0 - smoothing) + _loss_of_all_classes(logarithms, arguments) * share

    share = smoothing / arguments.x.shape[arguments.axis]
    return compose("cross_entropy", body, arguments.x)


@in_usual_environment
def nll_loss(
    input: Operand,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    axis: int | None = None,
) -> Tensor:
    """Return the mean of -input[target] over all examples: `cross_entropy` for an input that is already a log-softmax.

    In policies the name of this operation is also `cross_entropy`.

    Parameters:
        input: logarithms of probabilities (..., classes), or as in PyTorch (N, classes, d1, ...).
        target: class numbers, integers (...) or (N, d1, ...).
        weight: a factor for each class (classes); by default 1.
        ignore_index: a target that does not count; the loss of such an example is 0.
        reduction: "mean", "sum", or "none" for each loss separately.
        axis: the axis of classes, 1 or -1; by default it follows from the shape of the target. It is required if both
            axes fit.

    Returns:
        A scalar Tensor, or one with the shape of target for "none".

    Raises:
        ValueError: if the shapes do not fit, or both axes fit and `axis` is missing; if a target is not a class.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.nll_loss([[-0.25, -1.5]], [1])
        >>> loss.item()
        1.5
    """
    arguments = _LossArguments.read("nll_loss", input, target, weight, ignore_index, reduction, axis)
    return _loss_at_targets(arguments.x, arguments)


class _LossArguments(NamedTuple):
    """The arguments of a loss: the input, the class and the weight of each example, and the options."""

    x: Tensor
    target: NDArray[np.integer]
    weight: NDArray | None
    ignored: int
    reduction: str
    axis: int  # the axis of classes

    @classmethod
    def read(
        cls,
        name: str,
        input: Operand,
        target: ArrayLike,
        weight: ArrayLike | None,
        ignored: int,
        reduction: str,
        axis: int | None,
    ) -> Self:
        """Check the arguments of the loss `name`; raise ValueError if one does not fit."""
        as_reduction("reduction", reduction)
        x, labels = as_tensor(input), as_array(target)
        if labels.dtype.kind not in "iu":
            is_like_input = labels.shape == x.shape
            one_hot = " Convert probabilities of classes by target.argmax(-1)." if is_like_input else ""
            raise ValueError(f"{name} takes class numbers as integers, got dtype {labels.dtype}.{one_hot}")
        place = _class_axis(name, x.shape, labels.shape, axis)
        factors = None if weight is None else as_operand(weight, "weight")
        loss_formulas.check_classes(labels, factors, x.shape[place], ignored)
        factors = None if factors is None else on_device_of(factors, x.numbers)
        return cls(x, on_device_of(labels.copy(), x.numbers), factors, ignored, reduction, place % x.ndim)


def _loss_at_targets(logarithms: Tensor, arguments: _LossArguments) -> Tensor:
    """Return the loss from the logarithm at the class of each example."""
    _, target, weight, ignored, reduction, axis = arguments

    def slope(u: Rounded, g: NDArray, outputs: tuple[NDArray, NDArray], x: NDArray) -> NDArray:
        return loss_formulas.nll_loss_slope(u, g, x, target, weight, reduction, ignored, outputs[1], axis)

    formula = partial(
        loss_formulas.nll_loss, target=target, weight=weight, reduction=reduction, ignored=ignored, axis=axis
    )
    return tensor_of(composite_operation("cross_entropy", formula, (slope,), logarithms))


def _loss_of_all_classes(logarithms: Tensor, arguments: _LossArguments) -> Tensor:
    """Return the loss from the logarithms of all classes, in PyTorch's order of operations."""
    _, target, weight, ignored, reduction, axis = arguments
    is_counted = target != ignored
    if weight is not None:
        logarithms = logarithms * weight.reshape(*[-1 if i == axis else 1 for i in range(logarithms.ndim)])
    each = where(is_counted, -logarithms.sum(axis), 0.0)
    if reduction == "none":
        return each
    if reduction == "sum":
        return each.sum()
    counts = (
        is_counted.sum()
        if weight is None
        else Tensor(np.where(is_counted, weight[np.where(is_counted, target, 0)], 0.0)).sum()
    )
    return each.sum() / counts


def _class_axis(name: str, shape: tuple[int, ...], target: tuple[int, ...], axis: int | None) -> int:
    """Return the axis of classes, 1 or -1, from the shape of the target or from `axis`."""
    if not shape:
        raise ValueError(f"{name} needs an input of shape (..., classes), got a single number.")
    if axis is not None and not (is_integer(axis, -1, 1) and axis):
        raise ValueError(f"axis, the axis of classes, must be -1 (the last) or 1 (as in PyTorch), got {axis!r}.")
    places = (-1,) if len(shape) < 3 else (-1, 1) if axis is None else (axis,)
    due = {place: shape[:-1] if place == -1 else (shape[0], *shape[2:]) for place in places}
    fitting = [place for place in places if due[place] == target]
    if not fitting:
        raise ValueError(f"{name} needs a target of shape {' or '.join(map(str, due.values()))}, got {target}.")
    if len(fitting) > 1:
        raise ValueError(
            f"A target of shape {target} fits an input {shape} with classes as its last axis, and as axis 1: pass "
            "axis=-1 or, as in PyTorch, axis=1."
        )
    return fitting[0]


@in_usual_environment
def ctc_loss(
    log_probs: Operand,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return -log of the probability of the targets, summed over all their alignments with the steps.

    The logarithms of the probabilities of all prefixes are computed step by step, as in section 4.1 of the paper: the
    `logsumexp` of one, two or three previous values, plus log_probs, with each operation rounded. Their format needs an
    infinity, for the logarithm of 0. The gradient is that of PyTorch, which is correct if log_probs is a log_softmax:
    the probabilities of the classes minus their shares in all alignments.

    Parameters:
        log_probs: logarithms of probabilities (T, N, C), or (T, C) for one sequence, such as a log_softmax.
        targets: class numbers other than `blank`: (N, S) with arbitrary values after the end of each target, or all
            targets concatenated in one axis.
        input_lengths, target_lengths: the lengths of the sequences and of the targets, integers (N,), or one integer
            for one sequence.
        blank: the class number of the blank.
        reduction: "sum", "none", or "mean": each loss is divided by the length of its target (at least 1) before the
            mean.
        zero_infinity: True to replace the infinite loss and the NaN gradient of a target without any alignment by
            zeros.

    Returns:
        A scalar Tensor, or one with the shape (N,) for "none".

    Raises:
        ValueError: if the shapes do not fit; if a class or a length is out of range.

    Source: Graves et al., ICML 2006.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.ctc_loss(np.log(np.full((4, 1, 3), 1 / 3)), [[1, 2]], [4], [2])
        >>> loss.item()
        0.8431994915008545
    """
    check_flags(zero_infinity=zero_infinity)
    as_reduction("reduction", reduction)
    x = as_tensor(log_probs)
    if x.ndim not in (2, 3) or not x.size:
        raise ValueError(f"ctc_loss takes log_probs (T, N, C) or (T, C), at least one step of one, got {x.shape}.")
    is_single = x.ndim == 2
    if not is_integer(blank, 0, x.shape[-1] - 1):
        raise ValueError(f"blank is a class, from 0 to {x.shape[-1] - 1}, got {blank!r}.")
    shape = (x.shape[0], 1 if is_single else x.shape[1], x.shape[-1])
    alignment = _alignment(shape, targets, input_lengths, target_lengths, int(blank))

    def slope(u: Rounded, g: NDArray, outputs: tuple[NDArray, NDArray], x: NDArray) -> NDArray:
        return loss_formulas.ctc_loss_slope(u, g, *outputs, x, alignment, zero_infinity)

    def body(x: Tensor) -> Tensor:
        formula = partial(loss_formulas.ctc_loss, alignment=alignment)
        losses = tensor_of(composite_operation("ctc_loss", formula, (slope,), x.reshape(shape)))
        if zero_infinity:
            losses = where(losses == np.inf, 0.0, losses)
        if reduction == "mean":
            return (losses / on_device_of(np.maximum(alignment.last // 2, 1).astype(np.float32), x.numbers)).mean()
        return losses.sum() if reduction == "sum" else losses.reshape(() if is_single else shape[1:2])

    return compose("ctc_loss", body, x)


def _alignment(
    shape: tuple[int, int, int], targets: ArrayLike, input_lengths: ArrayLike, target_lengths: ArrayLike, blank: int
) -> loss_formulas.Alignment:
    steps, count, classes = shape
    inputs = _lengths(input_lengths, "Input lengths", count, steps)
    named = on_cpu(as_indices(targets, classes, "Targets"))
    most = named.shape[-1] if named.ndim else 0
    lengths = _lengths(target_lengths, "Target lengths", count, most)
    if not (named.ndim == 2 and len(named) == count or named.ndim == 1 and lengths.sum() == named.size):
        raise ValueError(
            f"Targets are (N, S) = ({count}, at least {lengths.max(initial=0)}), or {lengths.sum()} one after the "
            f"other as the target lengths say; got shape {named.shape}."
        )
    rows = loss_formulas.pad_targets(named, lengths, blank)
    if (rows[np.arange(rows.shape[1]) < lengths[:, np.newaxis]] == blank).any():
        raise ValueError(f"Targets are classes other than the blank, {blank}.")
    return loss_formulas.Alignment.of(rows, inputs, lengths, blank)


def _lengths(lengths: ArrayLike, what: str, count: int, most: int) -> NDArray[np.integer]:
    """Return a length for each sequence; raise ValueError if one is larger than `most`."""
    numbers = on_cpu(as_indices(lengths, most + 1, what))
    if numbers.size != count or numbers.ndim > 1:
        raise ValueError(f"{what} are integers, one for each of {count} sequences, got shape {numbers.shape}.")
    return numbers.reshape(count)
