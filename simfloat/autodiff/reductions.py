"""Sums, means, maxima and pooling, each with its derivative. Sums use the accumulator `reduce` of the policy.

Pooling computes one value for every window of an image. If windows overlap, the gradient of a pixel is a sum with the
accumulator `reduce` of the policy, over the windows in row-major order; windows that do not contribute to the pixel
count as +0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_device_of
from simfloat.arithmetic.spacing import place_of_largest, place_of_least
from simfloat.autodiff.record import OperationResult, Operations, Result, begin, finish
from simfloat.autodiff.variable import Variable
from simfloat.common import check_flags, is_integer
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas import keepdims_shape, number, pooling
from simfloat.simulation.inside import WindowAxis
from simfloat.sums.geometry import Pair, Triple, by, read_sizes

Axes = int | Sequence[int] | None


@in_usual_environment
class Reductions(Operations[Result]):
    """The reductions of a tensor, over all axes by default."""

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """Sum over `axis` in row-major order with the accumulator `reduce` of the policy.

        `axis` is an integer, a tuple, or None for all axes; `keepdims=True` keeps the reduced axes with size 1.
        """
        check_flags(keepdims=keepdims)
        started = begin("sum", self)
        axes, shape, u = normalized_axes(axis, self.ndim), self.shape, started.forward
        total = u.sum(started.operands[0].numbers, axes)
        result = total.reshape(keepdims_shape(shape, axes)) if keepdims else total
        return self.from_result(finish(started, result, u.format, lambda u, g: _spread(u.round(g), shape, axes)))

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """Return the sum over `axis` divided by the number of terms, with two roundings; arguments as in `sum`."""
        check_flags(keepdims=keepdims)
        started = begin("mean", self)
        axes, shape, u = normalized_axes(axis, self.ndim), self.shape, started.forward
        count = np.array(float(math.prod(shape[i] for i in axes)))
        average = u.divide(u.sum(started.operands[0].numbers, axes), count)
        result = average.reshape(keepdims_shape(shape, axes)) if keepdims else average
        return self.from_result(
            finish(started, result, u.format, lambda u, g: _spread(u.divide(g, count), shape, axes))
        )

    def max(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """Return the largest element along `axis`; the gradient goes to the first such element. Arguments as in
        `sum`.
        """
        return self._extreme("max", axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """Return the smallest element along `axis`; the gradient goes to the first such element. Arguments as in
        `sum`.
        """
        return self._extreme("min", axis, keepdims)

    def _extreme(self, operation: str, axis: Axes, keepdims: bool) -> Result:
        check_flags(keepdims=keepdims)
        started = begin(operation, self)
        axes, shape = normalized_axes(axis, self.ndim), self.shape
        last = range(-len(axes), 0)
        moved = np.moveaxis(started.operands[0].numbers, axes, last)
        rows = moved.reshape(*moved.shape[: len(shape) - len(axes)], math.prod(shape[i] for i in axes))
        if not rows.shape[-1]:
            raise ValueError(
                f"{operation} needs at least one element along axis {axis!r} of a tensor of shape {shape}."
            )
        first = (place_of_largest if operation == "max" else place_of_least)(rows, -1)[..., np.newaxis]

        def derivative(u: Arithmetic, g: NDArray) -> NDArray:
            full = np.zeros(rows.shape, g.dtype, like=g)
            np.put_along_axis(full, first, g.reshape(first.shape), -1)
            return u.round(np.moveaxis(full.reshape(moved.shape), last, axes))

        u = started.forward
        extreme = u.round(np.take_along_axis(rows, first, -1)[..., 0])
        result = extreme.reshape(keepdims_shape(shape, axes)) if keepdims else extreme
        return self.from_result(finish(started, result, u.format, derivative))


def normalized_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """Return axes as ascending non-negative numbers; all of them for None.

    Raises ValueError for an axis that does not exist or occurs twice.
    """
    if axis is None:
        return tuple(range(ndim))
    axis_numbers: Sequence[Any] = axis if isinstance(axis, tuple | list) else (axis,)
    axes = sorted({int(a) % ndim for a in axis_numbers if is_integer(a, -ndim, ndim - 1)})
    if len(axes) < len(axis_numbers):
        raise ValueError(f"axis {axis!r} does not name distinct axes of a tensor that has {ndim}.")
    return tuple(axes)


def _spread(g: NDArray, shape: tuple[int, ...], axes: tuple[int, ...]) -> NDArray:
    """Repeat the gradient of a reduction for every element that was reduced."""
    return np.broadcast_to(g.reshape(keepdims_shape(shape, axes)), shape)


@in_usual_environment
class Pooling(Operations[Result]):
    """Pooling of a tensor of images or volumes."""

    def max_pool2d(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        ceil_mode: bool = False,
    ) -> Result:
        """Return the largest element of every window of images (N, C, H, W).

        The gradient goes to the first pixel with this value. Padding is not part of a window. A window with NaN has
        the result NaN. The arguments are named as in torch.nn.MaxPool2d.

        Parameters:
            kernel_size: the size of the windows, an integer or a pair (rows, columns).
            stride: the steps of the windows; by default their size.
            padding: the border around each image, at most half of the windows.
            dilation: the distance of the pixels of a window.
            ceil_mode: True also includes a last window that starts inside and ends outside of the image.

        Returns:
            A tensor (N, C, rows, columns).

        Raises:
            ValueError: if the tensor or an argument does not fit.
        """
        options = kernel_size, stride, padding, dilation, ceil_mode
        return self.from_result(_largest(self, 2, *options))

    def avg_pool2d(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Result:
        """Return the mean of every window of images (N, C, H, W): the sum over (row, column), divided by the number
        of pixels.

        There are two roundings, as in a mean. Padding counts as +0 in the sum. The arguments are named as in
        torch.nn.AvgPool2d.

        Parameters:
            kernel_size: the size of the windows, an integer or a pair (rows, columns).
            stride: the steps of the windows; by default their size.
            padding: the border around each image, at most half of the windows.
            ceil_mode: True also includes a last window that starts inside and ends outside of the image.
            count_include_pad: False excludes the padding from the number of pixels.
            divisor_override: an integer that replaces the number of pixels; None for none.

        Returns:
            A tensor (N, C, rows, columns).

        Raises:
            ValueError: if the tensor or an argument does not fit.
        """
        options = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        return self.from_result(_average(self, 2, *options))

    def max_pool3d(
        self,
        kernel_size: int | Triple,
        stride: int | Triple | None = None,
        padding: int | Triple = 0,
        dilation: int | Triple = 1,
        ceil_mode: bool = False,
    ) -> Result:
        """Return the largest element of every window of volumes (N, C, D, H, W), as `max_pool2d` does for images.

        In policies the operation is called `max_pool2d`.

        Parameters:
            kernel_size: the size of the windows, an integer or a triple (slices, rows, columns).
            stride: the steps of the windows; by default their size.
            padding: the border around each volume, at most half of the windows.
            dilation: the distance of the elements of a window.
            ceil_mode: True also includes a last window that starts inside and ends outside of the volume.

        Returns:
            A tensor (N, C, slices, rows, columns).

        Raises:
            ValueError: if the tensor or an argument does not fit.
        """
        options = kernel_size, stride, padding, dilation, ceil_mode
        return self.from_result(_largest(self, 3, *options))

    def avg_pool3d(
        self,
        kernel_size: int | Triple,
        stride: int | Triple | None = None,
        padding: int | Triple = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Result:
        """Return the mean of every window of volumes (N, C, D, H, W), as `avg_pool2d` does for images.

        In policies the operation is called `avg_pool2d`.

        Parameters:
            kernel_size: the size of the windows, an integer or a triple (slices, rows, columns).
            stride: the steps of the windows; by default their size.
            padding: the border around each volume, at most half of the windows.
            ceil_mode: True also includes a last window that starts inside and ends outside of the volume.
            count_include_pad: False excludes the padding from the number of elements.
            divisor_override: an integer that replaces the number of elements; None for none.

        Returns:
            A tensor (N, C, slices, rows, columns).

        Raises:
            ValueError: if the tensor or an argument does not fit.
        """
        options = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        return self.from_result(_average(self, 3, *options))


def _largest(
    x: Variable, axes: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> OperationResult:
    """Carry out max pooling along the last axes."""
    check_flags(ceil_mode=ceil_mode)
    sides = _sides_of("max", x, axes, kernel_size, stride, padding, dilation, ceil_mode)
    started, shape = begin("max_pool2d", x), x.shape
    values, first = pooling.largest(started.operands[0].numbers, sides)
    u = started.forward
    return finish(started, u.round(values), u.format, lambda u, g: pooling.largest_slope(u, g, first, sides, shape))


def _average(
    x: Variable, axes: int, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, with_padding: bool,
    divisor_override: int | None,
) -> OperationResult:  # fmt: skip
    """Carry out average pooling along the last axes."""
    check_flags(ceil_mode=ceil_mode, count_include_pad=with_padding)
    sides = _sides_of("avg", x, axes, kernel_size, stride, padding, 1, ceil_mode)
    check_divisor(divisor_override)
    started, shape = begin("avg_pool2d", x), x.shape
    images, u = started.operands[0].numbers, started.forward
    divisor = number(divisor_override) if divisor_override is not None else _divisor(sides, images, with_padding)
    return finish(
        started,
        pooling.average(u, images, sides, divisor),
        u.format,
        lambda u, g: pooling.average_slope(u, g, divisor, sides, shape),
    )


def _divisor(sides: Sequence[WindowAxis], x: NDArray, with_padding: bool) -> NDArray[np.float64]:
    """Return the number of positions that count: for every window, or one number if all are equal."""
    counts = pooling.divisors(sides, x.shape[-len(sides) :], with_padding=with_padding)
    first = counts.reshape(-1)[0]
    return on_device_of(counts if (counts != first).any() else first, x)


def adaptive_average(x: Variable, counts: Sequence[int]) -> OperationResult:
    """Return `counts` averages of adaptive windows along the last axes; see `simulation.formulas.pooling`."""
    started, shape = begin("avg_pool2d", x), x.shape
    u = started.forward
    result = pooling.adaptive_average(u, started.operands[0].numbers, counts)
    return finish(started, result, u.format, lambda u, g: pooling.adaptive_average_slope(u, g, shape, len(counts)))


def adaptive_largest(x: Variable, counts: Sequence[int]) -> OperationResult:
    """Return the largest elements of `counts` adaptive windows along the last axes."""
    started, shape = begin("max_pool2d", x), x.shape
    values, places = pooling.adaptive_largest(started.operands[0].numbers, counts)
    u = started.forward
    return finish(started, u.round(values), u.format, lambda u, g: pooling.adaptive_largest_slope(u, g, places, shape))


def check_divisor(divisor_override: Any) -> None:
    """Raise ValueError if `divisor_override` is not None or a positive integer."""
    if divisor_override is not None and not is_integer(divisor_override, 1):
        raise ValueError(f"divisor_override must be None or an integer from 1, got {divisor_override!r}.")


def _sides_of(
    kind: str, x: Variable, axes: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> list[WindowAxis]:
    """Return the windows along the last axes; with `ceil_mode`, a last window that starts inside may end outside."""
    if x.ndim != axes + 2:
        needed = "images (N, C, H, W)" if axes == 2 else "volumes (N, C, D, H, W)"
        raise ValueError(f"{kind}_pool{axes}d needs {needed}, got shape {x.shape}.")
    window = read_sizes("kernel_size", kernel_size, 1, axes)
    steps = window if stride is None else read_sizes("stride", stride, 1, axes)
    border, gaps = read_sizes("padding", padding, 0, axes), read_sizes("dilation", dilation, 1, axes)
    spans = [gap * (places - 1) + 1 for gap, places in zip(gaps, window, strict=True)]
    if any(2 * width > span for width, span in zip(border, spans, strict=True)):
        raise ValueError(f"padding must be at most half of the windows, {by(spans)}; got {border}.")
    counts: list[int] = []
    for size, step, width, span in zip(x.shape[2:], steps, border, spans, strict=True):
        room = size + 2 * width - span
        count = (-(-room // step) if ceil_mode else room // step) + 1
        counts.append(count - 1 if ceil_mode and (count - 1) * step >= size + width else count)
    if min(counts) < 1:
        raise ValueError(f"Windows of {by(spans)} do not fit into x of shape {x.shape}, padding {border}.")
    return list(map(WindowAxis, window, steps, border, gaps, counts))
