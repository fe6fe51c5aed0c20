"""The losses of classifiers, and connectionist temporal classification (Graves et al., ICML 2006)."""

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
from simfloat.nn.losses import check_reduction
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
    """The mean of -log_softmax(input)[target] over the rows of input (..., classes); target (...) holds class numbers.

    The sum of these losses, or each of them, if `reduction` is "sum" or "none". Rows whose target is `ignore_index` do
    not count: their losses are 0. `weight` (classes) is a factor for each class; the mean is then the sum of the losses
    divided by the sum of their factors. With `label_smoothing` e, losses are (1 - e) times the above, plus e / classes
    times the sum of -log_softmax(input), weighted, over all classes.

    Classes may also be axis 1, as in PyTorch: input (N, classes, d1, ...), target (N, d1, ...). The shape of the target
    tells which; where it fits both, `axis` must, as 1 or -1.

    Raises ValueError if the shapes do not fit, or fit both; if a target is no class, or label_smoothing is not from 0
    to 1.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.cross_entropy([[2.0, 0.0, 0.0]], [0])
        >>> loss.item()
        0.2395448386669159
    """
    smoothing = as_probability(label_smoothing, "label_smoothing")
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
    """The mean of -input[target]: `cross_entropy` of what is a logarithm of probabilities already.

    Arguments, shapes and errors are those of `cross_entropy`, the name under which a policy knows both.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.nll_loss([[-0.25, -1.5]], [1])
        >>> loss.item()
        1.5
    """
    arguments = _LossArguments.read("nll_loss", input, target, weight, ignore_index, reduction, axis)
    return _loss_at_targets(arguments.x, arguments)


class _LossArguments(NamedTuple):
    """What a loss was given: the input, the class of each row, and what their losses count for."""

    x: Tensor
    target: NDArray[np.integer]
    weight: NDArray | None
    ignored: int
    reduction: str
    axis: int  # of classes

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
        """The arguments of the loss `name`; ValueError for what does not fit."""
        check_reduction(reduction)
        x, labels = as_tensor(input), as_array(target)
        if labels.dtype.kind not in "iu":
            is_like_input = labels.shape == x.shape
            one_hot = " Of probabilities of classes take the largest: target.argmax(-1)." if is_like_input else ""
            raise ValueError(f"{name} takes class numbers as integers, got dtype {labels.dtype}.{one_hot}")
        place = _class_axis(name, x.shape, labels.shape, axis)
        factors = None if weight is None else as_operand(weight, "weight")
        loss_formulas.check_classes(labels, factors, x.shape[place], ignored)
        factors = None if factors is None else on_device_of(factors, x.numbers)
        return cls(x, on_device_of(labels.copy(), x.numbers), factors, ignored, reduction, place % x.ndim)


def _loss_at_targets(logarithms: Tensor, arguments: _LossArguments) -> Tensor:
    """The loss of what each row's class has."""
    _, target, weight, ignored, reduction, axis = arguments

    def slope(u: Rounded, g: NDArray, outputs: tuple[NDArray, NDArray], x: NDArray) -> NDArray:
        return loss_formulas.nll_loss_slope(u, g, x, target, weight, reduction, ignored, outputs[1], axis)

    formula = partial(
        loss_formulas.nll_loss, target=target, weight=weight, reduction=reduction, ignored=ignored, axis=axis
    )
    return tensor_of(composite_operation("cross_entropy", formula, (slope,), logarithms))


def _loss_of_all_classes(logarithms: Tensor, arguments: _LossArguments) -> Tensor:
    """The loss of what all classes have, in the order of PyTorch's operations."""
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
    """The axis of classes, as the target's shape tells or `axis` says: 1 or -1."""
    if not shape:
        raise ValueError(f"{name} needs an input of shape (..., classes), got a single number.")
    if axis is not None and not (is_integer(axis, -1, 1) and axis):
        raise ValueError(f"axis, of classes, is -1, the last, or 1, as in PyTorch; got {axis!r}.")
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
    """-log of the probability of the targets, summed over all ways to spread them over the steps.

    log_probs (T, N, C), or (T, C) for one sequence, are logarithms of probabilities, such as log_softmax gives. targets
    hold class numbers other than `blank`, (N, S) with whatever behind a target's length, or all of them one after the
    other. The lengths are (N,), integers for one sequence. ``"mean"`` divides each loss by its target's length (at
    least 1), and takes the mean; ``"sum"`` adds them; ``"none"`` leaves them. Targets that fit no way have an infinite
    loss and a gradient of NaN; `zero_infinity` makes both zero.

    The logarithms of the probabilities of all beginnings follow from each other step by step, as in section 4.1 of the
    paper: `logsumexp` of the one, two or three places before, + log_probs, each operation rounded. Their format needs
    an infinity, for what is impossible. The gradient is PyTorch's, which is right where log_probs is a log_softmax: the
    probabilities of the classes less the share of all ways there.

    Raises ValueError for shapes that do not fit, and for classes and lengths out of range.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.ctc_loss(np.log(np.full((4, 1, 3), 1 / 3)), [[1, 2]], [4], [2])
        >>> loss.item()
        0.8431994915008545
    """
    check_flags(zero_infinity=zero_infinity)
    check_reduction(reduction)
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
    """A length for each sequence, up to the most that there can be."""
    numbers = on_cpu(as_indices(lengths, most + 1, what))
    if numbers.size != count or numbers.ndim > 1:
        raise ValueError(f"{what} are integers, one for each of {count} sequences, got shape {numbers.shape}.")
    return numbers.reshape(count)
