"""Python's protocols of a tensor: a number if it has one element, an array to NumPy, comparisons."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from simfloat.arithmetic.extremes import place_of_largest
from simfloat.arithmetic.machines import as_array, device_of
from simfloat.arithmetic.numpy_protocol import refuse_readers
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff.variable import Variable
from simfloat.environment import in_usual_environment


def _refusing_method(sign: str, function: str) -> Callable[..., Any]:
    """A method for a sign of Python's that is no operation of a policy."""

    def method(self: Any, *_: Any) -> Any:
        raise ValueError(
            f"A tensor has no {sign}, which no policy rounds: take the numbers out, numpy.{function}(numpy.asarray(x), "
            "...), or write it in operations of tensors."
        )

    return method


@in_usual_environment
class Comparable(Variable):
    """The Python protocol of a tensor's numbers. Nothing here is an operation of a policy: nothing is rounded.

    Comparisons give boolean arrays. Python hashes tensors by identity.
    """

    __hash__ = object.__hash__

    def item(self) -> float:
        """The only element as a Python float; ValueError if there is not exactly one."""
        if self.numbers.size != 1:
            raise ValueError(f"Only a tensor of one element is a number; this one has the shape {self.numbers.shape}.")
        return float(self.numbers.item())

    def argmax(self, axis: int | None = None) -> Any:
        """The place of the largest element along an axis, or in row-major order, as numpy.argmax gives it."""
        return place_of_largest(self.numbers, axis)

    def __float__(self) -> float:
        return self.item()

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification) if specification else str(self)

    __floordiv__ = __rfloordiv__ = _refusing_method("//", "floor_divide")
    __mod__ = __rmod__ = _refusing_method("%", "remainder")
    __divmod__ = __rdivmod__ = _refusing_method("divmod", "divmod")
    __round__ = _refusing_method("round to decimal digits", "round")

    def __len__(self) -> int:
        if not self.numbers.ndim:
            raise TypeError(
                "A tensor without axes has no length. PyTorch takes a tensor's numbers by torch.as_tensor(x.data), "
                "others by numpy.asarray(x)."
            )
        return len(self.numbers)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        refuse_readers("tensors", "the policy and without a gradient")
        return np.array(getattr(self, "data", self.numbers), dtype, copy=copy)

    def _compare(self, compare: Callable[[Any, Any], Any], other: Any) -> NDArray[np.bool_]:
        """A comparison of the numbers with others, each as it is: NumPy would take Python's floats to float32."""
        try:
            operand = other.numbers if isinstance(other, Variable) else as_operand(other, "other")
        except ValueError as error:
            raise ValueError(f"A tensor is compared with numbers, got {type(other).__name__}: {error}") from None
        machine = device_of(self.numbers, operand)
        return as_array(compare(machine.to_device(self.numbers), machine.to_device(operand)))

    def __lt__(self, other: Variable | ArrayLike) -> NDArray[np.bool_]:
        return self._compare(operator.lt, other)

    def __le__(self, other: Variable | ArrayLike) -> NDArray[np.bool_]:
        return self._compare(operator.le, other)

    def __gt__(self, other: Variable | ArrayLike) -> NDArray[np.bool_]:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Variable | ArrayLike) -> NDArray[np.bool_]:
        return self._compare(operator.ge, other)

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._compare(operator.eq, other) if _holds_numbers(other) else as_array(self.numbers == other)

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._compare(operator.ne, other) if _holds_numbers(other) else as_array(self.numbers != other)


def _holds_numbers(x: object) -> bool:
    """Whether it may be equal to numbers: text and None are not, nor is what Python knows no more of."""
    return hasattr(x, "__float__") or hasattr(x, "__array__") or isinstance(x, list | tuple | complex)
