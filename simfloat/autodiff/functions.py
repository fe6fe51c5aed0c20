"""Functions of tensors that layers and losses are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import contractions, movement
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import Tensor, tensor_of


def linear(x: Operand, weight: Operand) -> Tensor:
    """x (..., inputs) times the transpose of weight (outputs, inputs)."""
    return tensor_of(contractions.linear(x, weight))


def pick(a: Tensor, labels: NDArray[np.integer]) -> Tensor:
    """For every row of `a` (..., classes) the element that `labels` (...) names."""
    return tensor_of(movement.pick(a, labels))
