"""Convolutions of images and sequences, and their transposes, each with its derivatives beside it.

Every one is a single contraction, whose operands are rounded as those of products of matrices are:

* a result, over (input channel, kernel row, kernel column) of `conv2d`;
* the gradient of an image, over (output channel, kernel row, kernel column) of the transposed convolution: that of the
  gradient, spread by the stride, with the kernels mirrored;
* the gradient of a kernel, over (image, result row, result column).

Zeros in the padding, and those between the pixels of a spread gradient, are operands that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from simfloat.accumulate.geometry import (
    Geometry,
    Pair,
    as_images,
    geometry_of,
    mirrored_kernels,
    read_pair,
    read_row_option,
)
from simfloat.autodiff.record import Operand, OperationResult, Operations, Result, begin, finish
from simfloat.autodiff.variable import Variable, as_variable
from simfloat.checks import is_integer
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic


@in_usual_environment
class Convolutions(Operations[Result]):
    """Convolutions of a tensor of images."""

    def conv2d(
        self,
        weight: Operand,
        stride: int | Pair = 1,
        padding: int | Pair | str = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
    ) -> Result:
        """These images (N, C, H, W) with kernels (O, C / groups, h, w): (N, O, rows, columns).

        Options are those of simfloat.conv2d; padding may also be "valid", none, or with a stride of 1 "same".
        """
        weight = as_variable(weight)
        geometry = geometry_of(self.numbers, weight.numbers, stride, padding, dilation, groups)
        return self.from_result(_convolution(self, weight, geometry))

    def conv1d(
        self, weight: Operand, stride: int = 1, padding: int | str = 0, dilation: int = 1, groups: int = 1
    ) -> Result:
        """These sequences (N, C, L) with kernels (O, C / groups, k): (N, O, places); `conv2d` of images of one row.

        Options are those of conv2d, integers each. Raises ValueError for shapes that do not fit.
        """
        weight = as_variable(weight)
        _check_sequences("conv1d", "w (O, C / groups, k) with C and O multiples of groups", self, weight, groups)
        border = padding if isinstance(padding, str) else read_row_option("padding", padding, 0, 0)
        steps, gaps = read_row_option("stride", stride, 1, 1), read_row_option("dilation", dilation, 1, 1)
        geometry = geometry_of(as_images(self.numbers), as_images(weight.numbers), steps, border, gaps, groups)
        return self.from_result(_convolution(self, weight, geometry))

    def conv_transpose2d(
        self,
        weight: Operand,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        output_padding: int | Pair = 0,
        groups: int = 1,
        dilation: int | Pair = 1,
    ) -> Result:
        """Images (N, C, H, W) with kernels (C, O / groups, h, w): (N, O, rows, columns), the gradient of conv2d's.

        Rows are (H - 1) * stride - 2 * padding + dilation * (h - 1) + output_padding + 1, columns alike.

        Raises ValueError for shapes that do not fit, and for an output_padding that no stride or dilation exceeds.
        """
        weight = as_variable(weight)
        options = stride, padding, output_padding, groups, dilation
        return self.from_result(
            _transposed_convolution(self, weight, *_geometry_of_result(self.shape, weight.shape, *options))
        )

    def conv_transpose1d(
        self,
        weight: Operand,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        groups: int = 1,
        dilation: int = 1,
    ) -> Result:
        """Sequences (N, C, L) with kernels (C, O / groups, k): `conv_transpose2d` of images of one row.

        Places are (L - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1. Raises ValueError as
        conv_transpose2d.
        """
        weight = as_variable(weight)
        _check_sequences(
            "conv_transpose1d", "weight (C, O / groups, k) with C and O multiples of groups", self, weight, groups
        )
        x_shape, w_shape = ((*shape[:2], 1, *shape[2:]) for shape in (self.shape, weight.shape))
        options = read_row_option("stride", stride, 1, 1), read_row_option("padding", padding, 0, 0)
        more, gaps = (
            read_row_option("output_padding", output_padding, 0, 0),
            read_row_option("dilation", dilation, 1, 1),
        )
        geometry_and_size = _geometry_of_result(x_shape, w_shape, *options, more, groups, gaps)
        return self.from_result(_transposed_convolution(self, weight, *geometry_and_size))


def _check_sequences(name: str, kernels: str, x: Variable, weight: Variable, groups: Any) -> None:
    """Raise ValueError unless both have three axes, and the kernels the channels of the sequences."""
    fits = x.ndim == weight.ndim == 3
    if fits and is_integer(groups, 1):  # what is none is refused as such, by the geometry
        first, second = weight.shape[:2]
        channels = first if name == "conv_transpose1d" else second * groups
        fits = x.shape[1] == channels and first % groups == 0
    if not fits:
        raise ValueError(
            f"{name} needs x (N, C, L) and {kernels}, got shapes {x.shape} and {weight.shape} with groups={groups!r}."
        )


def _convolution(x: Variable, weight: Variable, geometry: Geometry) -> OperationResult:
    """The convolution of images, or of sequences as images of one row."""
    x_shape, w_shape, size = x.shape, weight.shape, as_images(x.numbers).shape
    back = geometry.for_image_gradient((size[2], size[3]))
    started = begin("conv2d", x, weight)
    x_input, w_input, g_input = started.input(0), started.input(1), started.place.gradient
    images, kernels = (as_images(operand.numbers) for operand in started.operands)
    arithmetic, groups = started.forward, geometry.groups
    result = arithmetic.conv2d(images, kernels, geometry, x_input, started.forward_input(1))

    def by_input(u: Arithmetic, g: NDArray) -> NDArray:
        return u.conv2d(as_images(g), mirrored_kernels(kernels, groups), back, g_input, w_input).reshape(x_shape)

    def by_weight(u: Arithmetic, g: NDArray) -> NDArray:
        return u.correlate(as_images(g), images, geometry, g_input, x_input).reshape(w_shape)

    return finish(started, _of_rank(x.ndim, result), arithmetic.format, by_input, by_weight, reads="other")


def _transposed_convolution(x: Variable, weight: Variable, geometry: Geometry, size: Pair) -> OperationResult:
    """The transposed convolution of which `geometry` is that of the convolution, and results have this size."""
    x_shape, w_shape, ahead = x.shape, weight.shape, geometry.for_image_gradient(size)
    started = begin("conv_transpose2d", x, weight)
    x_input, w_input, g_input = started.input(0), started.input(1), started.place.gradient
    images, kernels = (as_images(operand.numbers) for operand in started.operands)
    arithmetic = started.forward
    result = arithmetic.conv2d(
        images, mirrored_kernels(kernels, geometry.groups), ahead, x_input, started.forward_input(1)
    )

    def by_input(u: Arithmetic, g: NDArray) -> NDArray:
        return u.conv2d(as_images(g), kernels, geometry, g_input, w_input).reshape(x_shape)

    def by_weight(u: Arithmetic, g: NDArray) -> NDArray:
        return u.correlate(images, as_images(g), geometry, x_input, g_input).reshape(w_shape)

    return finish(started, _of_rank(x.ndim, result), arithmetic.format, by_input, by_weight, reads="other")


def _of_rank(ndim: int, images: NDArray) -> NDArray:
    """Images, or those of one row as sequences."""
    return images[:, :, 0] if ndim == 3 else images


def _geometry_of_result(
    x: Sequence[int],
    weight: Sequence[int],
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> tuple[Geometry, Pair]:
    """The convolution of which the result has the shape x, and the size of its images."""
    if len(x) != 4 or len(weight) != 4 or x[1] != weight[0] or 0 in weight[2:]:
        raise ValueError(
            f"conv_transpose2d needs x (N, C, H, W) and weight (C, O / groups, h, w), got shapes {tuple(x)} and "
            f"{tuple(weight)}."
        )
    if not is_integer(groups, 1) or weight[0] % groups:
        raise ValueError(f"groups must be a positive integer that divides the {weight[0]} channels, got {groups!r}.")
    steps, border = read_pair("stride", stride, 1), read_pair("padding", padding, 0)
    gaps, more = read_pair("dilation", dilation, 1), read_pair("output_padding", output_padding, 0)
    if any(extra >= max(step, gap) for extra, step, gap in zip(more, steps, gaps, strict=True)):
        raise ValueError(f"output_padding must be smaller than the stride {steps} or the dilation {gaps}, got {more}.")
    window, places = (weight[2], weight[3]), (x[2], x[3])
    rows, columns = (
        (n - 1) * step - 2 * width + gap * (size - 1) + extra + 1
        for n, step, width, gap, size, extra in zip(places, steps, border, gaps, window, more, strict=True)
    )
    if 0 in places or rows < 1 or columns < 1:
        raise ValueError(
            f"x of shape {tuple(x)} with kernels {window}, stride {steps} and padding {border} would give {rows} rows "
            f"and {columns} columns; a result needs one of each."
        )
    return Geometry(window, steps, border, border, gaps, int(groups), places), (rows, columns)
