"""Convolutions of images and their transposes, each with its derivatives beside it.

Every one is a single contraction, whose operands are rounded as those of products of matrices are:

* a result, over (input channel, kernel row, kernel column) of `conv2d`;
* the gradient of an image, over (output channel, kernel row, kernel column) of the transposed convolution: that of the
  gradient, spread by the stride, with the kernels mirrored;
* the gradient of a kernel, over (image, result row, result column).

Zeros in the padding, and those between the pixels of a spread gradient, are operands that count.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from simfloat.accumulate.geometry import Geometry, Pair, geometry_of, pair_of, turned
from simfloat.autodiff.record import Operand, Operations, Result, begin, finish
from simfloat.autodiff.variable import Variable, as_variable
from simfloat.checks import is_integer
from simfloat.simulation.arithmetic import Arithmetic


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
        back = geometry.transposed((self.shape[2], self.shape[3]))
        started = begin("conv2d", self, weight)
        x_input, w_input, g_input = started.input(0), started.input(1), started.place.gradient
        images, kernels = (operand.numbers for operand in started.operands)
        arithmetic = started.forward
        result = arithmetic.conv2d(images, kernels, geometry, x_input, started.input_now(1))

        def by_input(u: Arithmetic, g: NDArray) -> NDArray:
            return u.conv2d(g, turned(kernels, groups), back, g_input, w_input)

        def by_weight(u: Arithmetic, g: NDArray) -> NDArray:
            return u.correlate(g, images, geometry, g_input, x_input)

        return self.made(finish(started, result, arithmetic.format, by_input, by_weight, reads="other"))

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
        geometry, size = _geometry_of_result(self, weight, stride, padding, output_padding, groups, dilation)
        ahead = geometry.transposed(size)
        started = begin("conv_transpose2d", self, weight)
        x_input, w_input, g_input = started.input(0), started.input(1), started.place.gradient
        images, kernels = (operand.numbers for operand in started.operands)
        arithmetic = started.forward
        result = arithmetic.conv2d(images, turned(kernels, groups), ahead, x_input, started.input_now(1))

        def by_input(u: Arithmetic, g: NDArray) -> NDArray:
            return u.conv2d(g, kernels, geometry, g_input, w_input)

        def by_weight(u: Arithmetic, g: NDArray) -> NDArray:
            return u.correlate(images, g, geometry, x_input, g_input)

        return self.made(finish(started, result, arithmetic.format, by_input, by_weight, reads="other"))


def _geometry_of_result(
    x: Variable, weight: Variable, stride: Any, padding: Any, output_padding: Any, groups: Any, dilation: Any
) -> tuple[Geometry, Pair]:
    """The convolution of which x is the result, and the size of its images."""
    if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[0] or 0 in weight.shape[2:]:
        raise ValueError(
            f"conv_transpose2d needs x (N, C, H, W) and weight (C, O / groups, h, w), got shapes {x.shape} and "
            f"{weight.shape}."
        )
    if not is_integer(groups, 1) or weight.shape[0] % groups:
        raise ValueError(
            f"groups must be a positive integer that divides the {weight.shape[0]} channels, got {groups!r}."
        )
    steps, border = pair_of("stride", stride, 1), pair_of("padding", padding, 0)
    gaps, more = pair_of("dilation", dilation, 1), pair_of("output_padding", output_padding, 0)
    if any(extra >= max(step, gap) for extra, step, gap in zip(more, steps, gaps, strict=True)):
        raise ValueError(f"output_padding must be smaller than the stride {steps} or the dilation {gaps}, got {more}.")
    window, places = (weight.shape[2], weight.shape[3]), (x.shape[2], x.shape[3])
    rows, columns = (
        (n - 1) * step - 2 * width + gap * (size - 1) + extra + 1
        for n, step, width, gap, size, extra in zip(places, steps, border, gaps, window, more, strict=True)
    )
    if 0 in places or rows < 1 or columns < 1:
        raise ValueError(
            f"x of shape {x.shape} with kernels {window}, stride {steps} and padding {border} would give {rows} rows "
            f"and {columns} columns; a result needs one of each."
        )
    return Geometry(window, steps, border, border, gaps, int(groups), places), (rows, columns)
