"""Convolutions and their gradients: operands are rounded by what they are, sums go through `accumulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from simfloat.accumulate.geometry import Geometry, Pair, as_images, geometry_of, mirrored_kernels
from simfloat.accumulate.volumes import Volumes
from simfloat.simulation.arithmetic import Arithmetic, Input
from simfloat.torch.phases import Backward
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.aten_contractions import SameTypeRule
from simfloat.torch.tensor_arrays import numbers_of

Sizes = Sequence[int]


class Steps(NamedTuple):
    """How a convolution goes along each axis; `more` is what a transposed one adds at the end of its results."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int
    more: Sizes | None

    @classmethod
    def along(
        cls, axes: int, stride: Sizes, padding: Sizes, dilation: Sizes, transposed: bool, more: Sizes, groups: int
    ) -> Steps:
        """Along so many axes, for all of which one number may stand."""
        stride, padding, dilation, more = (
            [*sizes] * axes if len(sizes) == 1 else sizes for sizes in (stride, padding, dilation, more)
        )
        return cls(stride, padding, dilation, groups, more if transposed else None)

    def of_depth(self) -> Steps:
        """Along the first axis, as rows of one column."""
        more = None if self.more is None else (self.more[0], 0)
        return Steps((self.stride[0], 1), (self.padding[0], 0), (self.dilation[0], 1), self.groups, more)

    def of_slices(self) -> Steps:
        """Along the other axes."""
        more = None if self.more is None else self.more[1:]
        return Steps(self.stride[1:], self.padding[1:], self.dilation[1:], self.groups, more)


def as_pair(sizes: Sizes, row: int) -> Pair:
    """An option for rows and columns; images of one row have `row` for theirs."""
    return (row, int(sizes[0])) if len(sizes) == 1 else (int(sizes[0]), int(sizes[1]))


def geometry_for(x: NDArray, w: NDArray, steps: Steps) -> tuple[Any, Any]:
    """The convolution's geometry and the size of its images or volumes; of a transposed one, x is the result."""
    if x.ndim == 5:
        # A volume's convolution is one of images in its last two axes and one of rows in its first.
        depth, (size, _) = geometry_for(x[..., :1, 0], w[..., :1, 0], steps.of_depth())
        slices, area = geometry_for(x[:, :, 0], w[:, :, 0], steps.of_slices())
        return Volumes(depth, slices), (size, area)
    stride, border, gaps = as_pair(steps.stride, 1), as_pair(steps.padding, 0), as_pair(steps.dilation, 1)
    if steps.more is None:
        return geometry_of(x, w, stride, border, gaps, steps.groups), (x.shape[2], x.shape[3])
    window, places, more = (w.shape[2], w.shape[3]), (x.shape[2], x.shape[3]), as_pair(steps.more, 0)
    rows, columns = (
        (n - 1) * step - 2 * width + gap * (size - 1) + end + 1
        for n, step, width, gap, size, end in zip(places, stride, border, gaps, window, more, strict=True)
    )
    return Geometry(window, stride, border, border, gaps, steps.groups, places), (rows, columns)


def convolve(
    arithmetic: Arithmetic, x: NDArray, w: NDArray, geometry: Geometry | Volumes, inputs: tuple[Input, Input]
) -> NDArray:
    """The convolution of images or volumes; sums go through (channel, slice, row, column)."""
    if isinstance(geometry, Geometry):
        return arithmetic.conv2d(x, w, geometry, *inputs)
    slices = arithmetic.conv2d(x, w.reshape(len(w), -1, *w.shape[3:]), geometry, *inputs)
    return slices.reshape(len(x), -1, *slices.shape[1:]).swapaxes(1, 2)


def correlate(
    arithmetic: Arithmetic, g: NDArray, x: NDArray, geometry: Geometry | Volumes, inputs: tuple[Input, Input]
) -> NDArray:
    """The gradient of kernels, slices among the channels; sums go through (example, depth, row, column)."""
    images = g.swapaxes(1, 2).reshape(-1, g.shape[1], *g.shape[3:]) if g.ndim == 5 else g
    return arithmetic.correlate(images, x, geometry, *inputs)


def mirrored_volume_kernels(w: NDArray, groups: int) -> NDArray:
    """Kernels as those of the transposed convolution, mirrored in all directions."""
    images = w.reshape(*w.shape[:-2], w.shape[-2] * w.shape[-1]) if w.ndim == 5 else w
    mirrored = mirrored_kernels(images, groups)
    return mirrored.reshape(*mirrored.shape[:2], *w.shape[2:])


def convolution(
    call: RuleCall, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, stride: Sizes, padding: Sizes,
    dilation: Sizes, transposed: bool, output_padding: Sizes, groups: int,
) -> torch.Tensor:  # fmt: skip
    """The convolution, or the transposed one; the addition of the bias is a second rounding."""
    images, kernels = as_images(numbers_of(x)), as_images(numbers_of(w))
    steps = Steps.along(x.ndim - 2, stride, padding, dilation, transposed, output_padding, groups)
    geometry, size = geometry_for(images, kernels, steps)
    if transposed:
        kernels, geometry = mirrored_volume_kernels(kernels, groups), geometry.for_image_gradient(size)
    result = convolve(call.begin(), images, kernels, geometry, call.inputs(x, w))
    result = result[:, :, 0] if x.ndim == 3 else result
    if bias is not None:
        call.phase = call.phase.sibling("add", call.format)
        call.begin()
        result = call.add(result, numbers_of(bias).reshape(-1, *[1] * (x.ndim - 2)))
    return call.tensor(result)


def convolution_backward(
    call: RuleCall, g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, bias_sizes: Any, stride: Sizes, padding: Sizes,
    dilation: Sizes, transposed: bool, output_padding: Sizes, groups: int, mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """The gradients of images, kernels and bias, as far as they are asked for.

    What the addition of the bias passes back to the product is rounded; the sum for the bias adds what came to it.
    """
    if not isinstance(call.phase, Backward):
        raise ValueError("aten.convolution_backward is simulated in a backward pass alone.")
    way, came = call.phase, g
    # The product reads the rounded gradient, the bias the one that came: between both lies the addition, whose way back
    # is that rounding.
    g = way.in_result_format(came) if way.may_narrow and (mask[0] or mask[1]) else came
    gradient, images, kernels = (as_images(numbers_of(t)) for t in (g, x, w))
    steps = Steps.along(x.ndim - 2, stride, padding, dilation, transposed, output_padding, groups)
    geometry, size = geometry_for(images, kernels, steps)
    gradients: list[torch.Tensor | None] = [None, None, None]
    if mask[0]:
        call.phase = way.to_operand(0)
        arithmetic, inputs = call.begin(), call.inputs(g, w)
        back = geometry if transposed else geometry.for_image_gradient(size)
        reached = convolve(
            arithmetic, gradient, kernels if transposed else mirrored_volume_kernels(kernels, groups), back, inputs
        )
        gradients[0] = call.tensor(reached.reshape(x.shape))
    if mask[1]:
        call.phase = way.to_operand(1)
        arithmetic = call.begin()
        if transposed:
            reached = correlate(arithmetic, images, gradient, geometry, call.inputs(x, g))
        else:
            reached = correlate(arithmetic, gradient, images, geometry, call.inputs(g, x))
        gradients[1] = call.tensor(reached.reshape(w.shape))
    if mask[2]:
        call.phase = bias = way.of_bias()
        came = bias.in_result_format(came) if bias.may_narrow else came
        call.begin()
        gradients[2] = call.tensor(call.sum(numbers_of(came), (0, *range(2, came.ndim))))
    return tuple(gradients)


class ConvolutionBackward(SameTypeRule):
    """Its way back, on which the gradient goes to the product and to the bias."""

    is_entered = False


class Convolution(SameTypeRule):
    """A convolution, or a transposed one, of sequences, images or volumes: one operation's name for each."""

    def operation_for(self, args: tuple[Any, ...]) -> str:
        """Which of the two it is."""
        is_transposed = len(args) > 6 and isinstance(args[6], bool) and args[6]
        return "conv_transpose2d" if is_transposed else "conv2d"


#: By PyTorch's name.
TABLE: dict[str, SameTypeRule] = {
    "convolution": Convolution("conv2d", convolution),
    "convolution_backward": ConvolutionBackward("conv2d", convolution_backward),
}
