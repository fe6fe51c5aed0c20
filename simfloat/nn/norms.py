"""Layers of normalization: over features, groups of channels, batches, or each channel of each example.

Layers normalize by mean and variance, or by the root of the mean square.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.contractions import moving_average
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.common import check_flags
from simfloat.formats import FP32, FP64
from simfloat.nn.arguments import apply_to_images, apply_to_sequences, as_number, check_sizes
from simfloat.nn.module import Module
from simfloat.simulation.formulas import Rounded, norms

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
        """Return the arguments of the constructor as text."""
        affine = ", elementwise_affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        return f"{self.normalized_shape}, eps={self.eps}{affine}"


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
        """Return the arguments of the constructor as text."""
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
        """Return the arguments of the constructor as text."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _BatchNorm(Module):
    """What batch normalizations of all shapes share."""

    running_mean: NDArray | None
    running_var: NDArray | None
    num_batches_tracked: NDArray | None
    _ndims: tuple[int, ...] = ()
    _shapes = ""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        check_flags(affine=affine, track_running_stats=track_running_stats)
        check_sizes(num_features=num_features)
        self.num_features, self.eps = num_features, as_number(eps, "eps", 0.0)
        self.momentum = None if momentum is None else as_number(momentum, "momentum")
        self.affine, self.track_running_stats = bool(affine), bool(track_running_stats)
        self.weight = Parameter(np.ones(num_features, np.float32)) if affine else None
        self.bias = Parameter(np.zeros(num_features, np.float32)) if affine else None
        self.register_buffer("running_mean", np.zeros(num_features, np.float32) if track_running_stats else None)
        self.register_buffer("running_var", np.ones(num_features, np.float32) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", np.array(0) if track_running_stats else None)

    def forward(self, x: Operand) -> Tensor:
        """x of the layer's shape -> the same shape."""
        x = as_tensor(x)
        if x.ndim not in self._ndims or x.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}({self.num_features}) needs {self._shapes} with C = {self.num_features}, got "
                f"shape {x.shape}."
            )
        parameters = [] if self.weight is None or self.bias is None else [self.weight, self.bias]
        mean, var, count = self.running_mean, self.running_var, math.prod(x.shape) // self.num_features
        is_of_batch = self.training or mean is None or var is None
        if is_of_batch and count == 1:
            raise ValueError(f"{type(self).__name__} needs more than one number for each channel to train on.")
        statistics: list[NDArray] = []
        if is_of_batch and count:
            result = normalized_by_batch(x, parameters, self.eps, statistics)
        else:
            # As in torch, a batch of nothing is normalized to nothing, and has no statistics.
            ones = np.ones_like(x.numbers, np.float32, order="C", shape=self.num_features)
            result = self._by_running(ones if mean is None else mean, ones if var is None else var, x, parameters)
        if self.training:
            self._track(statistics)
        return result

    def _by_running(self, mean: NDArray, var: NDArray, x: Tensor, parameters: list[Parameter]) -> Tensor:
        """The result by these statistics instead of the batch's."""
        eps = self.eps

        def formula(u: Rounded, x: NDArray, *affine: NDArray) -> NDArray:
            mean, var = affine[-2:]
            weight, bias = affine[:2] if len(affine) == 4 else (None, None)
            return norms.running_norm(u, x, weight, bias, mean, var, eps)

        def to_x(u: Rounded, g: NDArray, outputs: None, x: NDArray, *affine: NDArray) -> NDArray:
            return norms.running_norm_to_x(u, g, affine[0] if len(affine) == 4 else None, affine[-1], eps)

        def to_weight(u: Rounded, g: NDArray, outputs: None, x: NDArray, *affine: NDArray) -> NDArray:
            mean, var = affine[-2:]
            return norms.batch_norm_to_weight(u, g, x, mean, norms.inverse_root(u, var, eps))

        slopes = (to_x, to_weight, _to_bias)[: 1 + len(parameters)]
        return tensor_of(
            composite_operation("batch_norm", formula, slopes, x, *parameters, mean, var, reads="operands")
        )

    def _track(self, statistics: list[NDArray]) -> None:
        """Move the running statistics, if there are any, towards those of the batch, if it has any."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked = self.num_batches_tracked + 1
        if not statistics:
            return
        mean, var = statistics
        factor = 1.0 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean = moving_average("batch_norm", self.running_mean, mean, factor)
        self.running_var = moving_average("batch_norm", self.running_var, var, factor)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


def normalized_by_batch(x: Tensor, parameters: Sequence[Tensor], eps: float, statistics: list[NDArray]) -> Tensor:
    """x (N, C, ...) by the mean and variance of each channel; the mean and the unbiased variance go to `statistics`."""

    def formula(u: Rounded, x: NDArray, weight: NDArray | None = None, bias: NDArray | None = None) -> Any:
        result, mean, factor, unbiased = norms.batch_norm(u, x, weight, bias, eps)
        statistics.extend((mean, unbiased))
        return result, mean, factor

    def to_x(u: Rounded, g: NDArray, outputs: Any, x: NDArray, weight: NDArray | None = None, *_: Any) -> NDArray:
        _, mean, factor = outputs
        return norms.batch_norm_to_x(u, g, x, mean, factor, weight)

    def to_weight(u: Rounded, g: NDArray, outputs: Any, x: NDArray, *_: Any) -> NDArray:
        return norms.batch_norm_to_weight(u, g, x, *outputs[1:])

    slopes = (to_x, to_weight, _to_bias)[: 1 + len(parameters)]
    return tensor_of(composite_operation("batch_norm", formula, slopes, x, *parameters, reads="operands"))


def _to_bias(u: Rounded, g: NDArray, *_: Any) -> NDArray:
    return norms.batch_norm_to_bias(u, g)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of images (N, C, H, W).

    (x - mean) * rsqrt(var + eps) * weight + bias, with a mean and a variance for each channel.

    In training they are those of the batch, var that of all its numbers: sums through the policy's `reduce`, over
    (example, place), each divided by their number. Every step is rounded, unless the policy fuses ``batch_norm``: in a
    format of a small range, where sums of many numbers overflow, it should. Gradients are by PyTorch's formulas, as in
    LayerNorm.

    `running_mean` and `running_var` then become (1 - momentum) * running + momentum * batch, three roundings to
    `activations`, where the variance is the unbiased one, the same sum divided by one less; with `momentum` None they
    are averages of all batches. They take the place of the batch's in evaluation, unless there are none:
    `track_running_stats=False`.

    weight and bias (num_features) start at 1 and 0; they are absent with `affine=False`.

    Raises ValueError unless num_features is a positive integer, eps and momentum are numbers, and for inputs of another
    shape, or in training of one number a channel.

    Examples:
        >>> layer = sf.nn.BatchNorm2d(4)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 4, 8, 8)
        >>> layer.running_mean
        array([0.10009766, 0.10009766, 0.10009766, 0.10009766], dtype=float32)
    """

    _ndims, _shapes = (4,), "images (N, C, H, W)"


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (N, C) or (N, C, L), in all else as BatchNorm2d.

    Examples:
        >>> layer = sf.nn.BatchNorm1d(3)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
        >>> y.data
        array([[-1.,  0.,  1.],
               [ 1.,  0., -1.]], dtype=float32)
    """

    _ndims, _shapes = (2, 3), "x (N, C) or (N, C, L)"


class _InstanceNorm(Module):
    """What instance normalizations of all shapes share: `batch_norm` of one example with a channel for each of all."""

    _ndim, _shapes = 0, ""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_flags(affine=affine, track_running_stats=track_running_stats, bias=bias)
        check_sizes(num_features=num_features)
        if track_running_stats:
            raise ValueError("Instance normalization keeps no running statistics here; leave track_running_stats out.")
        self.num_features, self.eps = num_features, as_number(eps, "eps", 0.0)
        self.momentum, self.affine = as_number(momentum, "momentum"), bool(affine)
        self.weight = Parameter(np.ones(num_features, np.float32)) if affine else None
        self.bias = Parameter(np.zeros(num_features, np.float32)) if affine and bias else None

    def _normalize(self, x: Tensor) -> Tensor:
        if x.ndim != self._ndim or x.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}({self.num_features}) needs {self._shapes} with C = {self.num_features}, got "
                f"shape {x.shape}."
            )
        examples, channels, *sizes = x.shape
        if int(np.prod(sizes)) <= 1:
            raise ValueError(f"{type(self).__name__} needs more than one number for each channel, got shape {x.shape}.")
        parameters = [p for p in (self.weight, self.bias) if p is not None]
        repeated = [p.broadcast_to((examples, channels)).reshape(examples * channels) for p in parameters]
        together = x.reshape(1, examples * channels, *sizes)
        return normalized_by_batch(together, repeated, self.eps, []).reshape(x.shape)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"{self.num_features}, eps={self.eps}, affine={self.affine}"


class InstanceNorm1d(_InstanceNorm):
    """Normalization of sequences (N, C, L) by the mean and variance of each channel of each example.

    Steps and gradients are those of BatchNorm1d, in training and in evaluation: Ulyanov et al., arXiv 1607.08022.
    weight, of ones, and bias, of zeros, are there with `affine`, the latter unless `bias` is False.

    Raises ValueError unless num_features is a positive integer, for `track_running_stats`, and for inputs of another
    shape, or of one number a channel.

    Examples:
        >>> layer = sf.nn.InstanceNorm1d(1)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[[1.0, 3.0]]])
        >>> y.data
        array([[[-1.,  1.]]], dtype=float32)
    """

    _ndim, _shapes = 3, "sequences (N, C, L)"

    def forward(self, x: Operand) -> Tensor:
        """x (N, C, L) -> the same shape; the same without N for one sequence."""
        return apply_to_sequences(self._normalize, x)


class InstanceNorm2d(_InstanceNorm):
    """Normalization of images (N, C, H, W), in all else as InstanceNorm1d.

    Examples:
        >>> layer = sf.nn.InstanceNorm2d(1)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[[[1.0, 3.0], [3.0, 1.0]]]])
        >>> y.data
        array([[[[-1.,  1.],
                 [ 1., -1.]]]], dtype=float32)
    """

    _ndim, _shapes = 4, "images (N, C, H, W)"

    def forward(self, x: Operand) -> Tensor:
        """x (N, C, H, W) -> the same shape; the same without N for one image."""
        return apply_to_images(self._normalize, x)
