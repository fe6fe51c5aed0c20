"""Averages of windows of images, forward and backward: a sum through `reduce`, and a quotient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.simulation import added_rows
from simfloat.torch.call import Call
from simfloat.torch.handlers import Ruled
from simfloat.torch.numbers import numbers_of

Sizes = Sequence[int]


class Windows(NamedTuple):
    """Windows along one side of images: the pixels of each (count, width), and for how many it counts.

    Places off the image, or beyond a short window, have the number that follows the last pixel's.
    """

    pixels: NDArray[np.integer]
    counts: NDArray[np.integer]


def strided(size: int, count: int, window: int, step: int, border: int, *, with_padding: bool) -> Windows:
    """`count` windows a step apart, the first of which begins in the border; what lies beyond it never counts."""
    start = step * np.arange(count) - border
    pixels = start[:, np.newaxis] + np.arange(window)
    low, high = (-border, size + border) if with_padding else (0, size)
    counts = np.minimum(start + window, high) - np.maximum(start, low)
    return Windows(np.where((pixels < 0) | (pixels >= size), size, pixels), counts)


def adaptive(size: int, count: int) -> Windows:
    """As many windows as asked for: number i from floor(i * size / count) to before ceil((i + 1) * size / count)."""
    start = np.arange(count) * size // count
    counts = -(-(np.arange(count) + 1) * size // count) - start
    pixels = start[:, np.newaxis] + np.arange(counts.max(initial=0))
    return Windows(np.where(pixels >= (start + counts)[:, np.newaxis], size, pixels), counts)


def averages(call: Call, x: torch.Tensor, down: Windows, right: Windows, divisor: float | None = None) -> torch.Tensor:
    """The sum of every window, row by row, divided by how much it counts for; places off the image are +0."""
    padded = np.pad(numbers_of(x), [(0, 0)] * (x.ndim - 2) + [(0, 1), (0, 1)])
    windows = padded[..., down.pixels[:, np.newaxis, :, np.newaxis], right.pixels[np.newaxis, :, np.newaxis, :]]
    call.begin(windows.shape[:-2])
    total = call.sum(windows, (windows.ndim - 2, windows.ndim - 1))
    return call.tensor(call.divide(total, shares(down, right, divisor)))


def averages_backward(
    call: Call, g: torch.Tensor, x: torch.Tensor, down: Windows, right: Windows, divisor: float | None = None
) -> torch.Tensor:
    """The gradient of images: each window's, divided, to all of its pixels; in the order of the windows."""
    rows, columns = x.shape[-2:]
    call.begin(x.shape)
    share = call.divide(numbers_of(g), shares(down, right, divisor)).reshape(-1, *g.shape[-2:]).transpose(1, 2, 0)
    at_row, at_column = down.pixels[:, np.newaxis, :, np.newaxis], right.pixels[np.newaxis, :, np.newaxis, :]
    there = (at_row < rows) & (at_column < columns)
    given = np.broadcast_to(share[:, :, np.newaxis, np.newaxis], (*there.shape, share.shape[-1]))[there]
    size = (rows * columns, math.prod(x.shape[:-2]))
    total = added_rows(call.arithmetic, given, (at_row * columns + at_column)[there], size)
    return call.tensor(np.ascontiguousarray(total.T).reshape(x.shape))


def shares(down: Windows, right: Windows, divisor: float | None) -> NDArray[np.float64]:
    """What the sum of every window is divided by."""
    return np.outer(down.counts, right.counts).astype(np.float64) if divisor is None else np.array(float(divisor))


def windows_of(
    x: torch.Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), ceil_mode: bool = False,
    with_padding: bool = True, divisor: int | None = None,
) -> tuple[Windows, Windows]:  # fmt: skip
    """The windows down and right, of an average with these options."""
    result = torch.ops.aten.avg_pool2d(x, kernel, stride, padding, ceil_mode, with_padding, divisor)
    spans, steps, borders = (list(sizes) * (2 // len(sizes)) for sizes in (kernel, stride or kernel, padding))
    sides = zip(x.shape[-2:], result.shape[-2:], spans, steps, borders, strict=True)
    down, right = (strided(*side, with_padding=with_padding) for side in sides)
    return down, right


def avg_pool2d(call: Call, x: torch.Tensor, *options: Any) -> torch.Tensor:
    """Averages of windows a stride apart."""
    return averages(call, x, *windows_of(x, *options), options[5] if len(options) > 5 else None)


def avg_pool2d_backward(call: Call, g: torch.Tensor, x: torch.Tensor, *options: Any) -> torch.Tensor:
    """The gradient of images."""
    return averages_backward(call, g, x, *windows_of(x, *options), options[5])


def adaptive_avg_pool2d(call: Call, x: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """As many averages as asked for."""
    down, right = map(adaptive, x.shape[-2:], sizes)
    return averages(call, x, down, right)


def adaptive_avg_pool2d_backward(call: Call, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient of images."""
    down, right = map(adaptive, x.shape[-2:], g.shape[-2:])
    return averages_backward(call, g, x, down, right)


#: By PyTorch's name.
TABLE: dict[str, Ruled] = {
    "avg_pool2d": Ruled("avg_pool2d", avg_pool2d),
    "avg_pool2d_backward": Ruled("avg_pool2d", avg_pool2d_backward),
    "_adaptive_avg_pool2d": Ruled("avg_pool2d", adaptive_avg_pool2d),
    "_adaptive_avg_pool2d_backward": Ruled("avg_pool2d", adaptive_avg_pool2d_backward),
}
