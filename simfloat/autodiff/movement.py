"""Data movement: reshaping, joining, selecting, splitting, and elements by index.

Values are not rounded; gradients are rounded, to the role of their target.

Reshaped results keep their format. A reshaped parameter, as in `x @ w.T`, remains a parameter for the operation that
reads it: for its cast, the role of its gradient, and its rotation.

The format of joined tensors is the common format of the parts. If formats differ, it is the narrowest of them that
can represent the values of all, otherwise a wider one of the catalog. It is None if a part is data without a format.
A 0-dimensional constant counts only if it is not a number of that format; a value that `where` inserts is rounded to
the format of the other operand.

Indices are integers, slices, arrays of integers, and masks. Results keep their format. If an index occurs several
times, its gradients are summed with the accumulator `reduce` of the policy, in the row-major order of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array, device_of, freeze, is_on_gpu, on_device_of
from simfloat.arithmetic.numpy_protocol import elements
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.target import carrier_of
from simfloat.autodiff.record import (
    BegunOperation,
    Operand,
    OperationResult,
    Operations,
    Result,
    begin,
    copy_if_recorded,
    finish,
    round_to_shape,
)
from simfloat.autodiff.variable import Derivative, SplitPart, Variable, as_variable
from simfloat.common import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, Format
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.inside import add_rows
from simfloat.simulation.place import widest_format
from simfloat.sums.operands import first_outside_format


@in_usual_environment
class Reshaping(Operations[Result]):
    """The shape operations of a tensor."""

    def reshape(self, *shape: Any) -> Result:
        """Return the tensor in another shape, given as sizes or as a tuple; one size may be -1, for all that remains.

        Raises ValueError unless the shape has the same number of elements.
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
        """Merge the axes from `start_dim` to `end_dim` into one; a 0-dimensional tensor gets one.

        Raises ValueError unless both are axes in ascending order.
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
        """Put a constant around the values, as torch.nn.functional.pad does.

        `pad` is (before, after) of the last axis, then of the axis before it, and so on. `value` is rounded to the
        format of the tensor.

        Raises ValueError if the widths are not integers from 0, if there are more than two per axis, or if `value` is
        not one number.
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
            raise ValueError(f"The value of pad must be one number, got {value!r}.")
        if used.format is not None:
            constant = started.bound.place.round_constant(constant, used.format)
        before = [(0, 0)] * (used.ndim - len(widths) // 2)
        around = before + list(zip(widths[-2::-2], widths[:0:-2], strict=True))
        inside = tuple(slice(first, first + size) for (first, _), size in zip(around, used.shape, strict=True))
        dtype = used.numbers.dtype if is_number_of(FP32, constant) else np.float64
        shape = [first + size + last for (first, last), size in zip(around, used.shape, strict=True)]
        padded = np.full_like(used.numbers, constant[()], dtype, order="C", shape=shape)
        padded[inside] = used.numbers
        return self.from_result(finish(started, padded, used.format, lambda u, g: u.round(g[inside])))

    def transpose(self, *axes: Any) -> Result:
        """Return a view with the axes in another order, given one by one or as a tuple; without axes, in reversed
        order.

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
        """A view with the axes in reversed order."""
        return self.transpose()

    def swapaxes(self, first: int, second: int) -> Result:
        """Return a view with two axes exchanged."""
        i, j = (axis_number(axis, self.ndim, "swapaxes") for axis in (first, second))
        order = list(range(self.ndim))
        order[i], order[j] = j, i
        return self.transpose(order)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Result:
        """Remove axes of size one: all of them, or those in `axis`; ValueError if one of these has another size."""
        named: Sequence[int] = axis if isinstance(axis, tuple | list) else () if axis is None else (axis,)
        dropped = [axis_number(one, self.ndim, "squeeze") for one in named]
        if axis is None:
            dropped = [i for i, size in enumerate(self.shape) if size == 1]
        if any(self.shape[i] != 1 for i in dropped):
            raise ValueError(f"squeeze drops axes of size one; axis {axis!r} of shape {self.shape} has another size.")
        return self.reshape([size for i, size in enumerate(self.shape) if i not in dropped])

    def unsqueeze(self, axis: int) -> Result:
        """Insert an axis of size one at position `axis` of the result."""
        place = axis_number(axis, self.ndim + 1, "unsqueeze")
        return self.reshape([*self.shape[:place], 1, *self.shape[place:]])

    def broadcast_to(self, shape: Sequence[int]) -> Result:
        """Repeat the values to fill `shape`, by the rules of NumPy; gradients are summed with `reduce`."""
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
    """Return the values for views of them; a parameter returns them read-only, because writes to it must be noticed."""
    if not a.is_weight:
        return a.numbers
    view = a.numbers.view()
    freeze(view)
    return view


def is_number_of(format: Format | None, constant: NDArray) -> bool:
    """True if a constant is a number of the format, or the format is unknown."""
    return format is None or first_outside_format(constant, format) is None


def axis_number(axis: Any, ndim: int, operation: str) -> int:
    """Return an axis as a non-negative number; ValueError naming the operation if there is no such axis."""
    if not is_integer(axis, -ndim, ndim - 1):
        raise ValueError(f"{operation} needs an axis from {-ndim} to {ndim - 1}, got {axis!r}.")
    return int(axis) % ndim


def _order(axes: Sequence[Any], ndim: int) -> tuple[int, ...]:
    """Return axes as non-negative numbers in the given order."""
    if not axes:
        return tuple(reversed(range(ndim)))
    integers = all(isinstance(axis, int | np.integer) for axis in axes)
    order = tuple(int(axis) + ndim if axis < 0 else int(axis) for axis in axes) if integers else ()
    if sorted(order) != list(range(ndim)):
        swapped = f" To exchange two axes, call swapaxes({axes[0]}, {axes[1]})." if len(axes) == 2 else ""
        raise ValueError(f"transpose needs each of the {ndim} axes once, got {', '.join(map(str, axes))}.{swapped}")
    return order


@in_usual_environment
class Joining(Operations[Result]):
    """The parts of a tensor, and replaced elements."""

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Result, ...]:
        """Split along `axis` into parts of the given sizes, or of one size with a shorter last part."""
        number = axis_number(axis, self.ndim, "split")
        length = self.shape[number]
        lengths = list(sizes) if isinstance(sizes, tuple | list) else [-1]
        if isinstance(sizes, int | np.integer) and is_integer(sizes, 1):
            lengths = [min(int(sizes), length - start) for start in range(0, length, int(sizes))]
        if not all(is_integer(size, 0) for size in lengths) or sum(lengths) != length:
            raise ValueError(
                f"split needs a size from 1, or sizes that add up to {length} on axis {axis}, got {sizes!r}."
            )
        ends = np.cumsum(lengths).tolist()
        before = (slice(None),) * number
        return self._parts([(*before, slice(start, end)) for start, end in zip([0, *ends], ends, strict=False)])

    def unbind(self, axis: int = 0) -> tuple[Result, ...]:
        """Return the slices along `axis`, without this axis; iteration does this for the first axis."""
        number = axis_number(axis, self.ndim, "unbind")
        return self._parts([(*(slice(None),) * number, i) for i in range(self.shape[number])])

    def _parts(self, keys: list[tuple[Any, ...]]) -> tuple[Result, ...]:
        """Return the parts at keys that share no element."""
        started = begin("split", self)
        used = started.operands[0]
        view = viewable_numbers(used)
        # An observer receives each element of the gradient of a parameter once.
        derivative = _whole_derivative if used.is_weight else _part_derivative
        return tuple(
            [
                self.from_result(
                    finish(started, as_array(view[key]), used.format, derivative(started, key), is_view=True)
                )
                for key in keys
            ]
        )

    def masked_fill(self, mask: ArrayLike, value: Operand) -> Result:
        """Replace elements where `mask` is True by `value`; see `where`."""
        return self.from_result(where(mask, value, self))


def concatenate(tensors: Sequence[Operand], axis: int = 0) -> OperationResult:
    """Join tensors along an existing axis."""
    parts = _variables(tensors, "concatenate")
    number = axis_number(axis, parts[0].ndim, "concatenate")
    shapes = [part.shape for part in parts]
    if len({(*shape[:number], -1, *shape[number + 1 :]) for shape in shapes}) > 1 or len({*map(len, shapes)}) > 1:
        raise ValueError(f"concatenate needs equal shapes except along axis {axis}, got {', '.join(map(str, shapes))}.")
    started = begin("concatenate", *parts)
    parts = list(started.operands)
    ends = np.cumsum([shape[number] for shape in shapes]).tolist()
    before = (slice(None),) * number
    derivatives = [
        _slice_derivative((*before, slice(start, end))) for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    joined = np.concatenate([part.numbers for part in parts], number)
    return finish(started, joined, common_format(parts), *derivatives)


def stack(tensors: Sequence[Operand], axis: int = 0) -> OperationResult:
    """Join tensors of one shape along a new axis."""
    parts = _variables(tensors, "stack")
    number = axis_number(axis, parts[0].ndim + 1, "stack")
    if len({part.shape for part in parts}) > 1:
        raise ValueError(f"stack needs tensors of one shape, got {', '.join(str(part.shape) for part in parts)}.")
    started = begin("stack", *parts)
    parts = list(started.operands)
    before = (slice(None),) * number
    stacked = np.stack([part.numbers for part in parts], number)
    return finish(started, stacked, common_format(parts), *(_slice_derivative((*before, i)) for i in range(len(parts))))


def where(condition: ArrayLike, a: Operand, b: Operand) -> OperationResult:
    """Select elements of `a` where the condition is True, otherwise of `b`; all three are broadcast.

    A number or a 0-dimensional tensor is rounded to the format of an operand with axes: -1e9 in FP16 becomes -inf.
    """
    chosen = as_array(condition)
    if chosen.dtype != bool:
        raise ValueError(f"The condition of where must be an array of booleans, got dtype {chosen.dtype}.")
    a, b = as_variable(a), as_variable(b)
    try:
        np.broadcast_shapes(chosen.shape, a.shape, b.shape)
    except ValueError:
        raise ValueError(f"Shapes {chosen.shape}, {a.shape} and {b.shape} of where do not broadcast.") from None
    started, zero = begin("where", a, b), np.float32(0)
    a, b = started.operands
    counting = [x for x in (a, b) if x.ndim] or [x for x in (a, b) if x.format is not None] or [a, b]
    format = common_format(counting)
    x, y = (x if any(x is each for each in counting) else _constant_in_format(started, x, format) for x in (a, b))
    machine = device_of(a.numbers, b.numbers)
    chosen, x, y = map(
        machine.to_device, (copy_if_recorded(started, chosen), _in_result_type(x, format), _in_result_type(y, format))
    )
    a_shape, b_shape = a.shape, b.shape
    return finish(
        started,
        np.where(chosen, x, y),
        format,
        lambda u, g: round_to_shape(u, np.where(chosen, g, zero), a_shape),
        lambda u, g: round_to_shape(u, np.where(chosen, zero, g), b_shape),
    )


def _constant_in_format(started: BegunOperation, x: Variable, format: Format | None) -> Variable:
    """Round a constant to the format, if there is one."""
    return x if format is None else Variable(started.bound.place.round_constant(x.numbers, format), format=format)


def common_format(parts: Sequence[Variable]) -> Format | None:
    """Return a format that can represent the values of all parts; None if no such format is known."""
    formats = {part.format: None for part in parts}
    if len(formats) == 1:
        return parts[0].format
    common = widest_format(format for format in formats if format is not None)
    others = (part for part in parts if part.format is None)
    return common if all(not part.ndim and is_number_of(common, part.numbers) for part in others) else None


def _in_result_type(x: Variable, format: Format | None) -> NDArray:
    """Return the values of an operand in the array type of the result; a constant alone does not make it float64."""
    if format is not None:
        return x.numbers.astype(carrier_of(format), copy=False)
    if not x.ndim and is_number_of(FP32, x.numbers):
        return x.numbers.astype(np.float32)
    return x.numbers


def _slice_derivative(key: tuple[Any, ...]) -> Derivative:
    return lambda u, g: u.round(g[key])


def _variables(tensors: Sequence[Operand], operation: str) -> list[Variable]:
    """Return the tensors to join, as variables."""
    if not isinstance(tensors, list | tuple) or not tensors:
        got = repr(tensors) if isinstance(tensors, list | tuple) else f"a {type(tensors).__name__}"
        raise ValueError(f"{operation} takes a list or a tuple of at least one tensor, got {got}.")
    return [as_variable(tensor) for tensor in tensors]


def _part_derivative(by: BegunOperation, key: tuple[Any, ...]) -> Derivative:
    return lambda u, g: SplitPart(by, key, u.round(g))


def _whole_derivative(by: BegunOperation, key: tuple[Any, ...]) -> Derivative:
    shape = by.operands[0].shape

    def derivative(u: Arithmetic, g: NDArray) -> NDArray:
        full = np.zeros(shape, g.dtype, like=g)
        full[key] = g
        return u.round(full)

    return derivative


@in_usual_environment
class Indexing(Operations[Result]):
    """The elements of a tensor."""

    def __getitem__(self, key: Any) -> Result:
        """Return elements by integers, slices, None, `...`, arrays of integers and boolean masks, as NumPy does.

        Raises ValueError for other keys, and for indices out of range.
        """
        parts = tuple(_checked_index(part, key, self.numbers) for part in (key if isinstance(key, tuple) else (key,)))
        started, before = begin("index", self), self.shape
        used = started.operands[0]
        parts = tuple(
            copy_if_recorded(started, part) if hasattr(part, "dtype") and part.ndim else part for part in parts
        )
        try:
            chosen = as_array(elements(viewable_numbers(used), parts))
        except IndexError as error:
            raise ValueError(f"A tensor of shape {before} has no element at {key!r}: {error}.") from None

        def derivative(u: Arithmetic, g: NDArray) -> NDArray:
            full = np.zeros(before, g.dtype, like=g)
            full[parts] = g
            return u.round(full)

        def derivative_of_rows(u: Arithmetic, g: NDArray) -> NDArray:
            named = parts[0].astype(np.intp)
            places = np.where(named < 0, named + before[0], named).reshape(-1)
            return add_rows(u, g, places, (before[0], math.prod(before[1:]))).reshape(before)

        def derivative_of_elements(u: Arithmetic, g: NDArray) -> NDArray:
            count = math.prod(before)
            places = np.arange(count, like=used.numbers).reshape(before)[parts]
            return add_rows(u, g, places.reshape(-1), (count, 1)).reshape(before)

        arrays = [part for part in parts if isinstance(part, np.ndarray) or is_on_gpu(part)]
        if len(parts) == 1 and arrays and arrays[0].dtype != bool:
            return self.from_result(finish(started, chosen, used.format, derivative_of_rows))
        return self.from_result(
            finish(
                started,
                chosen,
                used.format,
                derivative_of_elements if arrays else derivative,
                is_view=not arrays,
            )
        )

    def embedding(self, places: NDArray[np.integer], padding: int | None = None) -> Result:
        """Return the rows of this table (rows, width) at the indices `places` (...); the row `padding` gets no
        gradient.
        """
        started, (count, width) = begin("embedding", self), self.shape
        table, places = started.operands[0], copy_if_recorded(started, places)

        def derivative(u: Arithmetic, g: NDArray) -> NDArray:
            rows, names = g.reshape(places.size, width), places.reshape(-1).astype(np.intp)
            if padding is not None:
                rows, names = rows[names != padding], names[names != padding]
            return add_rows(u, rows, names, (count, width))

        return self.from_result(finish(started, table.numbers[places], table.format, derivative))


def _checked_index(part: Any, key: Any, numbers: NDArray) -> Any:
    """Return one index of a key unchanged, or as an array of integers or booleans on the device of the values."""
    if is_integer(part) or isinstance(part, slice) or part is None or part is Ellipsis:
        return part
    if isinstance(part, list | np.ndarray) or is_on_gpu(part):
        array = on_device_of(as_array(part), numbers)
        if array.dtype.kind in "iub":
            return array
        if not array.size:
            return array.astype(np.intp)
    raise ValueError(
        f"Tensors are indexed by integers, slices, None, ..., and arrays of integers or booleans; got {key!r}."
    )
