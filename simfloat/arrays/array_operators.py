"""Operations of two arrays, and Python's operators for them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from simfloat.arrays.array_functions import ArrayFunctions
from simfloat.environment import in_usual_environment


@in_usual_environment
class ArrayOperators(ArrayFunctions):
    """What is computed of an array and another one, or a number: every element is rounded once."""

    def matmul(self, other: Any) -> Self:
        """The product of matrices or vectors."""
        raise NotImplementedError

    def _as_operand_array(self, x: Any) -> Self:
        """An operand as an array."""
        raise NotImplementedError

    def _write_in_place(self, result: Any) -> Self:
        """This array with the numbers of a result in the place of its own."""
        raise NotImplementedError

    def _compare(self, compare: Callable[[Any, Any], Any], other: Any) -> NDArray[np.bool_]:
        """Where a comparison holds."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Self:
        return self.add(other)

    def __sub__(self, other: Any) -> Self:
        return self.subtract(other)

    def __mul__(self, other: Any) -> Self:
        return self.multiply(other)

    def __truediv__(self, other: Any) -> Self:
        return self.divide(other)

    def __pow__(self, other: Any) -> Self:
        return self.power(other)

    def __matmul__(self, other: Any) -> Self:
        return self.matmul(other)

    def __radd__(self, other: Any) -> Self:
        return self._as_operand_array(other).add(self)

    def __rsub__(self, other: Any) -> Self:
        return self._as_operand_array(other).subtract(self)

    def __rmul__(self, other: Any) -> Self:
        return self._as_operand_array(other).multiply(self)

    def __rtruediv__(self, other: Any) -> Self:
        return self._as_operand_array(other).divide(self)

    def __rpow__(self, other: Any) -> Self:
        return self._as_operand_array(other).power(self)

    def __rmatmul__(self, other: Any) -> Self:
        return self._as_operand_array(other).matmul(self)

    def __neg__(self) -> Self:
        return self.negative()

    def __pos__(self) -> Self:
        return self.copy()

    def __abs__(self) -> Self:
        return self.abs()

    def __iadd__(self, other: Any) -> Self:
        return self._write_in_place(self.add(other))

    def __isub__(self, other: Any) -> Self:
        return self._write_in_place(self.subtract(other))

    def __imul__(self, other: Any) -> Self:
        return self._write_in_place(self.multiply(other))

    def __itruediv__(self, other: Any) -> Self:
        return self._write_in_place(self.divide(other))

    def __ipow__(self, other: Any) -> Self:
        return self._write_in_place(self.power(other))

    def __imatmul__(self, other: Any) -> Self:
        return self._write_in_place(self.matmul(other))

    def __floordiv__(self, other: Any) -> NoReturn:
        raise ValueError("An array of a format has no // and no %, which no mode rounds: take np.asarray(x) for them.")

    __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __ifloordiv__ = __imod__ = __floordiv__

    def __lt__(self, other: Any) -> NDArray[np.bool_]:
        return self._compare(operator.lt, other)

    def __le__(self, other: Any) -> NDArray[np.bool_]:
        return self._compare(operator.le, other)

    def __gt__(self, other: Any) -> NDArray[np.bool_]:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Any) -> NDArray[np.bool_]:
        return self._compare(operator.ge, other)

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._compare(operator.eq, other)

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._compare(operator.ne, other)
