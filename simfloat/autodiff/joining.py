"""Operations that join tensors, choose between them, and split them.

Numbers are not rounded. The result's format is the one that its parts have in common; of several the narrowest of them
that holds the numbers of all, or else of the catalog; none if a part is data, of which nothing is known. A constant
without axes counts only if that format does not have it; a number that `where` puts among others is rounded to their
format. Gradients are rounded, to the role of what they reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array, device_of
from simfloat.arithmetic.target import carrier_of
from simfloat.autodiff.movement import axis_number, is_number_of, viewable_numbers
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
from simfloat.checks import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, Format
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.widest import widest_format


@in_usual_environment
class Joining(Operations[Result]):
    """The parts of a tensor, and numbers in the place of others."""

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Result, ...]:
        """The parts along `axis`: of the sizes given, or all of one size but a shorter last one."""
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
        """The elements along `axis`, which they lack, as iteration gives them along the first."""
        number = axis_number(axis, self.ndim, "unbind")
        return self._parts([(*(slice(None),) * number, i) for i in range(self.shape[number])])

    def _parts(self, keys: list[tuple[Any, ...]]) -> tuple[Result, ...]:
        """The parts at keys that share no element."""
        started = begin("split", self)
        used = started.operands[0]
        view = viewable_numbers(used)
        # An observer receives each element of a parameter's gradient once.
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
        """`value` where the mask holds, else the numbers themselves; see `where`."""
        return self.from_result(where(mask, value, self))


def concatenate(tensors: Sequence[Operand], axis: int = 0) -> OperationResult:
    """Tensors one after the other along an axis that they have."""
    parts = _variables(tensors, "concatenate")
    number = axis_number(axis, parts[0].ndim, "concatenate")
    shapes = [part.shape for part in parts]
    if len({(*shape[:number], -1, *shape[number + 1 :]) for shape in shapes}) > 1 or len({*map(len, shapes)}) > 1:
        raise ValueError(f"concatenate needs one shape but for axis {axis}, got {', '.join(map(str, shapes))}.")
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
    """Tensors of one shape along a new axis."""
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
    """The elements of `a` where the condition holds, else those of `b`; all three broadcast.

    A number, or a tensor without axes, beside a tensor with axes is rounded to that one's format: -1e9 in FP16 is -inf.
    """
    chosen = as_array(condition)
    if chosen.dtype != bool:
        raise ValueError(f"The condition of where holds truth values, as comparisons do; got dtype {chosen.dtype}.")
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
    """A number as `where` puts it among those of a format."""
    return x if format is None else Variable(started.place.round_constant(x.numbers, format), format=format)


def common_format(parts: Sequence[Variable]) -> Format | None:
    """The format of numbers that come from all of these; None if there is none that is known to hold them."""
    formats = {part.format: None for part in parts}
    if len(formats) == 1:
        return parts[0].format
    common = widest_format(format for format in formats if format is not None)
    others = (part for part in parts if part.format is None)
    return common if all(not part.ndim and is_number_of(common, part.numbers) for part in others) else None


def _in_result_type(x: Variable, format: Format | None) -> NDArray:
    """The numbers of an operand, in the array type that the result's take: a constant alone makes none float64."""
    if format is not None:
        return x.numbers.astype(carrier_of(format), copy=False)
    if not x.ndim and is_number_of(FP32, x.numbers):
        return x.numbers.astype(np.float32)
    return x.numbers


def _slice_derivative(key: tuple[Any, ...]) -> Derivative:
    return lambda u, g: u.round(g[key])


def _variables(tensors: Sequence[Operand], operation: str) -> list[Variable]:
    """The tensors to join, as variables."""
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
