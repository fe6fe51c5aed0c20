"""Fully connected layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.checks import check_flags
from simfloat.nn.layer_arguments import check_sizes
from simfloat.nn.module import Module
from simfloat.nn.seeds import generator_of

if TYPE_CHECKING:
    from simfloat.nn.seeds import Seed


class Linear(Module):
    """x W^T + b: the contraction and the addition are each rounded.

    weight is (out_features, in_features), bias (out_features) or absent. Both start uniform in +-1 / sqrt(in_features),
    as in torch.nn, from `rng`, a NumPy generator or a seed; without one from the generator of `seed`.

    Raises ValueError unless the sizes are positive integers.

    Examples:
        >>> layer = sf.nn.Linear(3, 4, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 3)))
        >>> y.shape
        (2, 4)
        >>> [name for name, parameter in layer.named_parameters()]
        ['weight', 'bias']
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, rng: Seed = None) -> None:
        super().__init__()
        check_flags(bias=bias)
        check_sizes(in_features=in_features, out_features=out_features)
        generator = generator_of(rng)
        bound = 1 / math.sqrt(in_features)
        self.weight = Parameter(generator.uniform(-bound, bound, (out_features, in_features)))
        self.bias = Parameter(generator.uniform(-bound, bound, out_features)) if bias else None

    @property
    def in_features(self) -> int:
        """The size of an input's last axis."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """The size of an output's last axis."""
        return self.weight.shape[0]

    def forward(self, x: Operand) -> Tensor:
        """x (..., in_features) -> (..., out_features)."""
        product = as_tensor(x).linear(self.weight)
        return product if self.bias is None else product.add_bias(self.bias)

    def extra_repr(self) -> str:
        """Its sizes, and whether it lacks a bias."""
        return f"{self.in_features}, {self.out_features}{', bias=False' if self.bias is None else ''}"
