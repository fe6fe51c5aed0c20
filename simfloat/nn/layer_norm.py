"""Normalization over the features of each example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose
from simfloat.checks import check_flags
from simfloat.nn.layer_arguments import as_number, check_sizes
from simfloat.nn.module import Module


class LayerNorm(Module):
    """d / sqrt(mean(d^2) + eps) * weight + bias with d = x - mean(x), over the last axes: Ba et al., arXiv 1607.06450.

    normalized_shape is the size of the last axis, or the sizes of several. weight, of ones, and bias, of zeros, have
    that shape; they are absent without `elementwise_affine`, the latter without `bias`. Every step is rounded, in the
    order mean, subtraction, square, mean, + eps, rsqrt, products, + bias, unless the policy fuses `layer_norm`.

    Raises ValueError for sizes that are no positive integers, and for an eps that is no number from 0.

    Examples:
        >>> layer = sf.nn.LayerNorm(3)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 2.0, 3.0]])
        >>> y.data
        array([[-1.2265625,  0.       ,  1.2265625]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_flags(elementwise_affine=elementwise_affine, bias=bias)
        sizes = tuple(normalized_shape) if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
        for size in sizes or (None,):
            check_sizes(normalized_shape=size)
        self.normalized_shape, self.eps = tuple(int(size) for size in sizes), as_number(eps, "eps", 0.0)
        self.weight = Parameter(np.ones(self.normalized_shape)) if elementwise_affine else None
        self.bias = Parameter(np.zeros(self.normalized_shape)) if elementwise_affine and bias else None

    def forward(self, x: Operand) -> Tensor:
        """x (..., *normalized_shape) -> the same shape."""
        x = as_tensor(x)
        count = len(self.normalized_shape)
        if x.shape[-count:] != self.normalized_shape:
            raise ValueError(f"A LayerNorm of {self.normalized_shape} takes (..., *that shape), got {x.shape}.")
        axes = tuple(range(x.ndim - count, x.ndim))
        parameters = [p for p in (self.weight, self.bias) if p is not None]
        return compose("layer_norm", lambda x, *affine: _normalized(x, axes, self.eps, *affine), x, *parameters)

    def extra_repr(self) -> str:
        """The arguments that made it."""
        affine = ", elementwise_affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        return f"{self.normalized_shape}, eps={self.eps}{affine}"


def _normalized(
    x: Tensor, axes: tuple[int, ...], eps: float, weight: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    deviation = x - x.mean(axes, keepdims=True)
    variance = deviation.square().mean(axes, keepdims=True)
    result = deviation * (variance + eps).rsqrt()
    result = result if weight is None else result * weight
    return result if bias is None else result + bias
