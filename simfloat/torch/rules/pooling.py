"""Rules of average pooling of sequences, images and volumes: a sum by `reduce` and a quotient; and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.simulation.inside import WindowAxis
from simfloat.torch.handlers import Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensors import numbers_of

Sizes = Sequence[int]


class Windows(NamedTuple):
    """Windows along one axis of images: the pixels of each (count, width), and the divisor of each.

    Positions outside of the image, or beyond a short window, have the index after the last pixel.
    """

    pixels: NDArray[np.integer]
    counts: NDArray[np.integer]


def strided_windows(size: int, side: WindowAxis, *, with_padding: bool) -> Windows:
    """Return windows with a constant step; the first one begins in the border, and positions beyond it never count."""
    start = side.step * np.arange(side.number) - side.border
    pixels = start[:, np.newaxis] + np.arange(side.places)
    low, high = (-side.border, size + side.border) if with_padding else (0, size)
    counts = np.minimum(start + side.places, high) - np.maximum(start, low)
    return Windows(np.where((pixels < 0) | (pixels >= size), size, pixels), counts)


def sides_of(
    axes: int, result: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes = (1,)
) -> list[WindowAxis]:
    """Return the windows along the last axes of images, as many as `result` has; one option may apply to all axes."""
    per_axis = (list(s) * (axes // len(s)) for s in (kernel, stride or kernel, padding, dilation))
    return [WindowAxis(*side) for side in zip(*per_axis, result.shape[-axes:], strict=True)]


def adaptive_windows(size: int, count: int) -> Windows:
    """Return `count` windows: number i goes from floor(i * size / count) to before ceil((i + 1) * size / count)."""
    start = np.arange(count) * size // count
    counts = -(-(np.arange(count) + 1) * size // count) - start
    pixels = start[:, np.newaxis] + np.arange(counts.max(initial=0))
    return Windows(np.where(pixels >= (start + counts)[:, np.newaxis], size, pixels), counts)


def averages(call: RuleCall, x: torch.Tensor, sides: Sequence[Windows], divisor: float | None = None) -> torch.Tensor:
    """Return the sum of every window, row by row, divided by its divisor; positions outside of the image are +0."""
    axes = len(sides)
    # One row and column of zeros after the image serve all positions outside of it, so windows need only one indexing.
    padded = np.pad(numbers_of(x), [(0, 0)] * (x.ndim - axes) + [(0, 1)] * axes)
    windows: NDArray = padded[(Ellipsis, *grids(sides))]  # type: ignore[arg-type]
    call.begin()
    total = call.sum(windows, tuple(range(windows.ndim - axes, windows.ndim)))
    return call.tensor(call.divide(total, shares(sides, divisor)))


def averages_backward(call: RuleCall, g: torch.Tensor, x: torch.Tensor, sides: Sequence[Windows]) -> torch.Tensor:
    """Return the gradient of images: the gradient of each window, divided, is added to its pixels in window order."""
    axes = len(sides)
    sizes, places = x.shape[-axes:], g.shape[-axes:]
    call.begin()
    # Channels are last: the pixels of a window are rows of channels, which are added as a whole.
    share = np.moveaxis(call.divide(numbers_of(g), shares(sides, None)).reshape(-1, *places), 0, -1)
    at = np.broadcast_arrays(*grids(sides))
    there = np.logical_and.reduce([place < size for place, size in zip(at, sizes, strict=True)])
    contributions = np.broadcast_to(share.reshape(*places, *[1] * axes, -1), (*there.shape, share.shape[-1]))[there]
    pixels = np.ravel_multi_index([place[there] for place in at], sizes)
    total = call.added_rows(contributions, pixels, (math.prod(sizes), share.shape[-1]))
    return call.tensor(np.ascontiguousarray(total.T).reshape(x.shape))


def grids(sides: Sequence[Windows]) -> list[NDArray[np.integer]]:
    """Return the pixels of windows along each axis, for broadcasting: first over the windows, then inside each."""
    axes, indices = len(sides), []
    for number, (pixels, _) in enumerate(sides):
        shape = [1] * (2 * axes)
        shape[number], shape[axes + number] = pixels.shape
        indices.append(pixels.reshape(shape))
    return indices


def shares(sides: Sequence[Windows], divisor: float | None) -> NDArray[np.float64]:
    """Return the divisor of the sum of every window."""
    if divisor is not None:
        return np.array(float(divisor))
    return np.asarray(reduce(np.multiply.outer, [side.counts for side in sides]), np.float64)


class Average:
    """Average pooling along `axes` axes: windows with a constant step, or a given number of windows."""

    def __init__(self, axes: int) -> None:
        self.axes = axes
        self.pool: Callable[..., torch.Tensor] = getattr(torch.ops.aten, f"avg_pool{axes}d")

    def sides(
        self, x: torch.Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), ceil_mode: bool = False,
        with_padding: bool = True, divisor: int | None = None,
    ) -> list[WindowAxis]:  # fmt: skip
        """Return the geometry of windows along each axis, for an average with these options."""
        result = self.pool(x, kernel, stride, padding, ceil_mode, with_padding, divisor)
        return sides_of(self.axes, result, kernel, stride, padding)

    def windows(self, x: torch.Tensor, *options: Any) -> list[Windows]:
        """Return the windows along each axis, for an average with these options."""
        with_padding = options[4] if len(options) > 4 else True
        sides = zip(x.shape[-self.axes :], self.sides(x, *options), strict=True)
        return [strided_windows(size, side, with_padding=with_padding) for size, side in sides]

    def avg_pool(self, call: RuleCall, x: torch.Tensor, *options: Any) -> torch.Tensor:
        """Return averages of windows with a constant step."""
        return averages(call, x, self.windows(x, *options), options[5] if len(options) > 5 else None)

    def avg_pool_backward(self, call: RuleCall, g: torch.Tensor, x: torch.Tensor, *options: Any) -> torch.Tensor:
        """Return the gradient of images: the gradient of each window, divided, is added to its pixels."""
        sides = self.sides(x, *options)
        call.begin()
        share = call.divide(numbers_of(g), shares(self.windows(x, *options), options[5]))
        return call.tensor(call.spread([share] * math.prod(side.places for side in sides), share, sides, x.shape))

    def adaptive_avg_pool(self, call: RuleCall, x: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        """Return a given number of averages."""
        return averages(call, x, list(map(adaptive_windows, x.shape[-self.axes :], sizes)))

    def adaptive_avg_pool_backward(self, call: RuleCall, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the gradient of images."""
        return averages_backward(call, g, x, list(map(adaptive_windows, x.shape[-self.axes :], g.shape[-self.axes :])))


#: Rules, by PyTorch's name.
TABLE: dict[str, Rule] = {
    name: Rule("avg_pool2d", rule)
    for axes, pool in ((2, Average(2)), (3, Average(3)))
    for name, rule in (
        (f"avg_pool{axes}d", pool.avg_pool),
        (f"avg_pool{axes}d_backward", pool.avg_pool_backward),
        (f"_adaptive_avg_pool{axes}d", pool.adaptive_avg_pool),
        (f"_adaptive_avg_pool{axes}d_backward", pool.adaptive_avg_pool_backward),
    )
}
