"""Sums, means and maxima, each with its derivative beside it. Sums go through the policy's `reduce`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.extremes import place_of_largest, place_of_least
from simfloat.autodiff.record import Operations, Result, begin, finish
from simfloat.checks import check_flags, is_integer
from simfloat.environment import in_usual_environment
from simfloat.formulas.rounded import keepdims_shape
from simfloat.simulation.arithmetic import Arithmetic

Axes = int | Sequence[int] | None


@in_usual_environment
class Reductions(Operations[Result]):
    """The reductions of a tensor, over all axes by default."""

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """The sum over `axis`, through the policy's `reduce`, in row-major order."""
        check_flags(keepdims=keepdims)
        started = begin("sum", self)
        axes, shape, u = normalized_axes(axis, self.ndim), self.shape, started.forward
        total = u.sum(started.operands[0].numbers, axes)
        result = total.reshape(keepdims_shape(shape, axes)) if keepdims else total
        return self.from_result(finish(started, result, u.format, lambda u, g: _spread(u.round(g), shape, axes)))

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """The sum over `axis`, divided by the number of terms: two roundings."""
        check_flags(keepdims=keepdims)
        started = begin("mean", self)
        axes, shape, u = normalized_axes(axis, self.ndim), self.shape, started.forward
        count = np.array(float(math.prod(shape[i] for i in axes)))
        average = u.divide(u.sum(started.operands[0].numbers, axes), count)
        result = average.reshape(keepdims_shape(shape, axes)) if keepdims else average
        return self.from_result(
            finish(started, result, u.format, lambda u, g: _spread(u.divide(g, count), shape, axes))
        )

    def max(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """The largest element along `axis`; the gradient goes to the first one that is."""
        return self._extreme("max", axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """The smallest element along `axis`; the gradient goes to the first one that is."""
        return self._extreme("min", axis, keepdims)

    def _extreme(self, operation: str, axis: Axes, keepdims: bool) -> Result:
        check_flags(keepdims=keepdims)
        started = begin(operation, self)
        axes, shape = normalized_axes(axis, self.ndim), self.shape
        last = range(-len(axes), 0)
        moved = np.moveaxis(started.operands[0].numbers, axes, last)
        rows = moved.reshape(*moved.shape[: len(shape) - len(axes)], math.prod(shape[i] for i in axes))
        if not rows.shape[-1]:
            raise ValueError(
                f"{operation} needs at least one element along axis {axis!r} of a tensor of shape {shape}."
            )
        first = (place_of_largest if operation == "max" else place_of_least)(rows, -1)[..., np.newaxis]

        def derivative(u: Arithmetic, g: NDArray) -> NDArray:
            full = np.zeros(rows.shape, g.dtype, like=g)
            np.put_along_axis(full, first, g.reshape(first.shape), -1)
            return u.round(np.moveaxis(full.reshape(moved.shape), last, axes))

        u = started.forward
        extreme = u.round(np.take_along_axis(rows, first, -1)[..., 0])
        result = extreme.reshape(keepdims_shape(shape, axes)) if keepdims else extreme
        return self.from_result(finish(started, result, u.format, derivative))


def normalized_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """Axes as ascending non-negative numbers; all of them for None.

    Raises ValueError for an axis that is not there or comes twice.
    """
    if axis is None:
        return tuple(range(ndim))
    axis_numbers: Sequence[Any] = axis if isinstance(axis, tuple | list) else (axis,)
    axes = sorted({int(a) % ndim for a in axis_numbers if is_integer(a, -ndim, ndim - 1)})
    if len(axes) < len(axis_numbers):
        raise ValueError(f"axis {axis!r} does not name distinct axes of a tensor that has {ndim}.")
    return tuple(axes)


def _spread(g: NDArray, shape: tuple[int, ...], axes: tuple[int, ...]) -> NDArray:
    """A reduction's gradient, repeated for every element that was reduced."""
    return np.broadcast_to(g.reshape(keepdims_shape(shape, axes)), shape)
