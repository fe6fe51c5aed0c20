"""Sums, means and maxima of tensors, each with its derivative beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.place import Unit
from simfloat.autodiff.record import begin, finish
from simfloat.autodiff.tensor import Tensor

Axes = int | Sequence[int] | None


def sum(a: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`, through the policy's accumulator, in row-major order."""
    place = begin("sum", a)
    axes, shape = normalized_axes(axis, a.ndim), a.shape
    total = place.forward.sum(a.data, axes)
    data = total.reshape(_kept(shape, axes)) if keepdims else total
    return finish(place, data, (a,), lambda unit, g: _spread(unit.round(g), shape, axes))


def mean(a: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`, divided by the number of terms: two roundings."""
    place = begin("mean", a)
    axes, shape = normalized_axes(axis, a.ndim), a.shape
    count = np.array(float(math.prod(shape[i] for i in axes)))
    average = place.forward.apply("divide", place.forward.sum(a.data, axes), count)
    data = average.reshape(_kept(shape, axes)) if keepdims else average
    return finish(place, data, (a,), lambda unit, g: _spread(unit.apply("divide", g, count), shape, axes))


def maximum(a: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element along `axis`; the gradient goes to the first one that is."""
    place = begin("max", a)
    axes, shape = normalized_axes(axis, a.ndim), a.shape
    last = range(-len(axes), 0)
    moved = np.moveaxis(a.data, axes, last)
    rows = moved.reshape(*moved.shape[: a.ndim - len(axes)], math.prod(shape[i] for i in axes))
    first = rows.argmax(-1)[..., np.newaxis]

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        full = np.zeros(rows.shape, g.dtype)
        np.put_along_axis(full, first, g.reshape(first.shape), -1)
        return unit.round(np.moveaxis(full.reshape(moved.shape), last, axes))

    largest = place.forward.round(np.take_along_axis(rows, first, -1)[..., 0])
    return finish(place, largest.reshape(_kept(shape, axes)) if keepdims else largest, (a,), derivative)


def normalized_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """Axes as ascending non-negative numbers; all of them for None.

    Raises ValueError for an axis that is not there or comes twice.
    """
    given = range(ndim) if axis is None else (axis,) if isinstance(axis, int | np.integer) else tuple(axis)
    axes = sorted(int(a) + ndim if a < 0 else int(a) for a in given)
    if any(not 0 <= a < ndim for a in axes) or len(set(axes)) < len(axes):
        raise ValueError(f"axis {axis!r} does not name distinct axes of a tensor that has {ndim}.")
    return tuple(axes)


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _spread(g: NDArray, shape: tuple[int, ...], axes: tuple[int, ...]) -> NDArray:
    """A reduction's gradient, repeated for every element that was reduced."""
    return np.broadcast_to(g.reshape(_kept(shape, axes)), shape)
