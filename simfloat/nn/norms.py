"""Normalization over features, groups of channels, batches, or each channel of each example.

The layers normalize by mean and variance, or by the root mean square.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.contractions import moving_average
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.formats import FP32, FP64
from simfloat.nn.arguments import apply_to_batch, as_number, as_size, number_from_zero
from simfloat.nn.layer import Layer
from simfloat.options import KW_ONLY, InitVar, flag, option, with_options
from simfloat.simulation.formulas import Rounded, Slope, norms


def _as_shape(name: str, value: Any) -> tuple[int, ...]:
    """Return the sizes of the axes over which a layer normalizes."""
    sizes = tuple(value) if isinstance(value, tuple | list) else (value,)
    return tuple(int(as_size(name, size)) for size in sizes or (None,))


def _affine(shape: int | tuple[int, ...], affine: bool, bias: bool = True) -> tuple[Parameter | None, Parameter | None]:
    """Return weight and bias of a layer, initially ones and zeros; None for a parameter that is switched off."""
    weight = Parameter(np.ones(shape, np.float32)) if affine else None
    return weight, Parameter(np.zeros(shape, np.float32)) if affine and bias else None


@with_options
class LayerNorm(Layer):
    """d / sqrt(mean(d^2) + eps) * weight + bias with d = x - mean(x), over the last axes.

    Every step is rounded, in the order mean, subtraction, product, mean, + eps, rsqrt, products, + bias, unless the
    policy rounds `layer_norm` once as a whole. Gradients follow the formulas of PyTorch: the gradient of x is (p -
    mean(p) - y * mean(p * y)) * factor with p = g * weight.

    Parameters:
        normalized_shape: the size of the last axis, or the sizes of the last axes; also the shape of weight and bias.
        eps: a number from 0, added to the variance.
        elementwise_affine: True for the parameters weight (initially ones) and bias (initially zeros).
        bias: False for a layer without bias.

    Raises:
        ValueError: if a size is not a positive integer; if eps is not a number from 0.

    Source: Ba et al., arXiv 1607.06450.

    Examples:
        >>> layer = sf.nn.LayerNorm(3)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 2.0, 3.0]])
        >>> y.data
        array([[-1.2265625,  0.       ,  1.2265625]], dtype=float32)
    """

    sizes: InitVar[int | Sequence[int]] = option(_as_shape, alias="normalized_shape")
    eps: float = option(number_from_zero, default=1e-5)
    elementwise_affine: InitVar[bool] = option(flag, default=True)
    has_bias: InitVar[bool] = option(flag, default=True, alias="bias")

    def _start(self, **arguments: Any) -> None:
        affine = arguments["elementwise_affine"]
        self.normalized_shape = _as_shape("normalized_shape", arguments["normalized_shape"])
        self.weight = Parameter(np.ones(self.normalized_shape)) if affine else None
        self.bias = Parameter(np.zeros(self.normalized_shape)) if affine and arguments["bias"] else None

    def forward(self, x: Operand) -> Tensor:
        """Map x (..., *normalized_shape) to a tensor of the same shape."""
        x = as_tensor(x)
        count = len(self.normalized_shape)
        if x.shape[-count:] != self.normalized_shape:
            raise ValueError(f"A LayerNorm of {self.normalized_shape} takes (..., *that shape), got {x.shape}.")
        together, shared = norms.inner_axes(x.ndim, count), norms.outer_axes(x.ndim, count)
        return _normalize(
            "layer_norm",
            x,
            [p for p in (self.weight, self.bias) if p is not None],
            partial(norms.norm, together=together, eps=self.eps),
            partial(norms.norm_to_x, together=together),
            partial(norms.norm_to_weight, axes=shared),
            partial(norms.norm_to_bias, axes=shared),
        )

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        affine = ", elementwise_affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        return f"{self.normalized_shape}, eps={self.eps}{affine}"


@with_options
class GroupNorm(Layer):
    """(x - mean) * rsqrt(var + eps) * weight + bias, with a mean and a variance for each group of channels.

    The steps and gradients are those of LayerNorm, unless the policy rounds `group_norm` once as a whole.

    Parameters:
        num_groups: the number of groups, a divisor of num_channels.
        num_channels: the size of axis 1 of x, and of weight and bias.
        eps: a number from 0, added to the variance.
        affine: True for the parameters weight (initially ones) and bias (initially zeros).
        bias: False for a layer without bias.

    Raises:
        ValueError: if num_groups does not divide num_channels; if eps is not a number from 0; when called, if x has
            another number of channels.

    Source: Wu and He, arXiv 1803.08494.

    Examples:
        >>> layer = sf.nn.GroupNorm(2, 4)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 3.0, 2.0, 6.0]])
        >>> y.data
        array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    num_groups: int = option(as_size)
    num_channels: int = option(as_size)
    eps: float = option(number_from_zero, default=1e-5)
    affine: bool = option(flag, default=True)
    _: KW_ONLY
    has_bias: InitVar[bool] = option(flag, default=True, alias="bias")

    def _start(self, **arguments: Any) -> None:
        groups, channels = self.num_groups, self.num_channels
        if channels % groups:
            raise ValueError(f"num_channels must be a multiple of num_groups, got {channels} and {groups}.")
        self.weight, self.bias = _affine(channels, self.affine, arguments["bias"])

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, num_channels, ...) to a tensor of the same shape."""
        x, groups = as_tensor(x), self.num_groups
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(f"A GroupNorm of {self.num_channels} channels takes (N, channels, ...), got {x.shape}.")
        return _normalize(
            "group_norm",
            x,
            [p for p in (self.weight, self.bias) if p is not None],
            partial(norms.group_norm, groups=groups, eps=self.eps),
            partial(norms.group_norm_to_x, groups=groups),
            partial(norms.group_norm_to_weight, groups=groups),
            norms.batch_norm_to_bias,
        )

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


@with_options
class RMSNorm(Layer):
    """x * rsqrt(mean(x^2) + eps) * weight, over the last axes.

    The layer consists of six operations, each with its own name in policies and its own rounding: power, mean, addition
    of eps, rsqrt, and two products.

    Parameters:
        normalized_shape: the size of the last axis, or the sizes of the last axes; also the shape of weight.
        eps: a number from 0, added to the mean square; by default the eps of FP32, or of FP64 if x is stored in
            float64.
        elementwise_affine: True for the parameter weight (initially ones).

    Raises:
        ValueError: if a size is not a positive integer; if eps is not a number from 0.

    Source: Zhang and Sennrich, arXiv 1910.07467.

    Examples:
        >>> layer = sf.nn.RMSNorm(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 7.0]])
        >>> y.data
        array([[0.20019531, 1.3984375 ]], dtype=float32)
    """

    sizes: InitVar[int | Sequence[int]] = option(_as_shape, alias="normalized_shape")
    eps: float | None = option(lambda name, eps: None if eps is None else as_number(name, eps, 0.0), default=None)
    elementwise_affine: bool = option(flag, default=True)

    def _start(self, **arguments: Any) -> None:
        self.normalized_shape = _as_shape("normalized_shape", arguments["normalized_shape"])
        self.weight, _ = _affine(self.normalized_shape, self.elementwise_affine)

    def forward(self, x: Operand) -> Tensor:
        """Map x (..., *normalized_shape) to a tensor of the same shape."""
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


@with_options
class _BatchNorm(Layer):
    """The common base of batch normalizations for all shapes."""

    _ndims: ClassVar[tuple[int, ...]] = ()
    _shapes: ClassVar[str] = ""

    num_features: int = option(as_size)
    eps: float = option(number_from_zero, default=1e-5)
    momentum: float | None = option(lambda name, part: None if part is None else as_number(name, part), default=0.1)
    affine: bool = option(flag, default=True)
    track_running_stats: bool = option(flag, default=True)
    _: KW_ONLY
    has_bias: InitVar[bool] = option(flag, default=True, alias="bias")

    def _start(self, **arguments: Any) -> None:
        channels, is_tracking = self.num_features, self.track_running_stats
        self.weight, self.bias = _affine(channels, self.affine, arguments["bias"])
        self.running_mean: NDArray | None
        self.running_var: NDArray | None
        self.num_batches_tracked: NDArray | None
        self.register_buffer("running_mean", np.zeros(channels, np.float32) if is_tracking else None)
        self.register_buffer("running_var", np.ones(channels, np.float32) if is_tracking else None)
        self.register_buffer("num_batches_tracked", np.array(0) if is_tracking else None)

    def forward(self, x: Operand) -> Tensor:
        """Map x of a supported shape to a tensor of the same shape."""
        x = as_tensor(x)
        if x.ndim not in self._ndims or x.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}({self.num_features}) needs {self._shapes} with C = {self.num_features}, got "
                f"shape {x.shape}."
            )
        parameters = [p for p in (self.weight, self.bias) if p is not None]
        mean, var, count = self.running_mean, self.running_var, math.prod(x.shape) // self.num_features
        is_of_batch = self.training or mean is None or var is None
        if is_of_batch and count == 1:
            raise ValueError(f"{type(self).__name__} needs more than one element per channel in training.")
        statistics: list[NDArray] = []
        if is_of_batch and count:
            result = normalized_by_batch(x, parameters, self.eps, statistics)
        else:
            # As in torch, the result of an empty batch is empty, and there are no statistics.
            ones = np.ones_like(x.numbers, np.float32, order="C", shape=self.num_features)
            result = self._by_running(ones if mean is None else mean, ones if var is None else var, x, parameters)
        if self.training:
            self._track(statistics)
        return result

    def _by_running(self, mean: NDArray, var: NDArray, x: Tensor, parameters: list[Parameter]) -> Tensor:
        """Normalize by the given statistics instead of the batch's statistics."""
        eps = self.eps

        def formula(u: Rounded, x: NDArray, *affine: NDArray) -> NDArray:
            *scale_and_shift, mean, var = affine
            weight, bias = [*scale_and_shift, None, None][:2]
            return norms.running_norm(u, x, weight, bias, mean, var, eps)

        def to_x(u: Rounded, g: NDArray, outputs: None, x: NDArray, *affine: NDArray) -> NDArray:
            return norms.running_norm_to_x(u, g, affine[0] if parameters else None, affine[-1], eps)

        def to_weight(u: Rounded, g: NDArray, outputs: None, x: NDArray, *affine: NDArray) -> NDArray:
            mean, var = affine[-2:]
            return norms.batch_norm_to_weight(u, g, x, mean, norms.inverse_root(u, var, eps))

        slopes = (to_x, to_weight, lambda u, g, *_: norms.batch_norm_to_bias(u, g))[: 1 + len(parameters)]
        return tensor_of(
            composite_operation("batch_norm", formula, slopes, x, *parameters, mean, var, reads="operands")
        )

    def _track(self, statistics: list[NDArray]) -> None:
        """Move the running statistics towards the statistics of the batch, if both exist."""
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
    """Normalize x (N, C, ...) by the mean and variance of each channel.

    The means and the unbiased variances are appended to `statistics`.
    """

    def formula(u: Rounded, x: NDArray, weight: NDArray | None, bias: NDArray | None) -> Any:
        result, mean, factor, unbiased = norms.batch_norm(u, x, weight, bias, eps)
        statistics.extend((mean, unbiased))
        return result, mean, factor

    slopes = norms.batch_norm_to_x, norms.batch_norm_to_weight, norms.batch_norm_to_bias
    return _normalize("batch_norm", x, parameters, formula, *slopes)


def _normalize(
    name: str,
    x: Tensor,
    parameters: Sequence[Tensor],
    formula: Callable[..., Any],
    to_x: Callable[..., NDArray],
    to_weight: Callable[..., NDArray],
    to_bias: Callable[..., NDArray],
) -> Tensor:
    """Return a normalization by a formula of x, weight and bias, which also returns the mean and the factor.

    The gradients are formulas of x, the mean and the factor; the gradient of x also of the weight.
    """

    def result(u: Rounded, x: NDArray, weight: NDArray | None = None, bias: NDArray | None = None) -> Any:
        return formula(u, x, weight, bias)

    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, weight=None, *_: to_x(u, g, x, *outputs[1:], weight),
        lambda u, g, outputs, x, *_: to_weight(u, g, x, *outputs[1:]),
        lambda u, g, *_: to_bias(u, g),
    )
    used = slopes[: 1 + len(parameters)]
    return tensor_of(composite_operation(name, result, used, x, *parameters, reads="operands"))


class BatchNorm2d(_BatchNorm):
    """Batch normalization of images: (x - mean) * rsqrt(var + eps) * weight + bias, with statistics per channel.

    In training, mean and var are those of the batch. The sums go through the policy's `reduce`, over all examples and
    pixels, and are divided by the number of elements. Every step is rounded, unless the policy rounds ``batch_norm``
    once as a whole (role `fused`). Use this role in formats with a small exponent range, in which long sums overflow.
    Gradients follow the formulas of PyTorch, as in LayerNorm.

    After a training step, `running_mean` and `running_var` become (1 - momentum) * running + momentum * batch, with
    three roundings to `activations`. Here the variance is the unbiased one: the same sum, divided by the number of
    elements minus 1. In evaluation, these running statistics replace those of the batch.

    Parameters:
        num_features: the number of channels C of x (N, C, H, W), and the size of weight and bias.
        eps: a number from 0, added to the variance.
        momentum: the share of the new batch in the running statistics; None for the average of all batches.
        affine: True for the parameters weight (initially ones) and bias (initially zeros).
        track_running_stats: False for no running statistics; evaluation then also uses those of the batch.
        bias: False for a layer without bias.

    Raises:
        ValueError: if num_features is not a positive integer; if eps or momentum is not a number; when called, if x has
            another shape, or in training one element per channel.

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
    """Batch normalization of (N, C) or (N, C, L): (x - mean) * rsqrt(var + eps) * weight + bias, by channel.

    The roundings, the gradients and the running statistics are those of BatchNorm2d.

    Parameters:
        num_features: the number of channels C, and the size of weight and bias.
        eps: a number from 0, added to the variance.
        momentum: the share of the new batch in the running statistics; None for the average of all batches.
        affine: True for the parameters weight (initially ones) and bias (initially zeros).
        track_running_stats: False for no running statistics; evaluation then also uses those of the batch.
        bias: False for a layer without bias.

    Raises:
        ValueError: if num_features is not a positive integer; if eps or momentum is not a number; when called, if x has
            another shape, or in training one element per channel.

    Examples:
        >>> layer = sf.nn.BatchNorm1d(3)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
        >>> y.data
        array([[-1.,  0.,  1.],
               [ 1.,  0., -1.]], dtype=float32)
    """

    _ndims, _shapes = (2, 3), "x (N, C) or (N, C, L)"


@with_options
class _InstanceNorm(Layer):
    """The common base of instance normalizations: `batch_norm` of one example that has all N * C channels."""

    _ndim, _shapes = 0, ""

    num_features: int = option(as_size)
    eps: float = option(number_from_zero, default=1e-5)
    momentum: float = option(as_number, default=0.1)
    affine: bool = option(flag, default=False)
    track_running_stats: InitVar[bool] = option(flag, default=False)
    _: KW_ONLY
    has_bias: InitVar[bool] = option(flag, default=True, alias="bias")

    def _start(self, **arguments: Any) -> None:
        if arguments["track_running_stats"]:
            raise ValueError("Running statistics of instance norms are not supported; leave track_running_stats out.")
        self.weight, self.bias = _affine(self.num_features, self.affine, arguments["bias"])

    def _of_examples(self, x: Tensor) -> Tensor:
        if x.ndim != self._ndim or x.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}({self.num_features}) needs {self._shapes} with C = {self.num_features}, got "
                f"shape {x.shape}."
            )
        examples, channels, *sizes = x.shape
        if int(np.prod(sizes)) <= 1:
            raise ValueError(f"{type(self).__name__} needs more than one element per channel, got shape {x.shape}.")
        parameters = [p for p in (self.weight, self.bias) if p is not None]
        repeated = [p.broadcast_to((examples, channels)).reshape(examples * channels) for p in parameters]
        together = x.reshape(1, examples * channels, *sizes)
        return normalized_by_batch(together, repeated, self.eps, []).reshape(x.shape)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"{self.num_features}, eps={self.eps}, affine={self.affine}"


class InstanceNorm1d(_InstanceNorm):
    """Normalization of sequences (N, C, L) by the mean and variance of each channel of each example.

    The steps and gradients are those of BatchNorm1d in training, and evaluation does the same.

    Parameters:
        num_features: the number of channels C, and the size of weight and bias.
        eps: a number from 0, added to the variance.
        momentum: a number, ignored, because there are no running statistics.
        affine: True for the parameters weight (initially ones) and bias (initially zeros).
        track_running_stats: must be False.
        bias: False for a layer without bias.

    Raises:
        ValueError: if num_features is not a positive integer; if track_running_stats is true; when called, if x has
            another shape, or one element per channel.

    Source: Ulyanov et al., arXiv 1607.08022.

    Examples:
        >>> layer = sf.nn.InstanceNorm1d(1)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[[1.0, 3.0]]])
        >>> y.data
        array([[[-1.,  1.]]], dtype=float32)
    """

    _ndim, _shapes = 3, "sequences (N, C, L)"

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, L), or (C, L) for one sequence, to a tensor of the same shape."""
        return apply_to_batch(self._of_examples, x, 1)


class InstanceNorm2d(_InstanceNorm):
    """Normalization of images (N, C, H, W) by the mean and variance of each channel of each example.

    The steps and gradients are those of BatchNorm2d in training, and evaluation does the same.

    Parameters:
        num_features: the number of channels C, and the size of weight and bias.
        eps: a number from 0, added to the variance.
        momentum: a number, ignored, because there are no running statistics.
        affine: True for the parameters weight (initially ones) and bias (initially zeros).
        track_running_stats: must be False.
        bias: False for a layer without bias.

    Raises:
        ValueError: if num_features is not a positive integer; if track_running_stats is true; when called, if x has
            another shape, or one element per channel.

    Source: Ulyanov et al., arXiv 1607.08022.

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
        """Map x (N, C, H, W), or (C, H, W) for one image, to a tensor of the same shape."""
        return apply_to_batch(self._of_examples, x, 2)
