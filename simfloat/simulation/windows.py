"""Gradients of windows on images, spread over the pixels that each of them meets, as pooling has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.simulation.arithmetic import Arithmetic


class WindowAxis(NamedTuple):
    """Windows along one axis of images: their places, the steps between them, the border, gaps, and their number."""

    places: int
    step: int
    border: int
    gap: int
    number: int


def spread_gradient(
    u: Arithmetic, shares: Iterable[NDArray], g: NDArray, sides: Sequence[WindowAxis], shape: tuple[int, ...]
) -> NDArray:
    """The gradient of images, in an array like `g`: for every place of the windows, by rows, what each window gives to
    the pixel there.

    Where windows overlap, it is a sum through `reduce`, over the windows in row-major order; those that give the pixel
    nothing count as +0.
    """
    offsets = [[side.gap * n - side.border for n in range(side.places)] for side in sides]
    # Windows that share a pixel are whole strides apart; the later one has it at the earlier place.
    later = [sorted({o // side.step for o in along}, reverse=True) for along, side in zip(offsets, sides, strict=True)]
    sizes = shape[len(shape) - len(sides) :]
    terms = np.zeros((*map(len, later), *shape), g.dtype, like=g)
    for place, share in zip(product(*offsets), shares, strict=True):
        number = tuple(along.index(o // side.step) for along, o, side in zip(later, place, sides, strict=True))
        windows, pixels = zip(*map(_windows_and_pixels, place, sides, sizes), strict=True)
        terms[(*number, ..., *pixels)] = share[(..., *windows)]
    axes = tuple(range(len(sides)))
    return u.round(terms[(0,) * len(sides)]) if terms.size == terms[(0,) * len(sides)].size else u.sum(terms, axes)


def _windows_and_pixels(offset: int, side: WindowAxis, size: int) -> tuple[slice, slice]:
    """Which windows have an offset's pixel on the image; and these pixels."""
    first = max(-(offset // side.step), 0)
    last = max(min((size - 1 - offset) // side.step + 1, side.number), first)
    start = first * side.step + offset
    return slice(first, last), slice(start, start + (last - first) * side.step, side.step)
