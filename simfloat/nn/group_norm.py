"""Normalization over groups of channels, and by the root of the mean square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.by_formula import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.checks import check_flags
from simfloat.formats import FP32, FP64
from simfloat.formulas import norms
from simfloat.formulas.rounded import Rounded
from simfloat.nn.layer_arguments import as_number, check_sizes
from simfloat.nn.module import Module


class GroupNorm(Module):
    """(x - mean) * rsqrt(var + eps) * weight + bias, with a mean and a variance for each group of channels.

    weight, of ones, and bias, of zeros, have a number for each of num_channels, and are absent without `affine`, the
    latter without `bias`. Steps and gradients are those of LayerNorm, unless the policy fuses `group_norm`: Wu and He,
    arXiv 1803.08494.

    Raises ValueError unless num_groups divides num_channels and eps is a number from 0, and for another number of
    channels.

    Examples:
        >>> layer = sf.nn.GroupNorm(2, 4)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 3.0, 2.0, 6.0]])
        >>> y.data
        array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, bias: bool = True
    ) -> None:
        super().__init__()
        check_flags(affine=affine, bias=bias)
        check_sizes(num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise ValueError(f"num_channels must be a multiple of num_groups, got {num_channels} and {num_groups}.")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = as_number(eps, "eps", 0.0), bool(affine)
        self.weight = Parameter(np.ones(num_channels, np.float32)) if affine else None
        self.bias = Parameter(np.zeros(num_channels, np.float32)) if affine and bias else None

    def forward(self, x: Operand) -> Tensor:
        """x (N, num_channels, ...) -> the same shape."""
        x, groups, eps = as_tensor(x), self.num_groups, self.eps
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(f"A GroupNorm of {self.num_channels} channels takes (N, channels, ...), got {x.shape}.")
        parameters = [p for p in (self.weight, self.bias) if p is not None]

        def formula(u: Rounded, x: NDArray, weight: NDArray | None = None, bias: NDArray | None = None) -> Any:
            return norms.group_norm(u, x, weight, bias, groups, eps)

        def to_x(u: Rounded, g: NDArray, outputs: Any, x: NDArray, weight: NDArray | None = None, *_: Any) -> NDArray:
            _, mean, factor = outputs
            return norms.group_norm_to_x(u, g, x, mean, factor, weight, groups)

        def to_weight(u: Rounded, g: NDArray, outputs: Any, x: NDArray, *_: Any) -> NDArray:
            _, mean, factor = outputs
            return norms.group_norm_to_weight(u, g, x, mean, factor, groups)

        def to_bias(u: Rounded, g: NDArray, *_: Any) -> NDArray:
            return norms.batch_norm_to_bias(u, g)

        slopes = (to_x, to_weight, to_bias)[: 1 + len(parameters)]
        return tensor_of(composite_operation("group_norm", formula, slopes, x, *parameters, reads="operands"))

    def extra_repr(self) -> str:
        """The arguments that made it."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class RMSNorm(Module):
    """x * rsqrt(mean(x^2) + eps) * weight over the last axes: Zhang and Sennrich, arXiv 1910.07467.

    normalized_shape is the size of the last axis, or the sizes of several; weight, of ones, has that shape, and is
    absent without `elementwise_affine`. It is made of operations that policies know by their own names, each rounded:
    power, mean, + eps, rsqrt, and two products. Without an eps it is that of FP32, or of FP64 where x is held in
    float64.

    Raises ValueError for sizes that are no positive integers, and for an eps that is no number from 0.

    Examples:
        >>> layer = sf.nn.RMSNorm(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 7.0]])
        >>> y.data
        array([[0.20019531, 1.3984375 ]], dtype=float32)
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        super().__init__()
        check_flags(elementwise_affine=elementwise_affine)
        sizes = tuple(normalized_shape) if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
        for size in sizes or (None,):
            check_sizes(normalized_shape=size)
        self.normalized_shape = tuple(int(size) for size in sizes)
        self.eps = None if eps is None else as_number(eps, "eps", 0.0)
        self.elementwise_affine = bool(elementwise_affine)
        self.weight = Parameter(np.ones(self.normalized_shape, np.float32)) if elementwise_affine else None

    def forward(self, x: Operand) -> Tensor:
        """x (..., *normalized_shape) -> the same shape."""
        x, count = as_tensor(x), len(self.normalized_shape)
        if x.shape[-count:] != self.normalized_shape:
            raise ValueError(f"An RMSNorm of {self.normalized_shape} takes (..., *that shape), got {x.shape}.")
        eps = (FP64 if x.numbers.dtype == np.float64 else FP32).eps if self.eps is None else self.eps
        together = norms.inner_axes(x.ndim, count)
        y = x * ((x**2).mean(together, keepdims=True) + eps).rsqrt()
        return y if self.weight is None else y * self.weight

    def extra_repr(self) -> str:
        """The arguments that made it."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
