"""Contractions: matrix products, convolutions, and products with constants, each with its derivatives.

Operands of contractions are rounded to the role `compute` of the policy, gradients to `compute_gradients`. A
parameter may have its own roles. Sums go through `accumulate`, in the backward pass through `accumulate_gradients`.

Convolutions of sequences, images and volumes, and transposed convolutions, are a single contraction each, whose order
:mod:`simfloat.simulation.formulas.convolution` defines.

Zeros in the padding, and zeros between the pixels of a spread gradient, are operands that count.

Constants in products are not rounded as operands: masks, as in dropout; loss scales; the weights of moving averages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operations import compute_with_draw
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.autodiff.record import (
    Operand,
    OperationResult,
    Operations,
    Result,
    begin,
    finish,
)
from simfloat.autodiff.variable import Variable, as_variable
from simfloat.common import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, nearest_even
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas import norms, sum_to_shape
from simfloat.simulation.formulas.convolution import ConvolutionFormula
from simfloat.simulation.place import contains, widest_format
from simfloat.sums.geometry import (
    SHAPES,
    Pair,
    Triple,
    as_images,
    geometry_of,
    read_row_option,
    read_sizes,
    transposed_geometry,
)


@in_usual_environment
class Contractions(Operations[Result]):
    """The matrix products of a tensor."""

    def matmul(self, other: Operand) -> Result:
        """Multiply matrices, as ``@`` does, with the shapes of numpy.matmul."""
        right = as_variable(other)
        a_shape, b_shape = self.shape, right.shape
        if not a_shape or not b_shape or a_shape[-1] != b_shape[max(len(b_shape) - 2, 0)]:
            raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {a_shape} and {b_shape}.")
        started = begin("matmul", self, right)
        bound, (used, used_right) = started.bound, started.operands
        a, b = used.numbers, used_right.numbers
        a_input, b_input = bound.input(0, used.current_format), bound.input(1, used_right.current_format)
        g_input = bound.place.gradient
        # During the product, vectors are matrices of one row or column.
        x = a if a.ndim > 1 else a[np.newaxis]
        y = b if b.ndim > 1 else b[:, np.newaxis]
        arithmetic = started.forward
        product = arithmetic.matmul(x, y, a_input, b_input)
        full = product.shape

        def by_a(u: Arithmetic, g: NDArray) -> NDArray:
            gradient = u.matmul(g.reshape(full), np.swapaxes(y, -1, -2), g_input, b_input)
            return sum_to_shape(u, gradient, x.shape).reshape(a_shape)

        def by_b(u: Arithmetic, g: NDArray) -> NDArray:
            gradient = u.matmul(np.swapaxes(x, -1, -2), g.reshape(full), a_input, g_input)
            return sum_to_shape(u, gradient, y.shape).reshape(b_shape)

        rows, columns = (full[-2:-1] if a.ndim > 1 else ()), (full[-1:] if b.ndim > 1 else ())
        result = product.reshape(full[:-2] + rows + columns)
        return self.from_result(finish(started, result, arithmetic.format, by_a, by_b, reads="other"))

    def linear(self, weight: Operand, part: slice | None = None) -> Result:
        """Multiply x (..., inputs) by the transpose of `weight` (outputs, inputs), or of a part of its rows."""
        weight = weight if isinstance(weight, Variable) else as_variable(weight)
        shape, w_shape = self.numbers.shape, weight.numbers.shape
        if len(w_shape) != 2:
            raise ValueError(f"The weight of a linear layer must have the shape (outputs, inputs), got {w_shape}.")
        inputs = w_shape[1]
        if not shape or shape[-1] != inputs:
            raise ValueError(f"A linear layer of {inputs} inputs takes (..., {inputs}), got {shape}.")
        started = begin("linear", self, weight)
        bound, (x, used) = started.bound, started.operands
        x_input, w_input, g_input = bound.inputs[0], bound.input(1, used.current_format), bound.place.gradient
        rows, w = x.numbers.reshape(math.prod(shape[:-1]), inputs), used.numbers if part is None else used.numbers[part]
        arithmetic = started.forward
        product = arithmetic.matmul(rows, w.T, x_input, w_input)

        def by_input(u: Arithmetic, g: NDArray) -> NDArray:
            return u.matmul(g.reshape(product.shape), w, g_input, w_input).reshape(shape)

        def by_weight(u: Arithmetic, g: NDArray) -> NDArray:
            gradient = u.matmul(g.reshape(product.shape).T, rows, g_input, x_input)
            return gradient if part is None else _among_zeros(gradient, w_shape, part)

        result = product.reshape(*shape[:-1], len(w))
        format = arithmetic.target.format
        return self.from_result(finish(started, result, format, by_input, by_weight, reads="other"))

    def add_bias(self, bias: Operand, axis: int = -1, part: slice | None = None) -> Result:
        """Add `bias`, or a part of it, with one element for each position along `axis`: the second operation of a
        layer.

        It is an ordinary addition unless results are ``widest``; then the format of the product decides. Under
        automatic mixed precision, linear layers and convolutions of PyTorch add their bias in the format that they
        compute in. Its gradient has that format, or the format of the bias unless that is wider.
        """
        started = begin("add", self, bias)
        place, (product, used) = started.bound.place, started.operands
        numbers, shape = product.numbers, used.numbers.shape
        added = used.numbers if part is None else used.numbers[part]
        arithmetic = place.forward_in(product.stored_format) if place.is_widest else place.forward

        def to_product(u: Arithmetic, g: NDArray) -> NDArray:
            return u.round(g)

        def to_bias(u: Arithmetic, g: NDArray) -> NDArray:
            rows = g if axis == -1 else np.moveaxis(g, axis, -1)
            gradient = u.round(rows) if rows.shape == added.shape else sum_to_shape(u, rows, added.shape)
            return gradient if part is None else _among_zeros(gradient, shape, part)

        behind = [1] * (numbers.ndim - 1 - axis % numbers.ndim)
        total = arithmetic.apply("add", numbers, added.reshape(*added.shape, *behind))
        result = finish(started, total, arithmetic.target.format, to_product, to_bias)
        if result.node is None or not place.takes_formats:
            return self.from_result(result)
        format, bias_format = product.stored_format, used.stored_format
        formats = format, format if contains(bias_format, format) else bias_format
        return self.from_result(result._replace(node=result.node._replace(formats=formats)))


def _among_zeros(gradient: NDArray, shape: tuple[int, ...], part: slice) -> NDArray:
    """Return the gradient of a part of the first axis of an operand, with zeros for the rest."""
    full = np.zeros(shape, gradient.dtype, like=gradient)
    full[part] = gradient
    return full


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
        """Convolve images (N, C, H, W) with kernels (O, C / groups, h, w); the result is (N, O, rows, columns).

        Parameters:
            weight: the kernels.
            stride: the steps of the windows, an integer or a pair (rows, columns).
            padding: the zeros around each image, an integer, a pair, "valid" (none), or with a stride of 1 "same".
            dilation: the distance of kernel elements, an integer or a pair.
            groups: the number of groups of channels.

        Returns:
            A tensor.

        Raises:
            ValueError: if shapes or options do not fit.
        """
        weight = as_variable(weight)
        geometry = geometry_of(self.numbers, weight.numbers, stride, padding, dilation, groups)
        return self.from_result(_convolve(self, weight, ConvolutionFormula(geometry, self.shape[2:])))

    def conv1d(
        self, weight: Operand, stride: int = 1, padding: int | str = 0, dilation: int = 1, groups: int = 1
    ) -> Result:
        """Convolve sequences (N, C, L) with kernels (O, C / groups, k); the result is (N, O, positions).

        This is `conv2d` of images of one row. `stride`, `padding`, `dilation` and `groups` are as in `conv2d`, one
        integer each. Raises ValueError if shapes or options do not fit.
        """
        weight = as_variable(weight)
        _check_sequences("conv1d", "w (O, C / groups, k) with C and O multiples of groups", self, weight, groups)
        border = padding if isinstance(padding, str) else read_row_option("padding", padding, 0, 0)
        steps, gaps = read_row_option("stride", stride, 1, 1), read_row_option("dilation", dilation, 1, 1)
        images = as_images(self.numbers)
        geometry = geometry_of(images, as_images(weight.numbers), steps, border, gaps, groups)
        return self.from_result(_convolve(self, weight, ConvolutionFormula(geometry, images.shape[2:])))

    def conv3d(
        self,
        weight: Operand,
        stride: int | Triple = 1,
        padding: int | Triple | str = 0,
        dilation: int | Triple = 1,
        groups: int = 1,
    ) -> Result:
        """Convolve volumes (N, C, D, H, W) with kernels (O, C / groups, d, h, w).

        The result is (N, O, slices, rows, columns). Each sum runs over (input channel, kernel slice, kernel row, kernel
        column). In policies the operation is called `conv2d`.

        Parameters:
            weight: the kernels.
            stride: the steps of the windows, an integer or a triple (slices, rows, columns).
            padding: the zeros around each volume, an integer, a triple, "valid" (none), or with a stride of 1 "same".
            dilation: the distance of kernel elements, an integer or a triple.
            groups: the number of groups of channels.

        Returns:
            A tensor.

        Raises:
            ValueError: if shapes or options do not fit.
        """
        weight = as_variable(weight)
        geometry = geometry_of(self.numbers, weight.numbers, stride, padding, dilation, groups, axes=3)
        return self.from_result(_convolve(self, weight, ConvolutionFormula(geometry, self.shape[2:])))

    def conv_transpose2d(
        self,
        weight: Operand,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        output_padding: int | Pair = 0,
        groups: int = 1,
        dilation: int | Pair = 1,
    ) -> Result:
        """Apply the transposed convolution, the gradient of conv2d, to images (N, C, H, W).

        The result is (N, O, rows, columns) with (H - 1) * stride - 2 * padding + dilation * (h - 1) + output_padding
        + 1 rows; the number of columns follows the same formula.

        Parameters:
            weight: kernels (C, O / groups, h, w).
            stride, padding, dilation: those of the convolution, an integer or a pair (rows, columns).
            output_padding: additional rows and columns, less than the stride or the dilation.
            groups: the number of groups of channels.

        Returns:
            A tensor.

        Raises:
            ValueError: if shapes or options do not fit.
        """
        weight = as_variable(weight)
        options = stride, padding, output_padding, groups, dilation
        return self.from_result(_convolve(self, weight, _transposed_formula(self.shape, weight.shape, *options)))

    def conv_transpose1d(
        self,
        weight: Operand,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        groups: int = 1,
        dilation: int = 1,
    ) -> Result:
        """Apply the transposed convolution to sequences (N, C, L) with kernels (C, O / groups, k).

        This is `conv_transpose2d` of images of one row, with one integer for each option. The result has (L - 1) *
        stride - 2 * padding + dilation * (k - 1) + output_padding + 1 positions. Raises ValueError in the same cases.
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
        contraction = _transposed_formula(x_shape, w_shape, *options, more, groups, gaps)
        return self.from_result(_convolve(self, weight, contraction))

    def conv_transpose3d(
        self,
        weight: Operand,
        stride: int | Triple = 1,
        padding: int | Triple = 0,
        output_padding: int | Triple = 0,
        groups: int = 1,
        dilation: int | Triple = 1,
    ) -> Result:
        """Apply the transposed convolution, the gradient of conv3d, to volumes (N, C, D, H, W).

        The result is (N, O, slices, rows, columns) with (D - 1) * stride - 2 * padding + dilation * (d - 1) +
        output_padding + 1 slices; the numbers of rows and columns follow the same formula. In policies the operation is
        called `conv_transpose2d`.

        Parameters:
            weight: kernels (C, O / groups, d, h, w).
            stride, padding, dilation: those of the convolution, an integer or a triple (slices, rows, columns).
            output_padding: additional slices, rows and columns, less than the stride or the dilation.
            groups: the number of groups of channels.

        Returns:
            A tensor.

        Raises:
            ValueError: if shapes or options do not fit.
        """
        weight = as_variable(weight)
        options = stride, padding, output_padding, groups, dilation
        return self.from_result(
            _convolve(self, weight, _transposed_formula(self.shape, weight.shape, *options, axes=3))
        )


def _check_sequences(name: str, kernels: str, x: Variable, weight: Variable, groups: Any) -> None:
    """Raise ValueError unless both have three axes, and the channels of kernels and sequences agree."""
    fits = x.ndim == weight.ndim == 3
    if fits and is_integer(groups, 1):  # an invalid number of groups is an error in the geometry
        first, second = weight.shape[:2]
        channels = first if name == "conv_transpose1d" else second * groups
        fits = x.shape[1] == channels and first % groups == 0
    if not fits:
        raise ValueError(
            f"{name} needs x (N, C, L) and {kernels}, got shapes {x.shape} and {weight.shape} with groups={groups!r}."
        )


def _convolve(x: Variable, weight: Variable, contraction: ConvolutionFormula) -> OperationResult:
    """Carry out a convolution or a transposed convolution, whose names do not depend on the number of axes."""
    x_shape, w_shape = x.shape, weight.shape
    started = begin("conv_transpose2d" if contraction.is_transposed else "conv2d", x, weight)
    bound, (used, used_weight) = started.bound, started.operands
    x_input, w_input, g_input = bound.inputs[0], bound.input(1, used_weight.current_format), bound.place.gradient
    images, kernels, u = used.numbers, used_weight.numbers, started.forward
    result = contraction.result(u, images, kernels, (x_input, w_input))

    def by_input(u: Arithmetic, g: NDArray) -> NDArray:
        return contraction.to_x(u, g, kernels, x_shape, (g_input, w_input))

    def by_weight(u: Arithmetic, g: NDArray) -> NDArray:
        return contraction.to_kernels(u, g, images, w_shape, (g_input, x_input))

    return finish(started, result, u.format, by_input, by_weight, reads="other")


def _transposed_formula(
    x: Sequence[int],
    weight: Sequence[int],
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
    axes: int = 2,
) -> ConvolutionFormula:
    """Return the transposed convolution for the options of a user and these shapes; ValueError if they do not fit."""
    if len(x) != axes + 2 or len(weight) != axes + 2 or x[1] != weight[0] or 0 in weight[2:]:
        raise ValueError(
            f"conv_transpose{axes}d needs {SHAPES[axes][0]} and weight {TRANSPOSED_KERNELS[axes]}, got shapes "
            f"{tuple(x)} and {tuple(weight)}."
        )
    if not is_integer(groups, 1) or weight[0] % groups:
        raise ValueError(f"groups must be a positive integer that divides the {weight[0]} channels, got {groups!r}.")
    steps, border = read_sizes("stride", stride, 1, axes), read_sizes("padding", padding, 0, axes)
    gaps, more = read_sizes("dilation", dilation, 1, axes), read_sizes("output_padding", output_padding, 0, axes)
    if any(extra >= max(step, gap) for extra, step, gap in zip(more, steps, gaps, strict=True)):
        raise ValueError(f"output_padding must be smaller than the stride {steps} or the dilation {gaps}, got {more}.")
    window, places = tuple(weight[2:]), tuple(x[2:])
    geometry, size = transposed_geometry(places, window, steps, border, gaps, more, int(groups))
    if 0 in places or min(size) < 1:
        raise ValueError(
            f"x of shape {tuple(x)} with kernels {window}, stride {steps} and padding {border} would have "
            f"{_sizes_in_words(size)}; at least one of each is needed."
        )
    return ConvolutionFormula(geometry, size, is_transposed=True)


#: The shapes of the kernels of a transposed convolution, by the number of axes of an image or a volume.
TRANSPOSED_KERNELS = {2: "(C, O / groups, h, w)", 3: "(C, O / groups, d, h, w)"}


def _sizes_in_words(size: Sequence[int]) -> str:
    """Return the size of an image or a volume as text."""
    slices = "".join(f"{depth} slices, " for depth in size[:-2])
    return f"{slices}{size[-2]} rows and {size[-1]} columns"


@in_usual_environment
class ConstantProducts(Operations[Result]):
    """The products of a tensor with constants."""

    def times_factors(self, factors: NDArray) -> Result:
        """Multiply each element by its factor, an array of the same shape; ``widest`` means the format of the tensor.

        As in PyTorch, dropout returns the type of its input, whatever the probability.
        """
        started = begin("multiply", self)
        arithmetic = started.forward
        product = arithmetic.multiply(started.operands[0].numbers, factors)
        return self.from_result(finish(started, product, arithmetic.format, lambda u, g: u.multiply(g, factors)))

    def scaled(self, factor: float) -> Result:
        """Multiply a loss by its scale, rounded to nearest even in FP32 or a wider format of the loss, under any
        policy.

        The derivative is the factor, whatever format the policy gives to gradients. The observer receives the events
        as ``scale``.
        """
        started, by = begin("scale", self), np.array(factor)
        used = started.operands[0]
        format = widest_format((FP32, used.stored_format))
        unobserved = Target(format, nearest_even, carrier_of(format), operation="scale")
        observed = unobserved._replace(observer=started.bound.place.forward_in(format).target.observer)

        def derivative(_: Arithmetic, g: NDArray) -> NDArray:
            return compute_with_draw("multiply", [g, by], unobserved, None)

        product = compute_with_draw("multiply", [used.numbers, by], observed, None)
        return self.from_result(finish(started, product, format, derivative))


def moving_average(name: str, old: Operand, new: Operand, factor: float) -> NDArray[np.floating]:
    """Return (1 - factor) * old + factor * new as an array: two products and a sum, each rounded to `activations`.

    This is used for the statistics of batch norm. `name` is the operation of the catalog that stores the average.
    """
    started = begin(name, old, new)
    (before, now), arithmetic = started.operands, started.forward
    return norms.moving_average(arithmetic, before.numbers, now.numbers, factor)
