"""The loss of classifiers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Operand, Tensor, as_tensor, compose, pick, where
from simfloat.nn.arguments import as_probability
from simfloat.nn.losses import check_reduction, reduced


def cross_entropy(
    input: Operand,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The mean of -log_softmax(input)[target] over the rows of input (..., classes); target (...) holds class numbers.

    The sum of these losses, or each of them, if `reduction` is "sum" or "none". Rows whose target is `ignore_index` do
    not count: their losses are 0. `weight` (classes) is a factor for each class; the mean is then the sum of the losses
    divided by the sum of their factors. With `label_smoothing` e, losses are (1 - e) times the above, plus e / classes
    times the sum of -log_softmax(input), weighted, over all classes.

    Raises ValueError if the shapes do not fit, a target is no class, or label_smoothing is not from 0 to 1.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.cross_entropy([[2.0, 0.0, 0.0]], [0])
        >>> loss.item()
        0.2395448386669159
    """
    check_reduction(reduction)
    x, labels = as_tensor(input), as_array(target)
    if x.ndim == 0:
        raise ValueError("cross_entropy needs an input of shape (..., classes), got a single number.")
    if labels.dtype.kind not in "iu":
        raise ValueError(f"cross_entropy takes class numbers as integers, got dtype {labels.dtype}.")
    if labels.shape != x.shape[:-1]:
        raise ValueError(f"cross_entropy needs a target of shape {x.shape[:-1]}, got {labels.shape}.")
    smoothing = as_probability(label_smoothing, "label_smoothing")
    kept = labels != ignore_index
    _check_classes(labels[kept], x.shape[-1])
    factors = None if weight is None else as_operand(weight, "weight")
    if factors is not None and factors.shape != x.shape[-1:]:
        raise ValueError(f"weight has one number for each of {x.shape[-1]} classes, got shape {factors.shape}.")

    def body(x: Tensor) -> Tensor:
        losses = _losses(x.log_softmax(), np.where(kept, labels, 0), factors, smoothing)
        if not kept.all():
            losses = where(kept, losses, 0.0)
        if reduction != "mean" or (factors is None and kept.all()):
            return reduced(losses, reduction)
        return losses.sum() / (kept.sum() if factors is None else Tensor(factors[labels[kept]]).sum())

    return compose("cross_entropy", body, x)


def _losses(logarithms: Tensor, labels: NDArray[np.integer], factors: NDArray | None, smoothing: float) -> Tensor:
    """The loss of every row."""
    losses = -pick(logarithms, labels)
    if factors is not None:
        losses = losses * factors[labels]
    if smoothing:
        all_classes = -(logarithms if factors is None else logarithms * factors).sum(-1)
        losses = losses * (1.0 - smoothing) + all_classes * (smoothing / logarithms.shape[-1])
    return losses


def _check_classes(labels: NDArray[np.integer], classes: int) -> None:
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"Class numbers go from 0 to {classes - 1}; {labels.min()} to {labels.max()} came.")
