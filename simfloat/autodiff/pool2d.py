"""Pooling of images: one number for every window, each with its derivative beside it.

Where windows overlap, a pixel's gradient is a sum through the policy's `reduce`, over the windows in row-major order;
windows that give the pixel nothing count as +0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.geometry import Geometry, Pair, read_pair
from simfloat.arithmetic.arrays import image_of
from simfloat.arithmetic.machines import on_device_of
from simfloat.autodiff.record import Operations, Result, begin, finish
from simfloat.autodiff.variable import Variable
from simfloat.checks import check_flags, is_integer
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.windows import WindowAxis, spread_gradient


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
        """The largest of every window of images (N, C, H, W); its gradient goes to the first pixel that is as large.

        Places in the padding are not among them. A window with NaN gives NaN. Options are those of torch.nn.MaxPool2d.
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
        """The sum of every window of images (N, C, H, W), over (row, column), divided by the number of its pixels.

        Two roundings, as of a mean. Places in the padding are +0 in the sum, and count unless `count_include_pad` is
        False; `divisor_override` is what all sums are divided by instead. Options are those of torch.nn.AvgPool2d.
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
    """Raise ValueError for what sums cannot be divided by."""
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
    """Where windows lie on images; with `ceil_mode` a last one may leave them, if it begins inside."""
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
        raise ValueError(f"Windows of {spans[0]} x {spans[1]} find no room in x of shape {x.shape}, padding {border}.")
    ends = [
        max((count - 1) * step + span - size - width, 0)
        for count, step, span, size, width in zip(sizes, steps, spans, x.shape[2:], border, strict=True)
    ]
    return Geometry(window, steps, border, (ends[0], ends[1]), gaps, 1, (sizes[0], sizes[1]))


def _first_largest(x: NDArray, geometry: Geometry) -> tuple[NDArray, NDArray[np.int32]]:
    """The largest number of every window, and the number of the first place that holds it."""
    windows = geometry.windows(geometry.pad_images(x, x.dtype, -math.inf))
    has_nan = bool(np.isnan(x).any())
    largest = np.full_like(x, -np.inf, order="C", shape=(*x.shape[:2], *geometry.result))
    # Until something is larger, the first place on the image: it has the gradient where all pixels are -inf.
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
        # Images times 0 or 1: to choose by np.where or a mask takes a branch for every element, seven times as long.
        image, other = image_of(largest), image_of(there)
        image ^= (image ^ other) * larger
        first += (k - first) * larger
    return largest, first


def _counts(geometry: Geometry, size: Pair, with_padding: bool) -> NDArray[np.float64]:
    """How many places of every window count: those in the padding too or not, never those beyond it."""
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
    """The gradient of images, from what windows give to the pixels at each of their places."""
    sides = map(WindowAxis, geometry.window, geometry.stride, geometry.before, geometry.dilation, geometry.result)
    return spread_gradient(u, shares, g, list(sides), shape)
