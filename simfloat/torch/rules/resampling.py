"""Images in another size, forward and backward: each pixel is a sum of a few of the old ones, times exact weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.handlers import Ruled
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensor_arrays import numbers_of

Sizes = Sequence[int]

#: The bend of the cubic convolution kernel: Keys, IEEE TASSP 29(6), 1981, with the value that PyTorch takes.
BEND = -0.75


class Taps(NamedTuple):
    """Which of the old pixels along an axis make each new one, and by which weights: both (new pixels, taps)."""

    places: NDArray[np.integer]
    weights: NDArray[np.floating]


def sources(size: int, count: int, corners: bool, scale: float | None) -> NDArray[np.floating]:
    """Where `count` new pixels lie among `size` old ones; at the same corners, or within the same border."""
    if corners:
        return np.arange(count) * ((size - 1) / (count - 1) if count > 1 else 0.0)
    step = 1 / scale if scale else size / count
    return (np.arange(count) + 0.5) * step - 0.5


def linear(size: int, count: int, corners: bool, scale: float | None) -> Taps:
    """The two neighbours, each times its nearness."""
    at = np.clip(sources(size, count, corners, scale), 0, None)
    first = np.minimum(np.floor(at).astype(np.int64), size - 1)
    share = np.clip(at - first, 0, 1)
    return Taps(np.stack([first, np.minimum(first + 1, size - 1)], 1), np.stack([1 - share, share], 1))


def cubic(size: int, count: int, corners: bool, scale: float | None) -> Taps:
    """The four neighbours, each times the cubic convolution kernel of its distance."""
    at = sources(size, count, corners, scale)
    first = np.floor(at).astype(np.int64)
    distances = np.abs((at - first)[:, np.newaxis] - np.arange(-1, 3))
    near = ((BEND + 2) * distances - (BEND + 3)) * distances * distances + 1
    far = ((BEND * distances - 5 * BEND) * distances + 8 * BEND) * distances - 4 * BEND
    return Taps(np.clip(first[:, np.newaxis] + np.arange(-1, 3), 0, size - 1), np.where(distances <= 1, near, far))


Kernel = Callable[[int, int, bool, float | None], Taps]


def taps_of(kernel: Kernel, old: Sizes, new: Sizes, corners: bool, scales: Sequence[float | None]) -> list[Taps]:
    """The taps along every axis of images."""
    factors = [*scales, *[None] * (len(new) - len(scales))]
    return [kernel(size, count, corners, scale) for size, count, scale in zip(old[2:], new, factors, strict=True)]


def resampled(
    call: RuleCall, x: torch.Tensor, size: Sizes, corners: bool, *scales: float | None, kernel: Kernel
) -> torch.Tensor:
    """Images of another size: along the last axis first, the products in their order, each added to the sum so far."""
    numbers = numbers_of(x)
    call.begin((*x.shape[:2], *size))
    for back, (places, weights) in enumerate(reversed(taps_of(kernel, x.shape, size, corners, scales))):
        weights = weights.reshape(*weights.shape, *[1] * back)
        axis = numbers.ndim - 1 - back
        terms = [call.multiply(numbers.take(places[:, t], axis), weights[:, t]) for t in range(places.shape[1])]
        numbers = terms[0]
        for term in terms[1:]:
            numbers = call.add(numbers, term)
    return call.tensor(numbers)


def resampled_backward(
    call: RuleCall, g: torch.Tensor, size: Sizes, old: Sizes, corners: bool, *scales: float | None, kernel: Kernel
) -> torch.Tensor:
    """The gradient of images: along the first axis first, the products for each old pixel added in their order."""
    numbers = numbers_of(g)
    call.begin(old)
    for axis, (places, weights) in enumerate(taps_of(kernel, old, size, corners, scales), 2):
        rows = np.moveaxis(numbers, axis, 0)
        shape = (old[axis], math.prod(rows.shape[1:]))
        terms = call.multiply(rows[:, np.newaxis], weights.reshape(*weights.shape, *[1] * (rows.ndim - 1)))
        total = call.added_rows(terms, places.reshape(-1), shape)
        numbers = np.moveaxis(total.reshape(shape[0], *rows.shape[1:]), 0, axis)
    return call.tensor(numbers)


#: By PyTorch's name.
TABLE: dict[str, Any] = {
    f"upsample_{name}{ending}": Ruled("interpolate", partial(rule, kernel=kernel))
    for name, kernel in (("linear1d", linear), ("bilinear2d", linear), ("trilinear3d", linear), ("bicubic2d", cubic))
    for ending, rule in (("", resampled), ("_backward", resampled_backward))
}
