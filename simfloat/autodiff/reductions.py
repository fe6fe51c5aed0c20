"""Sums, means, maxima and pooling, each with its derivative. Sums use the accumulator `reduce` of the policy.

Pooling computes one value for every window of an image. If windows overlap, the gradient of a pixel is a sum with the
accumulator `reduce` of the policy, over the windows in row-major order; windows that do not contribute to the pixel
count as +0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_device_of
from simfloat.arithmetic.operands import image_of
from simfloat.arithmetic.spacing import place_of_largest, place_of_least
from simfloat.autodiff.record import Operations, Result, begin, finish
from simfloat.autodiff.variable import Variable
from simfloat.common import check_flags, is_integer
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas import keepdims_shape
from simfloat.simulation.inside import WindowAxis, spread_gradient
from simfloat.sums.geometry import Geometry, Pair, read_pair

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
    """Pooling of a tensor of images."""

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
        check_flags(ceil_mode=ceil_mode)
        geometry = _geometry_of("max_pool2d", self, kernel_size, stride, padding, dilation, ceil_mode)
        started, shape = begin("max_pool2d", self), self.shape
        largest, first = _first_largest(started.operands[0].numbers, geometry)
        arithmetic = started.forward

        def derivative(u: Arithmetic, g: NDArray) -> NDArray:
            image = image_of(np.ascontiguousarray(g, like=g))
            shares = ((image * (first == k)).view(g.dtype) for k in range(math.prod(geometry.window)))
            return _spread_over_windows(u, shares, g, geometry, shape)

        return self.from_result(finish(started, arithmetic.round(largest), arithmetic.format, derivative))

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
        check_flags(ceil_mode=ceil_mode, count_include_pad=count_include_pad)
        geometry = _geometry_of("avg_pool2d", self, kernel_size, stride, padding, 1, ceil_mode)
        check_divisor(divisor_override)
        started, shape = begin("avg_pool2d", self), self.shape
        x = started.operands[0].numbers
        counts = _counts(geometry, (shape[2], shape[3]), count_include_pad)
        divisor = on_device_of(counts, x) if divisor_override is None else np.array(float(divisor_override))
        windows = geometry.windows(geometry.pad_images(x, x.dtype)).transpose(2, 3, 0, 1, 4, 5)
        arithmetic = started.forward
        result = arithmetic.divide(arithmetic.sum(windows, (0, 1)), divisor)

        def derivative(u: Arithmetic, g: NDArray) -> NDArray:
            share = u.divide(g, divisor)
            if geometry.covers_images((shape[2], shape[3])):
                return u.round(share.repeat(geometry.window[0], 2).repeat(geometry.window[1], 3))
            return _spread_over_windows(u, [share] * math.prod(geometry.window), share, geometry, shape)

        return self.from_result(finish(started, result, arithmetic.format, derivative))


def check_divisor(divisor_override: Any) -> None:
    """Raise ValueError if `divisor_override` is not None or a positive integer."""
    if divisor_override is not None and not is_integer(divisor_override, 1):
        raise ValueError(f"divisor_override must be None or an integer from 1, got {divisor_override!r}.")


def _geometry_of(
    name: str,
    x: Variable,
    kernel_size: int | Pair,
    stride: int | Pair | None,
    padding: int | Pair,
    dilation: int | Pair,
    ceil_mode: bool,
) -> Geometry:
    """Return the geometry of windows on images; with `ceil_mode`, a last window that starts inside may end outside."""
    if x.ndim != 4:
        raise ValueError(f"{name} needs images (N, C, H, W), got shape {x.shape}.")
    window = read_pair("kernel_size", kernel_size, 1)
    steps = window if stride is None else read_pair("stride", stride, 1)
    border, gaps = read_pair("padding", padding, 0), read_pair("dilation", dilation, 1)
    spans = [gap * (places - 1) + 1 for gap, places in zip(gaps, window, strict=True)]
    if any(2 * width > span for width, span in zip(border, spans, strict=True)):
        raise ValueError(f"padding must be at most half of the windows, {spans[0]} x {spans[1]}; got {border}.")
    sizes: list[int] = []
    for size, step, width, span in zip(x.shape[2:], steps, border, spans, strict=True):
        room = size + 2 * width - span
        count = (-(-room // step) if ceil_mode else room // step) + 1
        sizes.append(count - 1 if ceil_mode and (count - 1) * step >= size + width else count)
    if min(sizes) < 1:
        raise ValueError(f"Windows of {spans[0]} x {spans[1]} do not fit into x of shape {x.shape}, padding {border}.")
    ends = [
        max((count - 1) * step + span - size - width, 0)
        for count, step, span, size, width in zip(sizes, steps, spans, x.shape[2:], border, strict=True)
    ]
    return Geometry(window, steps, border, (ends[0], ends[1]), gaps, 1, (sizes[0], sizes[1]))


def _first_largest(x: NDArray, geometry: Geometry) -> tuple[NDArray, NDArray[np.int32]]:
    """Return the largest element of every window, and the number of its first position in the window."""
    windows = geometry.windows(geometry.pad_images(x, x.dtype, -math.inf))
    has_nan = bool(np.isnan(x).any())
    largest = np.full_like(x, -np.inf, order="C", shape=(*x.shape[:2], *geometry.result))
    # Start with the first position on the image: it gets the gradient if all pixels are -inf.
    down, right = (
        np.maximum(-(-(border - step * np.arange(count)) // gap), 0)
        for border, step, count, gap in zip(
            geometry.before, geometry.stride, geometry.result, geometry.dilation, strict=True
        )
    )
    first = np.empty(largest.shape, np.int32, like=x)
    first[...] = on_device_of(down[:, np.newaxis] * geometry.window[1] + right, x)
    for k, (row, column) in enumerate(product(*map(range, geometry.window))):
        there = np.ascontiguousarray(windows[:, :, row, column], like=x)
        larger = there > largest
        if has_nan:
            larger |= np.isnan(there) & ~np.isnan(largest)
        # Multiply bit patterns by 0 or 1: np.where or a mask takes a branch for every element, which is seven times
        # as slow.
        image, other = image_of(largest), image_of(there)
        image ^= (image ^ other) * larger
        first += (k - first) * larger
    return largest, first


def _counts(geometry: Geometry, size: Pair, with_padding: bool) -> NDArray[np.float64]:
    """Return the number of positions of every window that count: with or without padding, never beyond it."""
    along = []
    for places, step, width, count, pixels in zip(
        geometry.window, geometry.stride, geometry.before, geometry.result, size, strict=True
    ):
        start = step * np.arange(count) - width
        end = np.minimum(start + places, pixels + width)
        if not with_padding:
            start, end = np.maximum(start, 0), np.minimum(end, pixels)
        along.append((end - start).astype(np.float64))
    counts = np.outer(*along)
    return counts if (counts != counts[0, 0]).any() else counts[0, 0]


def _spread_over_windows(
    u: Arithmetic, shares: Iterable[NDArray], g: NDArray, geometry: Geometry, shape: tuple[int, ...]
) -> NDArray:
    """Return the gradient of images, from the shares that windows give to the pixel at each of their positions."""
    sides = map(WindowAxis, geometry.window, geometry.stride, geometry.before, geometry.dilation, geometry.result)
    return spread_gradient(u, shares, g, list(sides), shape)
