"""The losses of classifiers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Tensor, where
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose
from simfloat.checks import is_integer
from simfloat.nn.layer_arguments import as_probability
from simfloat.nn.losses import check_reduction, reduced


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
    return _loss("cross_entropy", input, target, weight, ignore_index, reduction, axis, smoothing, Tensor.log_softmax)


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
    return _loss("nll_loss", input, target, weight, ignore_index, reduction, axis, 0.0, lambda x: x)


def _loss(
    name: str,
    input: Operand,
    target: ArrayLike,
    weight: ArrayLike | None,
    ignore_index: int,
    reduction: str,
    axis: int | None,
    smoothing: float,
    logarithms: Callable[[Tensor], Tensor],
) -> Tensor:
    """The loss `name`, of `logarithms` of probabilities."""
    check_reduction(reduction)
    x, labels = as_tensor(input), as_array(target)
    if labels.dtype.kind not in "iu":
        one_hot = " Of probabilities of classes take the largest: target.argmax(-1)." if labels.shape == x.shape else ""
        raise ValueError(f"{name} takes class numbers as integers, got dtype {labels.dtype}.{one_hot}")
    place = _class_axis(name, x.shape, labels.shape, axis)
    kept, classes = labels != ignore_index, x.shape[place]
    _check_classes(labels[kept], classes)
    factors = None if weight is None else as_operand(weight, "weight")
    if factors is not None and factors.shape != (classes,):
        raise ValueError(f"weight has one number for each of {classes} classes, got shape {factors.shape}.")

    def body(x: Tensor) -> Tensor:
        last = x if place == -1 else x.transpose(0, *range(2, x.ndim), 1)
        losses = _losses(logarithms(last), np.where(kept, labels, 0), factors, smoothing)
        if not kept.all():
            losses = where(kept, losses, 0.0)
        if reduction != "mean" or (factors is None and kept.all()):
            return reduced(losses, reduction)
        return losses.sum() / (kept.sum() if factors is None else Tensor(factors[labels[kept]]).sum())

    return compose("cross_entropy", body, x)


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


def _losses(logarithms: Tensor, labels: NDArray[np.integer], factors: NDArray | None, smoothing: float) -> Tensor:
    """The loss of every row."""
    losses = -logarithms.pick(labels)
    if factors is not None:
        losses = losses * factors[labels]
    if smoothing:
        all_classes = -(logarithms if factors is None else logarithms * factors).sum(-1)
        losses = losses * (1.0 - smoothing) + all_classes * (smoothing / logarithms.shape[-1])
    return losses


def _check_classes(labels: NDArray[np.integer], classes: int) -> None:
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"Class numbers go from 0 to {classes - 1}; {labels.min()} to {labels.max()} came.")
