"""Fully connected layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.contractions import linear
from simfloat.autodiff.record import Operand
from simfloat.nn.module import Module

if TYPE_CHECKING:  # numpy.random is imported when it is first used
    Seed: TypeAlias = np.random.Generator | int


class Linear(Module):
    """x W^T + b: the contraction and the addition are each rounded.

    weight is (outputs, inputs), bias (outputs) or absent. Both start uniform in +-1 / sqrt(inputs), as in torch.nn,
    from `rng`, a NumPy generator or a seed.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, *, rng: Seed = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(rng)
        bound = 1 / math.sqrt(inputs)
        self.weight = Parameter(rng.uniform(-bound, bound, (outputs, inputs)))
        self.bias = Parameter(rng.uniform(-bound, bound, outputs)) if bias else None

    def forward(self, x: Operand) -> Tensor:
        """x (..., inputs) -> (..., outputs)."""
        product = linear(x, self.weight)
        return product if self.bias is None else product + self.bias
