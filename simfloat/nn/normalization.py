"""Batch normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.by_formula import composite_operation
from simfloat.autodiff.factors import moving_average
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.checks import check_flags
from simfloat.formulas import norms
from simfloat.formulas.rounded import Rounded
from simfloat.nn.layer_arguments import as_number, check_sizes
from simfloat.nn.module import Module


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
        """The arguments that made it."""
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
