"""Rules that resize images and sample them at points, forward and backward.

Images are sampled at given points, or at the points of affine maps, by PyTorch's operations. A pixel of a resized image
is a sum of a few old pixels times exact weights. The last part samples images by cubic convolution of four by four
pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import product
from operator import mul
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.machines import CPU, device_of, on_device_of
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.phases import target_operand
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensors import numbers_of, tensor_of

Tensor = torch.Tensor

#: PyTorch's numbers of the modes of interpolation, and of padding outside of an image.
BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2


class Axis(NamedTuple):
    """Positions of points along an axis of images: `first` is the pixel before, `share` the weight of the next one."""

    size: int
    first: Tensor  # the index of a pixel, an integer
    share: Tensor
    slope: Tensor | float  # the exact derivative of the position by the coordinate of the point


class Corner(NamedTuple):
    """A pixel next to each point, along every axis."""

    steps: tuple[int, ...]  # 0 for the first pixel, 1 for the next one
    number: Tensor  # the index in the image, 0 outside
    inside: Tensor


def place_along_axis(x: Tensor, size: int, padding: int, corners: bool) -> tuple[Tensor, Tensor | float]:
    """Return the position x * f + (size - 1) / 2 of a coordinate from -1 to 1, and its derivative.

    The factor f is size / 2, or (size - 1) / 2 with `corners`.
    """
    factor = (size - 1) / 2 if corners else size / 2
    at, sign = x * factor + (size - 1) / 2, torch.ones_like(x)
    if padding == ZEROS:
        return at, factor
    if padding == REFLECTION:
        at, sign = reflect_places(at, *((0.0, size - 1.0) if corners else (-0.5, size - 0.5)))
    # The index of the last pixel is exact: the format of rounded positions may not contain it.
    nothing, last = torch.zeros_like(at), torch.full(at.shape, size - 1.0, dtype=at.dtype, device=at.device)
    is_inside = (at > 0) & (at < last)
    place = torch.where(is_inside, at, torch.where(at > 0, last, nothing))
    return place, torch.where(is_inside, sign, nothing) * factor


def reflect_places(at: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return a position, reflected at two borders until it is between them, and the sign of the reflection.

    The sign is 1, or -1 for an odd number of reflections.
    """
    if low == high:
        return torch.zeros_like(at), torch.zeros_like(at)
    span, distance = high - low, at - low
    there = distance.abs().fmod(2 * span)
    is_back = there >= span
    place = torch.where(is_back, 2 * span - there, there) + low
    return place, torch.where(is_back == (distance < 0), 1.0, -1.0).to(at.dtype)


def reflect_pixels(number: Tensor, size: int, corners: bool) -> Tensor:
    """Reflect the indices of pixels outside of an image, at the centers or borders of the last pixels."""
    if corners:
        there = number.abs().remainder(max(2 * size - 2, 1))
        return torch.where(there > size - 1, 2 * size - 2 - there, there)
    there = number.remainder(2 * size)
    return torch.where(there >= size, 2 * size - 1 - there, there)


def axes_of_points(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> list[Axis]:
    """Return the positions (N, 1, points) of a grid (N, ..., axes) with coordinates that start with the last axis."""
    check_points(x, grid)
    axes = []
    for number, size in enumerate(x.shape[2:]):
        at, slope = place_along_axis(grid[..., x.ndim - 3 - number].flatten(1).unsqueeze(1), size, padding, corners)
        first = floor(at)
        share = at - first
        if mode == NEAREST:  # round to nearest, ties to even
            first = first + ((share > 0.5) | ((share == 0.5) & (first % 2 == 1))).long()
        axes.append(Axis(size, first, share, slope))
    return axes


def check_points(x: Tensor, grid: Tensor) -> None:
    """Raise ValueError unless there are points for every image, with a coordinate for every axis."""
    if grid.shape[0] != x.shape[0] or (grid.ndim, grid.shape[-1]) != (x.ndim, x.ndim - 2):
        needed = f"({x.shape[0]}, ..., {x.ndim - 2}) with {x.ndim} axes"
        raise ValueError(f"grid_sample takes a grid {needed} for x of shape {tuple(x.shape)}, got {tuple(grid.shape)}.")


def floor(at: Tensor) -> Tensor:
    """Return the largest integers that are at most these values."""
    # `floor` of tensors would be rounded to the format of positions, which does not contain all large integers; in BF16
    # these start at 257.
    whole = at.long()
    return whole - (at < whole).long()


def corners_of(axes: Sequence[Axis], mode: int) -> Iterator[Corner]:
    """Yield the pixels next to the points, the last axis varying fastest; with NEAREST only the nearest pixel."""
    # PyTorch adds the corners in this order, and the order of a rounded sum affects its bits.
    for steps in product((0,) if mode == NEAREST else (0, 1), repeat=len(axes)):
        inside = torch.ones(axes[0].first.shape, dtype=torch.bool, device=axes[0].first.device)
        for axis, step in zip(axes, steps, strict=True):
            inside = inside & (axis.first >= -step) & (axis.first < axis.size - step)
        index = torch.zeros(inside.shape, dtype=torch.int64, device=inside.device)
        for axis, step in zip(axes, steps, strict=True):
            index = index * axis.size + torch.where(inside, axis.first, 0) + step
        yield Corner(steps, torch.where(inside, index, 0), inside)


def weight_of(corner: Corner, axes: Sequence[Axis], without: int = -1) -> Tensor:
    """Return the product of the shares of a corner along every axis except `without`, starting with the last axis."""
    pairs = reversed(list(enumerate(zip(axes, corner.steps, strict=True))))
    return reduce(mul, [axis.share if step else 1 - axis.share for number, (axis, step) in pairs if number != without])


def pixels(x: Tensor, corner: Corner) -> Tensor:
    """Return the values (N, C, points) of a corner's pixels, 0 outside."""
    index = corner.number.expand(*x.shape[:2], -1)
    values = x.flatten(2).gather(2, index)
    return torch.where(corner.inside, values, torch.zeros_like(values))


def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """Return the sums of four pixels (eight for volumes), each times the product of its shares, in their order."""
    axes = axes_of_points(x, grid, mode, padding, corners)
    terms = (
        pixels(x, corner) if mode == NEAREST else pixels(x, corner) * weight_of(corner, axes)
        for corner in corners_of(axes, mode)
    )
    return reduce(torch.add, terms).reshape(*x.shape[:2], *grid.shape[1:-1])


def grid_sample_backward(
    g: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of images and points.

    The gradient of a pixel is the sum of g times its weights, point by point. The gradient of a coordinate is the sum
    over channels of g * s, times the exact derivative of its position. The term s is the sum of the corners' pixels
    times the shares along the other axes; it is added for the next pixel along the axis of the coordinate, and
    subtracted for the first.
    """
    g = g.flatten(2)
    with target_operand(1):
        axes = axes_of_points(x, grid, mode, padding, corners)
    beside = list(corners_of(axes, mode))
    with target_operand(0):
        to_x = _to_images(g, x, axes, beside, mode) if mask[0] else None
    with target_operand(1):
        return to_x, _to_points(g, x, grid, axes, beside, mode) if mask[1] else None


def _to_images(g: Tensor, x: Tensor, axes: Sequence[Axis], beside: Sequence[Corner], mode: int) -> Tensor:
    terms = [
        torch.where(corner.inside, g if mode == NEAREST else g * weight_of(corner, axes), torch.zeros_like(g))
        for corner in beside
    ]
    index = torch.stack([corner.number for corner in beside], -1).flatten(2).expand(*x.shape[:2], -1)
    image = torch.zeros_like(x).flatten(2)
    return image.scatter_add(2, index, torch.stack(terms, -1).flatten(2)).reshape(x.shape)


def _to_points(g: Tensor, x: Tensor, grid: Tensor, axes: Sequence[Axis], beside: Sequence[Corner], mode: int) -> Tensor:
    if mode == NEAREST:
        return torch.zeros_like(grid)
    gradients = []
    for number, axis in enumerate(axes):
        terms = [pixels(x, corner) * weight_of(corner, axes, number) for corner in beside]
        terms = [term if corner.steps[number] else -term for corner, term in zip(beside, terms, strict=True)]
        slope = axis.slope if isinstance(axis.slope, float) else axis.slope.squeeze(1)
        gradients.append((g * reduce(torch.add, terms)).sum(1) * slope)
    return torch.stack(gradients[::-1], -1).reshape(grid.shape)


def points(size: Sequence[int], corners: bool, dtype: torch.dtype) -> Tensor:
    """Return the coordinates of pixels, starting with the last axis, and 1: (pixels, axes + 1), exact values."""
    steps = [np.linspace(-1, 1, n) * (1.0 if corners else (n - 1) / n) if n > 1 else np.zeros(1) for n in size[2:]]
    grids = np.meshgrid(*steps, indexing="ij")
    return tensor_of(np.stack([*(grid.ravel() for grid in grids[::-1]), np.ones(grids[0].size)], -1), dtype)


def affine_points(theta: Tensor, size: Sequence[int], corners: bool) -> Tensor:
    """Return the points (N, ..., axes) to which maps theta (N, axes, axes + 1) move pixels of images."""
    base = points(size, corners, theta.dtype).to(theta.device).expand(len(theta), -1, -1)
    return (base @ theta.mT).reshape(len(theta), *size[2:], theta.shape[1])


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "affine_grid_generator": Decomposition("matmul", affine_points),
    "grid_sampler_3d": Decomposition("grid_sample", grid_sample),
    "grid_sampler_3d_backward": Decomposition("grid_sample", grid_sample_backward, 2),
}


Sizes = Sequence[int]

#: The parameter of the cubic convolution kernel (Keys, IEEE TASSP 29(6), 1981): the value of PyTorch, and the value of
#: Keys, which PyTorch uses for antialiasing.
BEND, KEYS = -0.75, -0.5


class Taps(NamedTuple):
    """The old pixels along an axis that contribute to each new one, and their weights.

    Both have the shape (new pixels, taps). If new pixels have different numbers of taps, `used` marks the valid ones.
    """

    places: NDArray[np.integer]
    weights: NDArray[np.floating]
    used: NDArray[np.bool_] | bool = True

    def on_device_of(self, pixels: NDArray) -> Taps:
        """Return the taps on the device of an array."""
        used = self.used if isinstance(self.used, bool) else on_device_of(self.used, pixels)
        return Taps(on_device_of(self.places, pixels), on_device_of(self.weights, pixels), used)

    def of_pixels(self, numbers: NDArray, tap: int, axis: int) -> NDArray:
        """Return the pixels of a tap along an axis, 0 if the tap is unused."""
        pixels = numbers.take(self.places[:, tap], axis)
        if isinstance(self.used, bool):
            return pixels
        shape = [-1 if number == axis else 1 for number in range(numbers.ndim)]
        return np.where(self.used[:, tap].reshape(shape), pixels, 0)


def source_positions(size: int, count: int, corners: bool, scale: float | None) -> NDArray[np.floating]:
    """Return the positions of `count` new pixels among `size` old ones, aligned at the corners or at the borders."""
    if corners:
        return np.arange(count) * ((size - 1) / (count - 1) if count > 1 else 0.0)
    step = 1 / scale if scale else size / count
    return (np.arange(count) + 0.5) * step - 0.5


def linear(size: int, count: int, corners: bool, scale: float | None) -> Taps:
    """Return the two neighbours, with linear weights."""
    at = np.clip(source_positions(size, count, corners, scale), 0, None)
    first = np.minimum(np.floor(at).astype(np.int64), size - 1)
    share = np.clip(at - first, 0, 1)
    return Taps(np.stack([first, np.minimum(first + 1, size - 1)], 1), np.stack([1 - share, share], 1))


def cubic(size: int, count: int, corners: bool, scale: float | None) -> Taps:
    """Return the four neighbours, with the cubic convolution kernel of their distances as weights."""
    at = source_positions(size, count, corners, scale)
    first = np.floor(at).astype(np.int64)
    distances = np.abs((at - first)[:, np.newaxis] - np.arange(-1, 3))
    return Taps(np.clip(first[:, np.newaxis] + np.arange(-1, 3), 0, size - 1), convolution(distances, BEND))


def convolution(distances: NDArray, bend: float) -> NDArray:
    """Return the values of the cubic convolution kernel, which is 0 for distances of 2 and more."""
    near = ((bend + 2) * distances - (bend + 3)) * distances * distances + 1
    far = ((bend * distances - 5 * bend) * distances + 8 * bend) * distances - 4 * bend
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0.0))


def antialiasing_kernel(kernel: Callable[[NDArray], NDArray], width: int) -> Kernel:
    """Return a kernel of all pixels within a width that grows as images shrink, with weights that add up to 1."""

    def taps(size: int, count: int, corners: bool, scale: float | None) -> Taps:
        if corners:
            step = (size - 1) / (count - 1) if count > 1 else 0.0
        else:
            step = 1 / scale if scale else size / count
        centre, reach = step * (np.arange(count) + 0.5), width / 2 * max(step, 1.0)
        first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
        last = np.minimum((centre + reach + 0.5).astype(np.int64), size)
        places = first[:, np.newaxis] + np.arange((last - first).max(initial=1))
        used = places < last[:, np.newaxis]
        nearness = kernel(np.abs(places - centre[:, np.newaxis] + 0.5) / max(step, 1.0))
        weights = np.where(used, nearness, 0.0)
        return Taps(np.minimum(places, size - 1), weights / weights.sum(1, keepdims=True), used)

    return taps


def triangle(distances: NDArray) -> NDArray:
    """Return 1 - d, or 0 for distances of 1 and more."""
    return np.maximum(1 - distances, 0)


Kernel = Callable[[int, int, bool, float | None], Taps]


def taps_of(
    kernel: Kernel, old: Sizes, new: Sizes, corners: bool, scales: Sequence[float | None], pixels: NDArray
) -> list[Taps]:  # fmt: skip
    """Return the taps along every axis of images, on the device of the pixels."""
    factors = [*scales, *[None] * (len(new) - len(scales))]
    taps = [kernel(size, count, corners, scale) for size, count, scale in zip(old[2:], new, factors, strict=True)]
    return taps if device_of(pixels) is CPU else [each.on_device_of(pixels) for each in taps]


def resample(
    call: RuleCall, x: torch.Tensor, size: Sizes, corners: bool, *scales: float | None, kernel: Kernel
) -> torch.Tensor:
    """Resize images, along the last axis first; each product is added to the sum so far, in order."""
    pixels = numbers_of(x)
    call.begin()
    for back, taps in enumerate(reversed(taps_of(kernel, x.shape, size, corners, scales, pixels))):
        # Weights are operands in float64: they are not values of the program, and no role of a policy rounds them.
        weights = taps.weights.reshape(*taps.weights.shape, *[1] * back)
        axis = pixels.ndim - 1 - back
        terms = [call.multiply(taps.of_pixels(pixels, t, axis), weights[:, t]) for t in range(weights.shape[1])]
        pixels = terms[0]
        for term in terms[1:]:
            pixels = call.add(pixels, term)
    return call.tensor(pixels)


def resample_backward(
    call: RuleCall, g: torch.Tensor, size: Sizes, old: Sizes, corners: bool, *scales: float | None, kernel: Kernel
) -> torch.Tensor:
    """Return the gradient of images, along the first axis first; the products for each old pixel are added in order."""
    gradient = numbers_of(g)
    call.begin()
    for axis, (places, weights, used) in enumerate(taps_of(kernel, old, size, corners, scales, gradient), 2):
        rows = np.moveaxis(gradient, axis, 0)
        shape = (old[axis], math.prod(rows.shape[1:]))
        terms = call.multiply(rows[:, np.newaxis], weights.reshape(*weights.shape, *[1] * (rows.ndim - 1)))
        if not isinstance(used, bool):
            terms, places = terms[used], places[used]
        total = call.added_rows(terms, places.reshape(-1), shape)
        gradient = np.moveaxis(total.reshape(shape[0], *rows.shape[1:]), 0, axis)
    return call.tensor(gradient)


#: Rules, by PyTorch's name.
TABLE |= {
    f"upsample_{name}{ending}": Rule("interpolate", partial(rule, kernel=kernel))
    for name, kernel in (("linear1d", linear), ("bilinear2d", linear), ("trilinear3d", linear), ("bicubic2d", cubic))
    for ending, rule in (("", resample), ("_backward", resample_backward))
} | {
    f"_upsample_{name}2d_aa{ending}": Rule("interpolate", partial(rule, kernel=kernel))
    for name, kernel in (
        ("bilinear", antialiasing_kernel(triangle, 2)),
        ("bicubic", antialiasing_kernel(lambda distances: convolution(distances, KEYS), 4)),
    )
    for ending, rule in (("", resample), ("_backward", resample_backward))
}


class CubicAxis(NamedTuple):
    """The four pixels next to each point along an axis of images, and their weights."""

    places: list[Tensor]  # integers
    inside: list[Tensor]
    weights: list[Tensor]
    slopes: list[Tensor]  # the negative derivatives of the weights by the distance from the second pixel
    factor: float  # the exact derivative of a position by the coordinate of the point


def weights_at(t: Tensor) -> list[Tensor]:
    """Return the cubic convolution kernel at t + 1, t, 1 - t and 2 - t; t is the distance from the second pixel."""
    return [far(t + 1), near(t), near(1 - t), far((1 - t) + 1)]


def near(t: Tensor) -> Tensor:
    """Return the kernel for distances up to 1."""
    return ((BEND + 2) * t - (BEND + 3)) * t * t + 1


def far(t: Tensor) -> Tensor:
    """Return the kernel for distances from 1 to 2."""
    return ((BEND * t - 5 * BEND) * t + 8 * BEND) * t - 4 * BEND


def slopes_at(t: Tensor) -> list[Tensor]:
    """Return the kernel's derivatives at -1 - t, -t, 1 - t and 2 - t."""
    a, b, c, d = -1 - t, -t, 1 - t, 2 - t
    return [
        (-3 * BEND * a - 10 * BEND) * a - 8 * BEND,
        (-3 * (BEND + 2) * b - 2 * (BEND + 3)) * b,
        (3 * (BEND + 2) * c - 2 * (BEND + 3)) * c,
        (3 * BEND * d - 10 * BEND) * d + 8 * BEND,
    ]


def cubic_axis(x: Tensor, size: int, padding: int, corners: bool) -> CubicAxis:
    """Return the pixels next to the points of these coordinates; indices outside are moved inside exactly."""
    factor = (size - 1) / 2 if corners else size / 2
    at = x * factor + (size - 1) / 2
    # Positions are rounded to the format of the policy; the indices computed from them are exact integers.
    first = floor(at)
    t = at - first
    pixels = [first + step for step in range(-1, 3)]
    inside = [torch.ones_like(number, dtype=torch.bool) for number in pixels]
    if padding == ZEROS:
        inside = [(number >= 0) & (number < size) for number in pixels]
    elif padding != BORDER:
        pixels = [reflect_pixels(number, size, corners) for number in pixels]
    return CubicAxis([n.clamp(0, size - 1) for n in pixels], inside, weights_at(t), slopes_at(t), factor)


def both_axes(x: Tensor, grid: Tensor, padding: int, corners: bool) -> tuple[CubicAxis, CubicAxis]:
    """Return the pixels along rows and along columns of the points (N, 1, points)."""
    check_points(x, grid)
    across, down = (grid[..., number].flatten(1).unsqueeze(1) for number in (0, 1))
    return cubic_axis(across, x.shape[3], padding, corners), cubic_axis(down, x.shape[2], padding, corners)


def places_at(x: Tensor, across: CubicAxis, down: CubicAxis, i: int, j: int) -> tuple[Tensor, Tensor]:
    """Return the index of one pixel of each point in its image, and a mask of the pixels inside the image."""
    return down.places[j] * x.shape[3] + across.places[i], across.inside[i] & down.inside[j]


def pixels_at(x: Tensor, across: CubicAxis, down: CubicAxis, i: int, j: int) -> Tensor:
    """Return the values (N, C, points) of one pixel of each point, 0 outside."""
    places, inside = places_at(x, across, down, i, j)
    values = x.flatten(2).gather(2, places.expand(*x.shape[:2], -1))
    return torch.where(inside, values, torch.zeros_like(values))


def cubic_points(x: Tensor, grid: Tensor, padding: int, corners: bool) -> Tensor:
    """Return the sums of four pixels of a row times their weights, then of the four rows times theirs."""
    across, down = both_axes(x, grid, padding, corners)
    rows = [
        reduce(torch.add, [pixels_at(x, across, down, i, j) * across.weights[i] for i in range(4)]) for j in range(4)
    ]
    total = reduce(torch.add, [row * weight for row, weight in zip(rows, down.weights, strict=True)])
    return total.reshape(*x.shape[:2], *grid.shape[1:-1])


def cubic_points_backward(
    g: Tensor, x: Tensor, grid: Tensor, padding: int, corners: bool, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of images and points.

    The gradient of a pixel is the sum of g times both weights, point by point. The gradient of a coordinate is minus
    the sum over channels of pixel times the derivative of its weight times the other weight times g, times the exact
    derivative of its position.
    """
    g = g.flatten(2)
    with target_operand(1):
        across, down = both_axes(x, grid, padding, corners)
    beside = [(i, j) for i in range(4) for j in range(4)]
    to_x = to_grid = None
    if mask[0]:
        with target_operand(0):
            places = [places_at(x, across, down, i, j) for i, j in beside]
            terms = [
                torch.where(inside, g * across.weights[i] * down.weights[j], torch.zeros_like(g))
                for (i, j), (_, inside) in zip(beside, places, strict=True)
            ]
            index = torch.stack([torch.where(inside, at, 0) for at, inside in places], -1).flatten(2)
            image = torch.zeros_like(x).flatten(2)
            index = index.expand(*x.shape[:2], -1)
            to_x = image.scatter_add(2, index, torch.stack(terms, -1).flatten(2)).reshape(x.shape)
    if mask[1]:
        with target_operand(1):
            pixels = [pixels_at(x, across, down, i, j) for i, j in beside]
            pairs = list(zip(beside, pixels, strict=True))
            by_x = [pixel * across.slopes[i] * down.weights[j] * g for (i, j), pixel in pairs]
            by_y = [pixel * down.slopes[j] * across.weights[i] * g for (i, j), pixel in pairs]
            sums = [-reduce(torch.add, terms).sum(1) for terms in (by_x, by_y)]
            to_grid = torch.stack([sums[0] * across.factor, sums[1] * down.factor], -1).reshape(grid.shape)
    return to_x, to_grid


def grid_sampler_2d(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """Sample images at points in any mode."""
    return cubic_points(x, grid, padding, corners) if mode == BICUBIC else grid_sample(x, grid, mode, padding, corners)


def grid_sampler_2d_backward(
    g: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of images and points."""
    if mode == BICUBIC:
        return cubic_points_backward(g, x, grid, padding, corners, mask)
    return grid_sample_backward(g, x, grid, mode, padding, corners, mask)


#: Rules, by PyTorch's name.
TABLE |= {
    "grid_sampler_2d": Decomposition("grid_sample", grid_sampler_2d),
    "grid_sampler_2d_backward": Decomposition("grid_sample", grid_sampler_2d_backward, 2),
}
