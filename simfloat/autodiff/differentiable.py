"""How a pointwise operation is carried out and how its gradients go back: a row of the table, and a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Self, TypeVar, overload

from numpy.typing import NDArray

from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.autodiff.record import (
    Operand,
    OperationResult,
    Operations,
    Reads,
    begin,
    finish,
    round_to_shape,
    sum_to_shape,
)
from simfloat.autodiff.variable import Derivative, as_variable
from simfloat.formulas.rounded import Slope

T = TypeVar("T")


class Differentiable:
    """One pointwise operation with its derivatives.

    slopes: for each operand the gradient with respect to it, computed with the arithmetic that comes first.
    passes: they hand the gradient on as it is or with its sign changed, to be rounded where it arrives.
    reads: which arrays they need, the "operands", each the "other", the "result" or "both"; where they need no
        operand, or not the result, they are given None.
    forward: how the result is computed, by default by the operation of the row's name.
    operation: as what it is recorded, where it is a case of another operation.
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

    def carry_out(self, *operands: Operand) -> OperationResult:
        """The operation on tensors, arrays and numbers."""
        started = begin(self.operation, *map(as_variable, operands))
        arrays, arithmetic = [x.numbers for x in started.operands], started.forward
        result = self.forward(arithmetic, *arrays) if self.forward else arithmetic.apply(self.__name__, *arrays)
        # What no derivative reads is not kept for it.
        y = result if self._reads in ("result", "both") else None
        read = arrays if self._reads not in ("", "result") else [None] * len(arrays)
        derivatives = [self._derivative(slope, x.shape, y, read) for slope, x in zip(self.slopes, arrays, strict=True)]
        return finish(started, result, arithmetic.format, *derivatives, reads=self._reads)

    def _derivative(
        self, slope: Slope, shape: tuple[int, ...], y: NDArray | None, read: Sequence[NDArray | None]
    ) -> Derivative:
        reach = round_to_shape if self.passes else sum_to_shape
        return lambda arithmetic, g: reach(arithmetic, slope(arithmetic, g, y, *read), shape)

    def __call__(self, tensor: Any, *others: Operand) -> Any:
        """The operation as a method of a tensor."""
        if len(others) != len(self.slopes) - 1:
            takes = f"{len(self.slopes) - 1} operand{'' if len(self.slopes) == 2 else 's'} beside the tensor"
            raise TypeError(f"{self.__qualname__} takes {takes}, got {len(others)}.")
        return tensor.from_result(self.carry_out(tensor, *others))


class Unary(Differentiable):
    """One of one operand: a method without arguments."""

    @overload
    def __get__(self, tensor: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tensor: Operations[T], owner: type) -> Callable[[], T]: ...
    def __get__(self, tensor: Operations[T] | None, owner: type) -> Self | Callable[[], T]:
        return self if tensor is None else MethodType(self, tensor)


class Binary(Differentiable):
    """One of two operands: a method that takes the second."""

    @overload
    def __get__(self, tensor: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tensor: Operations[T], owner: type) -> Callable[[Operand], T]: ...
    def __get__(self, tensor: Operations[T] | None, owner: type) -> Self | Callable[[Operand], T]:
        return self if tensor is None else MethodType(self, tensor)


class Ternary(Differentiable):
    """One of three operands: a method that takes the second and the third."""

    @overload
    def __get__(self, tensor: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tensor: Operations[T], owner: type) -> Callable[[Operand, Operand], T]: ...
    def __get__(self, tensor: Operations[T] | None, owner: type) -> Self | Callable[[Operand, Operand], T]:
        return self if tensor is None else MethodType(self, tensor)


class Bounded(Differentiable):
    """One of an operand and two bounds: a method that takes `min`, `max`, or both."""

    @overload
    def __get__(self, tensor: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tensor: Operations[T], owner: type) -> Callable[..., T]: ...
    def __get__(self, tensor: Operations[T] | None, owner: type) -> Self | Callable[..., T]:
        return self if tensor is None else MethodType(self, tensor)

    def __call__(  # type: ignore[override]
        self, tensor: Any, min: Operand | None = None, max: Operand | None = None
    ) -> Any:
        """The operation as a method of a tensor."""
        if min is None and max is None:
            raise ValueError(f"{self.__name__} needs min, max or both, got neither.")
        return super().__call__(tensor, -math.inf if min is None else min, math.inf if max is None else max)
