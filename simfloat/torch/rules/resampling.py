"""Images in another size, forward and backward: each pixel is a sum of a few of the old ones, times exact weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.handlers import Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensor_arrays import numbers_of

Sizes = Sequence[int]

#: The bend of the cubic convolution kernel: Keys, IEEE TASSP 29(6), 1981, with the value that PyTorch takes; and his
#: own, which it takes where kernels grow.
BEND, KEYS = -0.75, -0.5


class Taps(NamedTuple):
    """Which of the old pixels along an axis make each new one, and by which weights: both (new pixels, taps).

    Where new pixels have several counts of taps, `used` tells which there are.
    """

    places: NDArray[np.integer]
    weights: NDArray[np.floating]
    used: NDArray[np.bool_] | bool = True

    def of_pixels(self, numbers: NDArray, tap: int, axis: int) -> NDArray:
        """The pixels along an axis that a tap takes, 0 where it takes none."""
        pixels = numbers.take(self.places[:, tap], axis)
        if isinstance(self.used, bool):
            return pixels
        shape = [-1 if number == axis else 1 for number in range(numbers.ndim)]
        return np.where(self.used[:, tap].reshape(shape), pixels, 0)


def source_positions(size: int, count: int, corners: bool, scale: float | None) -> NDArray[np.floating]:
    """Where `count` new pixels lie among `size` old ones; at the same corners, or within the same border."""
    if corners:
        return np.arange(count) * ((size - 1) / (count - 1) if count > 1 else 0.0)
    step = 1 / scale if scale else size / count
    return (np.arange(count) + 0.5) * step - 0.5


def linear(size: int, count: int, corners: bool, scale: float | None) -> Taps:
    """The two neighbours, each times its nearness."""
    at = np.clip(source_positions(size, count, corners, scale), 0, None)
    first = np.minimum(np.floor(at).astype(np.int64), size - 1)
    share = np.clip(at - first, 0, 1)
    return Taps(np.stack([first, np.minimum(first + 1, size - 1)], 1), np.stack([1 - share, share], 1))


def cubic(size: int, count: int, corners: bool, scale: float | None) -> Taps:
    """The four neighbours, each times the cubic convolution kernel of its distance."""
    at = source_positions(size, count, corners, scale)
    first = np.floor(at).astype(np.int64)
    distances = np.abs((at - first)[:, np.newaxis] - np.arange(-1, 3))
    return Taps(np.clip(first[:, np.newaxis] + np.arange(-1, 3), 0, size - 1), convolution(distances, BEND))


def convolution(distances: NDArray, bend: float) -> NDArray:
    """The cubic convolution kernel, which ends at 2."""
    near = ((bend + 2) * distances - (bend + 3)) * distances * distances + 1
    far = ((bend * distances - 5 * bend) * distances + 8 * bend) * distances - 4 * bend
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0.0))


def antialiasing_kernel(kernel: Callable[[NDArray], NDArray], width: int) -> Kernel:
    """All pixels below a kernel of this width that grows as images shrink, whose weights add up to 1."""

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
    """1 - d, and 0 from 1 on."""
    return np.maximum(1 - distances, 0)


Kernel = Callable[[int, int, bool, float | None], Taps]


def taps_of(kernel: Kernel, old: Sizes, new: Sizes, corners: bool, scales: Sequence[float | None]) -> list[Taps]:
    """The taps along every axis of images."""
    factors = [*scales, *[None] * (len(new) - len(scales))]
    return [kernel(size, count, corners, scale) for size, count, scale in zip(old[2:], new, factors, strict=True)]


def resample(
    call: RuleCall, x: torch.Tensor, size: Sizes, corners: bool, *scales: float | None, kernel: Kernel
) -> torch.Tensor:
    """Images of another size: along the last axis first, the products in their order, each added to the sum so far."""
    pixels = numbers_of(x)
    call.begin()
    for back, taps in enumerate(reversed(taps_of(kernel, x.shape, size, corners, scales))):
        # Weights are operands in float64: they are no numbers of the program, and no role of a policy rounds them.
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
    """The gradient of images: along the first axis first, the products for each old pixel added in their order."""
    gradient = numbers_of(g)
    call.begin()
    for axis, (places, weights, used) in enumerate(taps_of(kernel, old, size, corners, scales), 2):
        rows = np.moveaxis(gradient, axis, 0)
        shape = (old[axis], math.prod(rows.shape[1:]))
        terms = call.multiply(rows[:, np.newaxis], weights.reshape(*weights.shape, *[1] * (rows.ndim - 1)))
        if not isinstance(used, bool):
            terms, places = terms[used], places[used]
        total = call.added_rows(terms, places.reshape(-1), shape)
        gradient = np.moveaxis(total.reshape(shape[0], *rows.shape[1:]), 0, axis)
    return call.tensor(gradient)


#: By PyTorch's name.
TABLE: dict[str, Any] = {
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
