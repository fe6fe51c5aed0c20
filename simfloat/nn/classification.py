"""The losses of classifiers."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array, on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Tensor, where
from simfloat.autodiff.by_formula import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose, tensor_of
from simfloat.checks import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formulas import loss_formulas
from simfloat.formulas.rounded import Rounded
from simfloat.nn.layer_arguments import as_probability
from simfloat.nn.losses import check_reduction


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
