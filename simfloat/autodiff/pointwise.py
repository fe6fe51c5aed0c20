"""The pointwise operations of tensors: a method for each function of the catalog, and for operations that select
values.

A table row defines an operation and its gradients, and is the method. In its functions, `u` is the arithmetic of the
backward pass, which rounds every operation as the policy says; `g` is the gradient of the result `y`, and `a`, `b`,
`c` are the operands. The catalog defines the meaning of the operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.catalog import FUNCTIONS, OPERATIONS, REPRESENTABLE, Operation
from simfloat.arithmetic.representable import exact_values
from simfloat.arithmetic.spacing import clamp, clip_by_extremes, larger, smaller
from simfloat.autodiff.record import (
    Operand,
    Operations,
    Reads,
    begin,
    finish,
    round_to_shape,
)
from simfloat.autodiff.variable import Derivative
from simfloat.environment import in_usual_environment
from simfloat.simulation.formulas import Slope, activations, slopes, sum_to_shape

T = TypeVar("T")


class Differentiable:
    """One pointwise operation with its derivatives.

    Parameters:
        slopes: for each operand a function that computes its gradient; its first argument is the arithmetic.
        passes: True if the slopes pass the gradient on unchanged or negated, to be rounded at its target.
        reads: the arrays that the slopes read: the "operands", each the "other", the "result" or "both"; other arrays
            are passed as None.
        forward: the function that computes the result; by default the operation with the name of the row.
        operation: the name under which it is recorded, if it is a case of another operation.
        meaning: the docstring of the method; by default the meaning in the catalog.
    """

    def __init__(
        self,
        *slopes: Slope,
        passes: bool = False,
        reads: Reads = "operands",
        forward: Callable[..., NDArray] | None = None,
        operation: str = "",
        meaning: str = "",
    ) -> None:
        self.slopes, self.passes, self.forward, self.operation = slopes, passes, forward, operation
        self._reads: Reads = "" if passes else reads
        self.__doc__ = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__, self.__qualname__ = name, f"{owner.__name__}.{name}"
        self.operation = self.operation or name
        self.__doc__ = self.__doc__ or OPERATIONS[name].meaning

    def __call__(self, tensor: Any, *others: Operand) -> Any:
        """Compute the operation as a method of a tensor, on other tensors, arrays and numbers."""
        if len(others) != len(self.slopes) - 1:
            takes = f"{len(self.slopes) - 1} operand{'' if len(self.slopes) == 2 else 's'} in addition to the tensor"
            raise TypeError(f"{self.__qualname__} takes {takes}, got {len(others)}.")
        started = begin(self.operation, tensor, *others)
        arrays, arithmetic = [x.numbers for x in started.operands], started.forward
        result = self.forward(arithmetic, *arrays) if self.forward else arithmetic.apply(self.__name__, *arrays)
        # Do not keep arrays that no derivative reads.
        y = result if self._reads in ("result", "both") else None
        read = arrays if self._reads not in ("", "result") else [None] * len(arrays)
        derivatives = [self._derivative(slope, x.shape, y, read) for slope, x in zip(self.slopes, arrays, strict=True)]
        return tensor.from_result(finish(started, result, arithmetic.target.format, *derivatives, reads=self._reads))

    def _derivative(
        self, slope: Slope, shape: tuple[int, ...], y: NDArray | None, read: Sequence[NDArray | None]
    ) -> Derivative:
        reach = round_to_shape if self.passes else sum_to_shape
        return lambda arithmetic, g: reach(arithmetic, slope(arithmetic, g, y, *read), shape)


class Unary(Differentiable):
    """An operation with one operand: a method without arguments."""

    @overload
    def __get__(self, tensor: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tensor: Operations[T], owner: type) -> Callable[[], T]: ...
    def __get__(self, tensor: Operations[T] | None, owner: type) -> Self | Callable[[], T]:
        return self if tensor is None else MethodType(self, tensor)


class Binary(Differentiable):
    """An operation with two operands: a method that takes the second one."""

    @overload
    def __get__(self, tensor: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tensor: Operations[T], owner: type) -> Callable[[Operand], T]: ...
    def __get__(self, tensor: Operations[T] | None, owner: type) -> Self | Callable[[Operand], T]:
        return self if tensor is None else MethodType(self, tensor)


class Ternary(Differentiable):
    """An operation with three operands: a method that takes the second and the third one."""

    @overload
    def __get__(self, tensor: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tensor: Operations[T], owner: type) -> Callable[[Operand, Operand], T]: ...
    def __get__(self, tensor: Operations[T] | None, owner: type) -> Self | Callable[[Operand, Operand], T]:
        return self if tensor is None else MethodType(self, tensor)


class Bounded(Differentiable):
    """An operation with an operand and two bounds: a method that takes `min`, `max`, or both."""

    @overload
    def __get__(self, tensor: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tensor: Operations[T], owner: type) -> Callable[..., T]: ...
    def __get__(self, tensor: Operations[T] | None, owner: type) -> Self | Callable[..., T]:
        return self if tensor is None else MethodType(self, tensor)

    def __call__(  # type: ignore[override]
        self, tensor: Any, min: Operand | None = None, max: Operand | None = None
    ) -> Any:
        """Compute the operation as a method of a tensor."""
        if min is None and max is None:
            raise ValueError(f"{self.__name__} needs min, max or both, got neither.")
        return super().__call__(tensor, -math.inf if min is None else min, math.inf if max is None else max)


#: The operations as which observers count functions with results that float64 represents, also in PyTorch models; by
#: default ``clip``.
RECORDED_AS = {"copysign": "abs"}

if TYPE_CHECKING:
    from simfloat.arithmetic.typed_functions import Methods
else:
    X, Y = TypeVar("X"), TypeVar("Y")

    class Methods(Generic[X, Y]):
        """The functions of the catalog, which are added at the end of this module."""


@in_usual_environment
class Pointwise(Operations[T], Methods[Operand, T]):
    """The pointwise operations of a tensor."""

    negative = Unary(lambda u, g, y, a: u.round(-g), forward=lambda u, a: u.round(-a))
    abs = Unary(slopes.signed, forward=lambda u, a: u.round(np.abs(a)))
    relu = Unary(slopes.relu, forward=slopes.positive_part, reads="result")
    leaky_relu = Binary(activations.leaky_relu_slope, activations.leaky_relu_to_slope, forward=activations.leaky_relu)
    maximum = Binary(
        lambda u, g, y, a, b: slopes.share(u, g, a, b),
        lambda u, g, y, a, b: slopes.share(u, g, b, a),
        forward=lambda u, a, b: u.round(larger(a, b)),
    )
    minimum = Binary(
        lambda u, g, y, a, b: slopes.share(u, g, -a, -b),
        lambda u, g, y, a, b: slopes.share(u, g, -b, -a),
        forward=lambda u, a, b: u.round(smaller(a, b)),
    )
    clip = Bounded(
        activations.clip_to_x,
        activations.clip_to_low,
        activations.clip_to_high,
        forward=lambda u, a, low, high: u.round(clip_by_extremes(a, low, high)),
    )
    hardtanh = Bounded(
        activations.hardtanh_to_x,
        activations.hardtanh_to_low,
        activations.hardtanh_to_high,
        forward=lambda u, a, low, high: u.round(clamp(a, low, high)),
        operation="clip",
        meaning="max(min(x, max), min); at both bounds its derivative is 0, unlike that of `clip`.",
    )
    square = Unary(
        slopes.square,
        forward=lambda u, a: u.multiply(a, a),
        operation="multiply",
        meaning="a * a, as one product; its derivative is g * (2 * a).",
    )


def _row_of(function: Operation) -> Differentiable:
    """Return a function of the catalog as a row."""
    kind = (Unary, Binary, Ternary)[len(function.operands) - 1]
    derivatives = function.slopes or (function.name,)
    is_representable = function.name in REPRESENTABLE
    return kind(
        *(getattr(slopes, slope) if isinstance(slope, str) else slope for slope in derivatives),
        passes=function.passes,
        reads=function.reads,
        forward=(lambda u, *arrays: u.round(exact_values(function.name, list(arrays)))) if is_representable else None,
        operation=RECORDED_AS.get(function.name, "clip") if is_representable else "",
        meaning=function.meaning,
    )


for _name, _function in (FUNCTIONS | REPRESENTABLE).items():
    setattr(Pointwise, _name, _row_of(_function))
    getattr(Pointwise, _name).__set_name__(Pointwise, _name)

#: All rows by name.
DIFFERENTIABLE: dict[str, Differentiable] = {
    name: row for name, row in vars(Pointwise).items() if isinstance(row, Differentiable)
}
