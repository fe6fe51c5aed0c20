"""Images looked up at given points, and the points of affine maps, forward and backward, in PyTorch's operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from operator import mul
from typing import NamedTuple

import numpy as np
import torch

from simfloat.torch.handlers import Decomposition
from simfloat.torch.phases import target_operand
from simfloat.torch.tensor_arrays import tensor_of

Tensor = torch.Tensor

#: The numbers by which PyTorch's operations name how pixels are taken, and what lies outside of an image.
BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2


class Axis(NamedTuple):
    """Where points lie along an axis of images: between a pixel and the next one, which are weighted by the share."""

    size: int
    first: Tensor  # a pixel's number, an integer
    share: Tensor
    slope: Tensor | float  # of the place, by the point's coordinate; exact


class Corner(NamedTuple):
    """A pixel beside each point, along every axis."""

    steps: tuple[int, ...]  # 0 for the first pixel, 1 for the next one
    number: Tensor  # in the image, 0 outside
    inside: Tensor


def place_along_axis(x: Tensor, size: int, padding: int, corners: bool) -> tuple[Tensor, Tensor | float]:
    """The place x * f + (size - 1) / 2 of a coordinate from -1 to 1, f being size / 2, or (size - 1) / 2; its slope."""
    factor = (size - 1) / 2 if corners else size / 2
    at, sign = x * factor + (size - 1) / 2, torch.ones_like(x)
    if padding == ZEROS:
        return at, factor
    if padding == REFLECTION:
        at, sign = reflect_places(at, *((0.0, size - 1.0) if corners else (-0.5, size - 0.5)))
    # The last pixel's number as it is: the format that places are rounded to may lack it.
    nothing, last = torch.zeros_like(at), torch.full(at.shape, size - 1.0, dtype=at.dtype)
    is_inside = (at > 0) & (at < last)
    place = torch.where(is_inside, at, torch.where(at > 0, last, nothing))
    return place, torch.where(is_inside, sign, nothing) * factor


def reflect_places(at: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """A place, reflected at two borders until it lies between them; 1, or -1 for an odd number of reflections."""
    if low == high:
        return torch.zeros_like(at), torch.zeros_like(at)
    span, distance = high - low, at - low
    there = distance.abs().fmod(2 * span)
    is_back = there >= span
    place = torch.where(is_back, 2 * span - there, there) + low
    return place, torch.where(is_back == (distance < 0), 1.0, -1.0).to(at.dtype)


def reflect_pixels(number: Tensor, size: int, corners: bool) -> Tensor:
    """Pixels that lie off an image, reflected at the middle of the last ones, or at their borders: integers."""
    if corners:
        there = number.abs().remainder(max(2 * size - 2, 1))
        return torch.where(there > size - 1, 2 * size - 2 - there, there)
    there = number.remainder(2 * size)
    return torch.where(there >= size, 2 * size - 1 - there, there)


def axes_of_points(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> list[Axis]:
    """The places (N, 1, points) of a grid (N, ..., axes), whose coordinates are those of the last axis first."""
    check_points(x, grid)
    axes = []
    for number, size in enumerate(x.shape[2:]):
        at, slope = place_along_axis(grid[..., x.ndim - 3 - number].flatten(1).unsqueeze(1), size, padding, corners)
        first = floor(at)
        share = at - first
        if mode == NEAREST:  # of two that are as near the even one
            first = first + ((share > 0.5) | ((share == 0.5) & (first % 2 == 1))).long()
        axes.append(Axis(size, first, share, slope))
    return axes


def check_points(x: Tensor, grid: Tensor) -> None:
    """Raise ValueError unless there are points for every image, with a coordinate for every axis."""
    if grid.shape[0] != x.shape[0] or (grid.ndim, grid.shape[-1]) != (x.ndim, x.ndim - 2):
        needed = f"({x.shape[0]}, ..., {x.ndim - 2}) with {x.ndim} axes"
        raise ValueError(f"grid_sample takes a grid {needed} for x of shape {tuple(x.shape)}, got {tuple(grid.shape)}.")


def floor(at: Tensor) -> Tensor:
    """The largest integers that are not above these numbers."""
    # `floor` of tensors would be rounded to the format of places, which lacks large integers: BF16 those above 256.
    whole = at.long()
    return whole - (at < whole).long()


def corners_of(axes: Sequence[Axis], mode: int) -> Iterator[Corner]:
    """The pixels beside the points, those along the last axis first; the nearest alone, where that is asked for."""
    # PyTorch adds the corners in this order, and the order of a rounded sum is part of its bits.
    for steps in product((0,) if mode == NEAREST else (0, 1), repeat=len(axes)):
        inside = torch.ones(axes[0].first.shape, dtype=torch.bool)
        for axis, step in zip(axes, steps, strict=True):
            inside = inside & (axis.first >= -step) & (axis.first < axis.size - step)
        index = torch.zeros(inside.shape, dtype=torch.int64)
        for axis, step in zip(axes, steps, strict=True):
            index = index * axis.size + torch.where(inside, axis.first, 0) + step
        yield Corner(steps, torch.where(inside, index, 0), inside)


def weight_of(corner: Corner, axes: Sequence[Axis], without: int = -1) -> Tensor:
    """The product of the shares of a corner along every axis, or along all but one, the last axis first."""
    pairs = reversed(list(enumerate(zip(axes, corner.steps, strict=True))))
    return reduce(mul, [axis.share if step else 1 - axis.share for number, (axis, step) in pairs if number != without])


def pixels(x: Tensor, corner: Corner) -> Tensor:
    """The numbers (N, C, points) of a corner's pixels, 0 outside."""
    index = corner.number.expand(*x.shape[:2], -1)
    values = x.flatten(2).gather(2, index)
    return torch.where(corner.inside, values, torch.zeros_like(values))


def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """The sums of four pixels (eight of volumes), each times the product of its shares, in their order."""
    axes = axes_of_points(x, grid, mode, padding, corners)
    terms = (
        pixels(x, corner) if mode == NEAREST else pixels(x, corner) * weight_of(corner, axes)
        for corner in corners_of(axes, mode)
    )
    return reduce(torch.add, terms).reshape(*x.shape[:2], *grid.shape[1:-1])


def grid_sample_backward(
    g: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of images and points.

    For a pixel the sum of g times its weights, point by point; for a coordinate the sum over channels of g * s, times
    the exact slope of its place, where s is the sum of the corners' pixels times the shares along the other axes,
    added for the next pixel along the coordinate's axis and subtracted for the first.
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
    """The coordinates of pixels, the last axis first, and 1: (pixels, axes + 1), exact numbers."""
    steps = [np.linspace(-1, 1, n) * (1.0 if corners else (n - 1) / n) if n > 1 else np.zeros(1) for n in size[2:]]
    grids = np.meshgrid(*steps, indexing="ij")
    return tensor_of(np.stack([*(grid.ravel() for grid in grids[::-1]), np.ones(grids[0].size)], -1), dtype)


def affine_points(theta: Tensor, size: Sequence[int], corners: bool) -> Tensor:
    """The points (N, ..., axes) to which maps theta (N, axes, axes + 1) take the pixels of images of this size."""
    base = points(size, corners, theta.dtype).expand(len(theta), -1, -1)
    return (base @ theta.mT).reshape(len(theta), *size[2:], theta.shape[1])


#: By PyTorch's name.
TABLE: dict[str, Decomposition] = {
    "affine_grid_generator": Decomposition("matmul", affine_points),
    "grid_sampler_3d": Decomposition("grid_sample", grid_sample),
    "grid_sampler_3d_backward": Decomposition("grid_sample", grid_sample_backward, 2),
}
