"""Loss functions: composites of rounded operations."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simfloat.autodiff import Operand, Tensor, as_tensor, compose, pick


def mse_loss(input: Operand, target: Operand) -> Tensor:
    """The mean of (input - target)^2.

    Raises ValueError if the shapes differ: broadcasting here is a mistake more often than an intention.
    """
    input, target = as_tensor(input), as_tensor(target)
    if input.shape != target.shape:
        raise ValueError(f"mse_loss needs input and target of one shape, got {input.shape} and {target.shape}.")
    return compose("mse_loss", lambda x, y: (x - y).square().mean(), input, target)


def cross_entropy(input: Operand, target: ArrayLike) -> Tensor:
    """The mean of -log_softmax(input)[target] over the rows of input (..., classes); target (...) holds class numbers.

    Raises ValueError if the shapes do not fit or a target is no class.
    """
    input, labels = as_tensor(input), np.asarray(target)
    if input.ndim == 0:
        raise ValueError("cross_entropy needs an input of shape (..., classes), got a single number.")
    if labels.dtype.kind not in "iu":
        raise ValueError(f"cross_entropy takes class numbers as integers, got dtype {labels.dtype}.")
    if labels.shape != input.shape[:-1]:
        raise ValueError(f"cross_entropy needs a target of shape {input.shape[:-1]}, got {labels.shape}.")
    if labels.size and not 0 <= labels.min() <= labels.max() < input.shape[-1]:
        raise ValueError(f"Class numbers go from 0 to {input.shape[-1] - 1}; {labels.min()} to {labels.max()} came.")
    return compose("cross_entropy", lambda x: (-pick(x.log_softmax(), labels)).mean(), input)
