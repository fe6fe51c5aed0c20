"""Normalization of each channel of each example."""

from __future__ import annotations

import numpy as np

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.record import Operand
from simfloat.checks import check_flags
from simfloat.nn.layer_arguments import apply_to_images, apply_to_sequences, as_number, check_sizes
from simfloat.nn.module import Module
from simfloat.nn.normalization import normalized_by_batch


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
        """The arguments that made it."""
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
