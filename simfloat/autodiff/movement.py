"""Operations that give numbers another shape.

Their results are not rounded, and keep their format; gradients are rounded, to the role of what they reach. A parameter
in another shape, as in `x @ w.T`, is still a parameter to what reads it: its cast, its gradient's role, its rotation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.operand_bounds import first_outside_format
from simfloat.arithmetic.machines import freeze
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff.record import Operations, Result, begin, finish, round_to_shape
from simfloat.autodiff.variable import Variable
from simfloat.checks import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, Format


@in_usual_environment
class Reshaping(Operations[Result]):
    """The shapes of a tensor's numbers."""

    def reshape(self, *shape: Any) -> Result:
        """Give the numbers another shape: sizes one by one or in a tuple; one size may be -1, for all that is left.

        Raises ValueError unless the shape has as many elements.
        """
        sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        started, before = begin("reshape", self), self.shape
        used = started.operands[0]
        try:
            view = viewable_numbers(used).reshape(sizes)
        except (TypeError, ValueError):
            raise ValueError(
                f"reshape needs integers whose product is {self.size}, the size of shape {before}, one of them may be "
                f"-1; got {', '.join(map(repr, sizes))}."
            ) from None
        return self.from_result(
            finish(started, view, used.format, lambda u, g: u.round(g.reshape(before)), is_view=True)
        )

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Result:
        """The axes from `start_dim` to `end_dim` as one; what has no axes gets one.

        Raises ValueError unless both are axes and the first is not behind the last.
        """
        ndim = max(self.ndim, 1)
        if not (is_integer(start_dim, -ndim, ndim - 1) and is_integer(end_dim, -ndim, ndim - 1)):
            raise ValueError(f"flatten needs axes from {-ndim} to {ndim - 1}, got {start_dim!r} to {end_dim!r}.")
        first, last = start_dim % ndim, end_dim % ndim
        if first > last:
            raise ValueError(f"flatten joins axes from the first to the last, got {start_dim} to {end_dim} of {ndim}.")
        sizes = self.shape or (1,)
        return self.reshape(*sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :])

    def pad(self, pad: Sequence[int], value: float = 0.0) -> Result:
        """Put a constant around the numbers, as torch.nn.functional.pad does.

        pad is (before, after) of the last axis, then of the one before it, and so on. `value` is rounded to the
        tensor's format.

        Raises ValueError for widths that are no integers from 0, more of them than there are axes, and for a `value`
        that is not one number.
        """
        widths = tuple(pad) if isinstance(pad, tuple | list) else (pad,)
        if len(widths) % 2 or len(widths) > 2 * self.ndim or not all(is_integer(width, 0) for width in widths):
            raise ValueError(
                f"pad takes a pair of integers from 0 for each of the last axes, the last one first; a tensor of shape "
                f"{self.shape} got {pad!r}."
            )
        started, constant = begin("pad", self), as_operand(value, "value")
        used = started.operands[0]
        if constant.ndim:
            raise ValueError(f"pad takes one number as the value around the others, got {value!r}.")
        if used.format is not None:
            constant = started.place.round_constant(constant, used.format)
        before = [(0, 0)] * (used.ndim - len(widths) // 2)
        around = before + list(zip(widths[-2::-2], widths[:0:-2], strict=True))
        inside = tuple(slice(first, first + size) for (first, _), size in zip(around, used.shape, strict=True))
        dtype = used.numbers.dtype if is_number_of(FP32, constant) else np.float64
        shape = [first + size + last for (first, last), size in zip(around, used.shape, strict=True)]
        padded = np.full_like(used.numbers, constant[()], dtype, order="C", shape=shape)
        padded[inside] = used.numbers
        return self.from_result(finish(started, padded, used.format, lambda u, g: u.round(g[inside])))

    def transpose(self, *axes: Any) -> Result:
        """The axes in another order, given one by one or as a tuple; reversed if none is given.

        Raises ValueError unless every axis is named once.
        """
        order = _order(axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes, self.ndim)
        inverse = tuple(int(i) for i in np.argsort(order))
        started = begin("transpose", self)
        used = started.operands[0]
        view = viewable_numbers(used).transpose(order)
        return self.from_result(
            finish(started, view, used.format, lambda u, g: u.round(g.transpose(inverse)), is_view=True)
        )

    @property
    def T(self) -> Result:
        """The axes in reversed order."""
        return self.transpose()

    def swapaxes(self, first: int, second: int) -> Result:
        """Two axes exchanged."""
        i, j = (axis_number(axis, self.ndim, "swapaxes") for axis in (first, second))
        order = list(range(self.ndim))
        order[i], order[j] = j, i
        return self.transpose(order)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Result:
        """Without axes of size one: all of them, or those named. Raises ValueError for a named axis of another size."""
        named: Sequence[int] = axis if isinstance(axis, tuple | list) else () if axis is None else (axis,)
        dropped = [axis_number(one, self.ndim, "squeeze") for one in named]
        if axis is None:
            dropped = [i for i, size in enumerate(self.shape) if size == 1]
        if any(self.shape[i] != 1 for i in dropped):
            raise ValueError(f"squeeze drops axes of size one; axis {axis!r} of shape {self.shape} is none.")
        return self.reshape([size for i, size in enumerate(self.shape) if i not in dropped])

    def unsqueeze(self, axis: int) -> Result:
        """With a new axis of size one, at the place `axis` of the result."""
        place = axis_number(axis, self.ndim + 1, "unsqueeze")
        return self.reshape([*self.shape[:place], 1, *self.shape[place:]])

    def broadcast_to(self, shape: Sequence[int]) -> Result:
        """The numbers repeated to fill `shape`, by NumPy's rules; their gradients are added through `reduce`."""
        started, before = begin("broadcast_to", self), self.shape
        used = started.operands[0]
        try:
            view = np.broadcast_to(used.numbers, tuple(shape))
        except (TypeError, ValueError):
            raise ValueError(f"Shape {before} does not broadcast to {shape!r}.") from None
        return self.from_result(
            finish(started, view, used.format, lambda u, g: round_to_shape(u, g, before), is_view=True)
        )


def viewable_numbers(a: Variable) -> NDArray:
    """The numbers for views of them. Those of a parameter are read-only: it must know of what is written to it."""
    if not a.is_weight:
        return a.numbers
    view = a.numbers.view()
    freeze(view)
    return view


def is_number_of(format: Format | None, constant: NDArray) -> bool:
    """Whether a constant is a number of the format; every one is where nothing is known."""
    return format is None or first_outside_format(constant, format) is None


def axis_number(axis: Any, ndim: int, operation: str) -> int:
    """An axis as a number from 0; ValueError naming the operation where there is none."""
    if not is_integer(axis, -ndim, ndim - 1):
        raise ValueError(f"{operation} needs an axis from {-ndim} to {ndim - 1}, got {axis!r}.")
    return int(axis) % ndim


def _order(axes: Sequence[Any], ndim: int) -> tuple[int, ...]:
    """Axes as numbers from 0 on, in the order given."""
    if not axes:
        return tuple(reversed(range(ndim)))
    integers = all(isinstance(axis, int | np.integer) for axis in axes)
    order = tuple(int(axis) + ndim if axis < 0 else int(axis) for axis in axes) if integers else ()
    if sorted(order) != list(range(ndim)):
        swapped = f" To exchange two axes, call swapaxes({axes[0]}, {axes[1]})." if len(axes) == 2 else ""
        raise ValueError(f"transpose needs each of the {ndim} axes once, got {', '.join(map(str, axes))}.{swapped}")
    return order
