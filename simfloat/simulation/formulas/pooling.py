"""Pooling of sequences, images and volumes: the average or the largest element of every window, and its gradients.

`u` is the arithmetic of the place. Windows with a constant step have a `WindowAxis` for each of the last axes of an
array. If they overlap, `spread_gradient` adds their gradients. Adaptive windows have irregular steps and sizes, so
their gradients are added to pixels one by one, in the order of the windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import device_of, on_device_of
from simfloat.arithmetic.operands import image_of
from simfloat.arithmetic.spacing import place_of_largest
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas import Rounded
from simfloat.simulation.inside import WindowAxis, add_rows, spread_gradient

Sizes = Sequence[int]
Sides = Sequence[WindowAxis]


def average(u: Rounded, x: NDArray, sides: Sides, divisor: NDArray) -> NDArray:
    """Return the sum of every window, divided by its divisor; positions outside of the image are +0."""
    return u.divide(u.sum(windows_of(x, sides), tuple(range(len(sides)))), divisor)


def average_slope(u: Arithmetic, g: NDArray, divisor: NDArray, sides: Sides, shape: tuple[int, ...]) -> NDArray:
    """g / divisor for every pixel of a window, summed over the windows."""
    share, lead = u.divide(g, divisor), len(shape) - len(sides)
    if all(_covers(side, size) for side, size in zip(sides, shape[lead:], strict=True)):
        for axis, side in enumerate(sides, lead):
            share = share.repeat(side.places, axis)
        return u.round(share)
    return spread_gradient(u, [share] * math.prod(side.places for side in sides), share, sides, shape)


def _covers(side: WindowAxis, size: int) -> bool:
    """True if the windows cover an axis of this size, each pixel once."""
    return (side.step, side.border, side.gap) == (side.places, 0, 1) and side.number * side.places == size


def divisors(sides: Sides, sizes: Sizes, *, with_padding: bool) -> NDArray[np.float64]:
    """Return the number of positions of every window that count: with or without padding, never beyond it."""
    return outer_product([_counts(side, size, with_padding) for side, size in zip(sides, sizes, strict=True)])


def _counts(side: WindowAxis, size: int, with_padding: bool) -> NDArray[np.integer]:
    start = side.step * np.arange(side.number) - side.border
    low, high = (-side.border, size + side.border) if with_padding else (0, size)
    return np.minimum(start + side.places, high) - np.maximum(start, low)


def outer_product(counts: Sequence[NDArray]) -> NDArray[np.float64]:
    """Return the products of the counts along each axis."""
    return np.asarray(reduce(np.multiply.outer, counts), np.float64)


def largest(x: NDArray, sides: Sides) -> tuple[NDArray, NDArray[np.int32]]:
    """Return the largest element of every window, and the number of its first position in the window."""
    windows = windows_of(x, sides, -math.inf)
    has_nan = bool(np.isnan(x).any())
    values = np.full_like(x, -np.inf, order="C", shape=windows.shape[len(sides) :])
    # Start with the first position on the image: it gets the gradient if all pixels are -inf.
    start = np.zeros((), np.int64)
    for side in sides:
        inside = np.maximum(-(-(side.border - side.step * np.arange(side.number)) // side.gap), 0)
        start = start[..., np.newaxis] * side.places + inside
    first = np.empty(values.shape, np.int32, like=x)
    first[...] = on_device_of(start, x)
    for k, position in enumerate(product(*(range(side.places) for side in sides))):
        there = np.ascontiguousarray(windows[position], like=x)
        larger = there > values
        if has_nan:
            larger |= np.isnan(there) & ~np.isnan(values)
        # Multiply bit patterns by 0 or 1: np.where or a mask takes a branch for every element, which is seven times
        # as slow.
        image, other = image_of(values), image_of(there)
        image ^= (image ^ other) * larger
        first += (k - first) * larger
    return values, first


def largest_slope(u: Arithmetic, g: NDArray, first: NDArray, sides: Sides, shape: tuple[int, ...]) -> NDArray:
    """g for the pixel at position `first` of a window, 0 for the others, summed over the windows."""
    image = image_of(np.ascontiguousarray(g, like=g))
    count = math.prod(side.places for side in sides)
    shares = ((image * (first == k)).view(g.dtype) for k in range(count))
    return spread_gradient(u, shares, g, sides, shape)


def windows_of(x: NDArray, sides: Sides, border: float = 0.0) -> NDArray:
    """Return a view (*position in a window, ..., *window) of images, with `border` around them."""
    padded, lead = _pad(x, sides, border), x.ndim - len(sides)
    batch, steps = padded.strides[:lead], padded.strides[lead:]
    shape = (*(side.places for side in sides), *x.shape[:lead], *(side.number for side in sides))
    inside = [stride * side.gap for stride, side in zip(steps, sides, strict=True)]
    between = [stride * side.step for stride, side in zip(steps, sides, strict=True)]
    return device_of(x).arrays.lib.stride_tricks.as_strided(padded, shape, (*inside, *batch, *between))


def _pad(x: NDArray, sides: Sides, border: float) -> NDArray:
    """Return images with the border that the windows reach."""
    lead, sizes, inside = x.ndim - len(sides), [], []
    for side, size in zip(sides, x.shape[x.ndim - len(sides) :], strict=True):
        end = (side.number - 1) * side.step + side.gap * (side.places - 1) + 1 - side.border
        sizes.append(side.border + max(end, size))
        inside.append(slice(side.border, side.border + size))
    if tuple(sizes) == x.shape[lead:]:
        return x
    padded = device_of(x).new_array("zeros", (*x.shape[:lead], *sizes), x.dtype)
    if border:
        padded[...] = border
    padded[(..., *inside)] = x
    return padded


class AdaptiveWindows(NamedTuple):
    """Windows along one axis: the pixels of each (count, width), and the number of its pixels.

    Positions beyond a short window have the index after the last pixel.
    """

    pixels: NDArray[np.integer]
    counts: NDArray[np.integer]


def adaptive_windows(size: int, count: int) -> AdaptiveWindows:
    """Return `count` windows: number i goes from floor(i * size / count) to before ceil((i + 1) * size / count)."""
    start = np.arange(count) * size // count
    counts = -(-(np.arange(count) + 1) * size // count) - start
    pixels = start[:, np.newaxis] + np.arange(counts.max(initial=0))
    return AdaptiveWindows(np.where(pixels >= (start + counts)[:, np.newaxis], size, pixels), counts)


def adaptive_average(u: Rounded, x: NDArray, counts: Sizes) -> NDArray:
    """Return `counts` averages along the last axes: the sum of every window, row by row, divided by its size."""
    sides = _adaptive_sides(x.shape, counts)
    windows = _pixels_of_windows(x, sides, 0.0)
    total = u.sum(windows, tuple(range(windows.ndim - len(counts), windows.ndim)))
    return u.divide(total, _adaptive_divisors(x, sides))


def adaptive_average_slope(u: Arithmetic, g: NDArray, shape: tuple[int, ...], axes: int) -> NDArray:
    """g / size for every pixel of a window, added in the order of the windows."""
    sizes, places = shape[-axes:], g.shape[-axes:]
    sides = _adaptive_sides(shape, places)
    # Channels are last: the pixels of a window are rows of channels, which are added as a whole.
    share = np.moveaxis(u.divide(g, _adaptive_divisors(g, sides)).reshape(-1, *places), 0, -1)
    at = np.broadcast_arrays(*_grids(sides))
    there = np.logical_and.reduce([place < size for place, size in zip(at, sizes, strict=True)])
    spread = np.broadcast_to(share.reshape(*places, *[1] * axes, -1), (*there.shape, share.shape[-1]))
    pixels = np.ravel_multi_index([place[there] for place in at], sizes)
    total = add_rows(u, spread[on_device_of(there, g)], on_device_of(pixels, g), (math.prod(sizes), share.shape[-1]))
    return np.ascontiguousarray(total.T, like=g).reshape(shape)


def adaptive_largest(x: NDArray, counts: Sizes) -> tuple[NDArray, NDArray[np.integer]]:
    """Return the largest element of `counts` windows along the last axes, and its first index in the whole array."""
    sides = _adaptive_sides(x.shape, counts)
    values, places = (
        _pixels_of_windows(numbers, sides, border).reshape(*x.shape[: -len(counts)], *counts, -1)
        for numbers, border in ((x, -math.inf), (np.arange(x.size, like=x).reshape(x.shape), 0))
    )
    first = place_of_largest(values, -1)[..., np.newaxis]
    return np.take_along_axis(values, first, -1)[..., 0], np.take_along_axis(places, first, -1)[..., 0]


def adaptive_largest_slope(u: Arithmetic, g: NDArray, places: NDArray, shape: tuple[int, ...]) -> NDArray:
    """g for the largest pixel of a window, added in the order of the windows; other pixels are not in a sum."""
    return add_rows(u, np.ascontiguousarray(g, like=g), places.reshape(-1), (math.prod(shape), 1)).reshape(shape)


def _adaptive_sides(shape: tuple[int, ...], counts: Sizes) -> list[AdaptiveWindows]:
    """Return the adaptive windows along the last axes."""
    return list(map(adaptive_windows, shape[-len(counts) :], counts))


def _adaptive_divisors(x: NDArray, sides: Sequence[AdaptiveWindows]) -> NDArray:
    """Return the number of pixels of every window, on the device of x."""
    return on_device_of(outer_product([side.counts for side in sides]), x)


def _pixels_of_windows(x: NDArray, sides: Sequence[AdaptiveWindows], border: float) -> NDArray:
    """Return the pixels of windows (..., *window, *position in the window), `border` beyond a short window."""
    axes = len(sides)
    # One row and column after the image serve all positions outside of it, so windows need only one indexing.
    padded = np.pad(x, [(0, 0)] * (x.ndim - axes) + [(0, 1)] * axes, constant_values=border)
    return padded[(..., *(on_device_of(grid, x) for grid in _grids(sides)))]


def _grids(sides: Sequence[AdaptiveWindows]) -> list[NDArray[np.integer]]:
    """Return the pixels of windows along each axis, for broadcasting: first over the windows, then inside each."""
    axes, indices = len(sides), []
    for number, (pixels, _) in enumerate(sides):
        shape = [1] * (2 * axes)
        shape[number], shape[axes + number] = pixels.shape
        indices.append(pixels.reshape(shape))
    return indices
