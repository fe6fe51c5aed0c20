"""Functions of images that layers are made of."""

from __future__ import annotations

from simfloat.accumulate.geometry import Pair
from simfloat.autodiff import convolution, pooling
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import Tensor, as_tensor, tensor_of


def conv2d(
    x: Operand,
    weight: Operand,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Images (N, C, H, W) with kernels (O, C / groups, h, w): (N, O, rows, columns).

    Options are those of simfloat.conv2d; padding may also be "valid", none, or with a stride of 1 "same".
    """
    return tensor_of(convolution.conv2d(x, weight, stride, padding, dilation, groups))


def conv_transpose2d(
    x: Operand,
    weight: Operand,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    output_padding: int | Pair = 0,
    groups: int = 1,
    dilation: int | Pair = 1,
) -> Tensor:
    """Images (N, C, H, W) with kernels (C, O / groups, h, w), as conv2d's images get their gradient: (N, O, ...)."""
    return tensor_of(convolution.conv_transpose2d(x, weight, stride, padding, output_padding, groups, dilation))


def max_pool2d(
    x: Operand,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest of every window of images (N, C, H, W); its gradient goes to the first pixel that is as large."""
    return tensor_of(pooling.max_pool2d(as_tensor(x), kernel_size, stride, padding, dilation, ceil_mode))


def avg_pool2d(
    x: Operand,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The sum of every window of images (N, C, H, W), divided by the number of its pixels."""
    options = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return tensor_of(pooling.avg_pool2d(as_tensor(x), *options))
