"""Images looked up at given points by cubic convolution of four by four pixels, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch

from simfloat.torch.handlers import Decomposition
from simfloat.torch.phases import target_operand
from simfloat.torch.rules.grids import (
    BICUBIC,
    BORDER,
    ZEROS,
    check_points,
    floor,
    grid_sample,
    grid_sample_backward,
    reflect_pixels,
)
from simfloat.torch.rules.resampling import BEND

Tensor = torch.Tensor


class CubicAxis(NamedTuple):
    """The four pixels beside each point along an axis of images, and what they count for."""

    places: list[Tensor]  # integers
    inside: list[Tensor]
    weights: list[Tensor]
    slopes: list[Tensor]  # of the weights, by the distance from the second pixel, with the other sign
    factor: float  # of a place, by the point's coordinate; exact


def weights_at(t: Tensor) -> list[Tensor]:
    """The cubic convolution kernel at t + 1, t, 1 - t and 2 - t, t being the distance from the second pixel."""
    return [far(t + 1), near(t), near(1 - t), far((1 - t) + 1)]


def near(t: Tensor) -> Tensor:
    """The kernel up to 1."""
    return ((BEND + 2) * t - (BEND + 3)) * t * t + 1


def far(t: Tensor) -> Tensor:
    """The kernel from 1 to 2."""
    return ((BEND * t - 5 * BEND) * t + 8 * BEND) * t - 4 * BEND


def slopes_at(t: Tensor) -> list[Tensor]:
    """The kernel's derivatives at -1 - t, -t, 1 - t and 2 - t."""
    a, b, c, d = -1 - t, -t, 1 - t, 2 - t
    return [
        (-3 * BEND * a - 10 * BEND) * a - 8 * BEND,
        (-3 * (BEND + 2) * b - 2 * (BEND + 3)) * b,
        (3 * (BEND + 2) * c - 2 * (BEND + 3)) * c,
        (3 * BEND * d - 10 * BEND) * d + 8 * BEND,
    ]


def cubic_axis(x: Tensor, size: int, padding: int, corners: bool) -> CubicAxis:
    """The pixels beside the points of these coordinates; those outside are moved in as integers, which is exact."""
    factor = (size - 1) / 2 if corners else size / 2
    at = x * factor + (size - 1) / 2
    # Places are rounded numbers of the policy's format; from here on they are integers, which are exact.
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
    """Those along rows and along columns of the points (N, 1, points)."""
    check_points(x, grid)
    across, down = (grid[..., number].flatten(1).unsqueeze(1) for number in (0, 1))
    return cubic_axis(across, x.shape[3], padding, corners), cubic_axis(down, x.shape[2], padding, corners)


def places_at(x: Tensor, across: CubicAxis, down: CubicAxis, i: int, j: int) -> tuple[Tensor, Tensor]:
    """The numbers of a pixel of each point, in its image, and where there is one."""
    return down.places[j] * x.shape[3] + across.places[i], across.inside[i] & down.inside[j]


def pixels_at(x: Tensor, across: CubicAxis, down: CubicAxis, i: int, j: int) -> Tensor:
    """The numbers (N, C, points) of a pixel of each point, 0 outside."""
    places, inside = places_at(x, across, down, i, j)
    values = x.flatten(2).gather(2, places.expand(*x.shape[:2], -1))
    return torch.where(inside, values, torch.zeros_like(values))


def cubic_points(x: Tensor, grid: Tensor, padding: int, corners: bool) -> Tensor:
    """The sums of four pixels of a row times their weights, then of the four rows times theirs."""
    across, down = both_axes(x, grid, padding, corners)
    rows = [
        reduce(torch.add, [pixels_at(x, across, down, i, j) * across.weights[i] for i in range(4)]) for j in range(4)
    ]
    total = reduce(torch.add, [row * weight for row, weight in zip(rows, down.weights, strict=True)])
    return total.reshape(*x.shape[:2], *grid.shape[1:-1])


def cubic_points_backward(
    g: Tensor, x: Tensor, grid: Tensor, padding: int, corners: bool, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of images and points.

    For a pixel the sum of g times both weights, point by point; for a coordinate minus the sum over channels of pixel
    times the slope of its weight times the other weight times g, times the exact slope of its place.
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
    """Images looked up at points in any mode."""
    return cubic_points(x, grid, padding, corners) if mode == BICUBIC else grid_sample(x, grid, mode, padding, corners)


def grid_sampler_2d_backward(
    g: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of images and points."""
    if mode == BICUBIC:
        return cubic_points_backward(g, x, grid, padding, corners, mask)
    return grid_sample_backward(g, x, grid, mode, padding, corners, mask)


#: By PyTorch's name.
TABLE: dict[str, Decomposition] = {
    "grid_sampler_2d": Decomposition("grid_sample", grid_sampler_2d),
    "grid_sampler_2d_backward": Decomposition("grid_sample", grid_sampler_2d_backward, 2),
}
