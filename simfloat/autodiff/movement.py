"""Operations that move numbers. Their results are not rounded; gradients are, to the role of what they reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.place import Unit
from simfloat.autodiff.record import begin, finish
from simfloat.autodiff.tensor import Tensor


def reshape(a: Tensor, *shape: Any) -> Tensor:
    """The same numbers in another shape."""
    target = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    before = a.shape
    return finish(begin("reshape", a), a.data.reshape(target), (a,), lambda unit, g: unit.round(g.reshape(before)))


def transpose(a: Tensor, *axes: Any) -> Tensor:
    """The axes in another order, given one by one or as a tuple; reversed if none is given.

    Raises ValueError unless every axis is named once.
    """
    order = _order(axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes, a.ndim)
    inverse = tuple(int(i) for i in np.argsort(order))
    return finish(
        begin("transpose", a), a.data.transpose(order), (a,), lambda unit, g: unit.round(g.transpose(inverse))
    )


def _order(axes: Sequence[Any], ndim: int) -> tuple[int, ...]:
    """Axes as numbers from 0 on, in the order given."""
    if not axes:
        return tuple(reversed(range(ndim)))
    integers = all(isinstance(axis, int | np.integer) for axis in axes)
    order = tuple(int(axis) + ndim if axis < 0 else int(axis) for axis in axes) if integers else ()
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"transpose needs each of the {ndim} axes once, got {', '.join(map(str, axes))}.")
    return order


def index(a: Tensor, key: Any) -> Tensor:
    """Elements or slices of a tensor, by integers, slices, None and `...`."""
    parts = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(part, int | np.integer | slice) or part is None or part is Ellipsis for part in parts):
        raise ValueError(f"Tensors are indexed by integers, slices, None and ...; got {key!r}.")
    before = a.shape

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        full = np.zeros(before, g.dtype)
        full[key] = g
        return unit.round(full)

    return finish(begin("index", a), np.asarray(a.data[key]), (a,), derivative)


def pick(a: Tensor, labels: NDArray[np.integer]) -> Tensor:
    """For every row of `a` (..., classes) the element that `labels` (...) names."""
    places, before = labels[..., np.newaxis], a.shape

    def derivative(unit: Unit, g: NDArray) -> NDArray:
        full = np.zeros(before, g.dtype)
        np.put_along_axis(full, places, g[..., np.newaxis], -1)
        return unit.round(full)

    return finish(begin("index", a), np.take_along_axis(a.data, places, -1)[..., 0], (a,), derivative)
