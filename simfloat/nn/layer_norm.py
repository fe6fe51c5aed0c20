"""Normalization over the features of each example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.by_formula import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.checks import check_flags
from simfloat.formulas import norms
from simfloat.formulas.rounded import Rounded
from simfloat.nn.layer_arguments import as_number, check_sizes
from simfloat.nn.module import Module

#: What a formula of normalization gives: the result, the mean and the factor.
Made = tuple[NDArray, NDArray, NDArray]


class LayerNorm(Module):
    """d / sqrt(mean(d^2) + eps) * weight + bias with d = x - mean(x), over the last axes: Ba et al., arXiv 1607.06450.

    normalized_shape is the size of the last axis, or the sizes of several. weight, of ones, and bias, of zeros, have
    that shape; they are absent without `elementwise_affine`, the latter without `bias`. Every step is rounded, in the
    order mean, subtraction, product, mean, + eps, rsqrt, products, + bias, unless the policy fuses `layer_norm`.
    Gradients are by PyTorch's formulas: that of x is (p - mean(p) - y * mean(p * y)) * factor with p = g * weight.

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
        parameters = [p for p in (self.weight, self.bias) if p is not None]
        formula, *slopes = self._formulas(norms.inner_axes(x.ndim, count), norms.outer_axes(x.ndim, count))
        return tensor_of(
            composite_operation(
                "layer_norm", formula, tuple(slopes[: 1 + len(parameters)]), x, *parameters, reads="operands"
            )
        )

    def _formulas(self, together: norms.Axes, shared: norms.Axes) -> list[Callable[..., Any]]:
        """The layer, and the gradients of x, weight and bias."""

        def result(u: Rounded, x: NDArray, weight: NDArray | None = None, bias: NDArray | None = None) -> Any:
            return norms.norm(u, x, weight, bias, together, self.eps)

        def to_x(u: Rounded, g: NDArray, outputs: Made, x: NDArray, weight: NDArray | None = None, *_: Any) -> NDArray:
            return norms.norm_to_x(u, g, x, *outputs[1:], weight, together)

        def to_weight(u: Rounded, g: NDArray, outputs: Made, x: NDArray, *_: Any) -> NDArray:
            return norms.norm_to_weight(u, g, x, *outputs[1:], shared)

        def to_bias(u: Rounded, g: NDArray, *_: Any) -> NDArray:
            return norms.norm_to_bias(u, g, shared)

        return [result, to_x, to_weight, to_bias]

    def extra_repr(self) -> str:
        """The arguments that made it."""
        affine = ", elementwise_affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        return f"{self.normalized_shape}, eps={self.eps}{affine}"
