"""Convolutions and their gradients: operands are rounded by what they are, sums go through `accumulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.accumulate.geometry import Geometry, Pair, geometry_of, turned
from simfloat.torch.call import Call
from simfloat.torch.handlers import Ruled
from simfloat.torch.numbers import numbers_of
from simfloat.torch.sites import Backward

Sizes = Sequence[int]


def as_images(x: NDArray) -> NDArray:
    """Sequences (N, C, L) as images of one row."""
    return x[:, :, np.newaxis] if x.ndim == 3 else x


def as_pair(sizes: Sizes, row: int) -> Pair:
    """An option for rows and columns; images of one row have `row` for theirs."""
    return (row, int(sizes[0])) if len(sizes) == 1 else (int(sizes[0]), int(sizes[1]))


def geometry_for(
    x: NDArray, w: NDArray, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int, more: Sizes | None
) -> tuple[Geometry, Pair]:
    """The convolution's geometry and the size of its images; of a transposed one, with `more` rows, x is the result."""
    steps, border, gaps = as_pair(stride, 1), as_pair(padding, 0), as_pair(dilation, 1)
    if more is None:
        return geometry_of(x, w, steps, border, gaps, groups), (x.shape[2], x.shape[3])
    window, places, extra = (w.shape[2], w.shape[3]), (x.shape[2], x.shape[3]), as_pair(more, 0)
    rows, columns = (
        (n - 1) * step - 2 * width + gap * (size - 1) + end + 1
        for n, step, width, gap, size, end in zip(places, steps, border, gaps, window, extra, strict=True)
    )
    return Geometry(window, steps, border, border, gaps, groups, places), (rows, columns)


def convolved(
    call: Call, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, stride: Sizes, padding: Sizes,
    dilation: Sizes, transposed: bool, output_padding: Sizes, groups: int,
) -> torch.Tensor:  # fmt: skip
    """The convolution, or the transposed one; the addition of the bias is a second rounding."""
    images, kernels = as_images(numbers_of(x)), as_images(numbers_of(w))
    geometry, size = geometry_for(
        images, kernels, stride, padding, dilation, groups, output_padding if transposed else None
    )
    if transposed:
        kernels, geometry = turned(kernels, groups), geometry.transposed(size)
    result = call.begin(x.shape).conv2d(images, kernels, geometry, *call.inputs(x, w))
    result = result[:, :, 0] if x.ndim == 3 else result
    if bias is not None:
        call.site = call.site.beside("add", call.format)
        call.begin(result.shape)
        result = call.add(result, numbers_of(bias).reshape(-1, *[1] * (x.ndim - 2)))
    return call.tensor(result)


def convolved_backward(
    call: Call, g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, bias_sizes: Any, stride: Sizes, padding: Sizes,
    dilation: Sizes, transposed: bool, output_padding: Sizes, groups: int, mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """The gradients of images, kernels and bias, as far as they are asked for."""
    if not isinstance(call.site, Backward):
        raise ValueError("aten.convolution_backward is simulated in a backward pass alone.")
    way, (gradient, images, kernels) = call.site, (as_images(numbers_of(t)) for t in (g, x, w))
    geometry, size = geometry_for(
        images, kernels, stride, padding, dilation, groups, output_padding if transposed else None
    )
    found: list[torch.Tensor | None] = [None, None, None]
    if mask[0]:
        call.site = way.reaching(0)
        arithmetic, inputs = call.begin(x.shape), call.inputs(g, w)
        back = geometry if transposed else geometry.transposed(size)
        reached = arithmetic.conv2d(gradient, kernels if transposed else turned(kernels, groups), back, *inputs)
        found[0] = call.tensor(reached.reshape(x.shape))
    if mask[1]:
        call.site = way.reaching(1)
        arithmetic = call.begin(w.shape)
        if transposed:
            reached = arithmetic.correlate(images, gradient, geometry, *call.inputs(x, g))
        else:
            reached = arithmetic.correlate(gradient, images, geometry, *call.inputs(g, x))
        found[1] = call.tensor(reached.reshape(w.shape))
    if mask[2]:
        call.site = way.of_bias()
        call.begin((g.shape[1],))
        found[2] = call.tensor(call.sum(gradient, (0, 2, 3)))
    return tuple(found)


class Convolution(Ruled):
    """A convolution, or a transposed one."""

    def operation_for(self, args: tuple[Any, ...]) -> str:
        """Which of the two it is."""
        if len(args) > 6 and isinstance(args[6], bool) and args[6]:
            return "conv_transpose2d"
        if any(isinstance(x, torch.Tensor) and x.ndim > 4 for x in args):
            raise ValueError("Convolutions are simulated of sequences and images; got volumes.")
        return "conv2d"


#: By PyTorch's name.
TABLE: dict[str, Ruled] = {
    "convolution": Convolution("conv2d", convolved),
    "convolution_backward": Ruled("conv2d", convolved_backward),
}
