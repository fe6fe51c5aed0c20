"""What an array's numbers are used for: functions, reductions, and other shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.catalog import FUNCTIONS, OPERATIONS
from simfloat.arithmetic.extremes import larger, largest, least, place_of_largest, place_of_least, smaller
from simfloat.arrays import complex_parts
from simfloat.arrays.array_arithmetic import ArrayArithmetic
from simfloat.checks import check_flags, is_integer

#: An axis, several of them, or None for all.
ArrayAxes = int | Sequence[int] | None


#: Functions that NumPy computes exactly, with what they give.
EXACT = {
    "rint": "The nearest integer, of two the even one",
    "floor": "The largest integer that is not above x",
    "ceil": "The smallest integer that is not below x",
    "trunc": "The integer between 0 and x that is nearest to x",
    "sign": "-1, 0 or 1: 0 for both zeros, and NaN for NaN",
}


class ArrayFunctions:
    """Functions, reductions and movements of an array."""

    numbers: NDArray
    arithmetic: ArrayArithmetic

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError

    def _with_numbers(self, numbers: NDArray) -> Self:
        """An array of these numbers, which are the format's, with the same options."""
        raise NotImplementedError

    def _real_numbers(self, operation: str) -> NDArray[np.floating]:
        """The numbers of an array that has no imaginary part."""
        if complex_parts.is_complex(self.numbers):
            raise ValueError(f"{operation} of complex numbers is not rounded here: write it in x.real and x.imag.")
        return self.numbers

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Self]:
            """The functions of the catalog, which are added below."""

    def negative(self) -> Self:
        """-x, of complex numbers both parts."""
        u, x = self.arithmetic, self.numbers
        if complex_parts.is_complex(x):
            return self._with_numbers(complex_parts.from_parts(u.negate(x.real), u.negate(x.imag)))
        return self._with_numbers(u.negate(x))

    def abs(self) -> Self:
        """|x|, of complex numbers sqrt(a a + b b) with every operation rounded."""
        x = self.numbers
        return self._with_numbers(
            complex_parts.magnitude(self.arithmetic, x) if complex_parts.is_complex(x) else np.abs(x)
        )

    def conj(self) -> Self:
        """The complex conjugates; of real numbers they themselves."""
        x = self.numbers
        if not complex_parts.is_complex(x):
            return self.copy()
        return self._with_numbers(complex_parts.from_parts(x.real, self.arithmetic.negate(x.imag)))

    @property
    def real(self) -> Self:
        """The real parts, a view of them; numbers that are assigned are rounded."""
        return self._with_numbers(self.numbers.real)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Self:
        """The imaginary parts: a view of them, or zeros; numbers that are assigned are rounded."""
        x, format = self.numbers, self.arithmetic.format
        return self._with_numbers(
            x.imag if format.has_zero or complex_parts.is_complex(x) else self.arithmetic.round(x.imag)
        )

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def sum(self, axis: ArrayAxes = None, keepdims: bool = False) -> Self:
        """The sum over `axis`, through `accumulate`, in row-major order."""
        rows, shape = self._rows(axis, keepdims)
        u = self.arithmetic
        if complex_parts.is_complex(rows):
            total = complex_parts.from_parts(u.sum(rows.real, -1), u.sum(rows.imag, -1))
        else:
            total = u.sum(rows, -1)
        return self._with_numbers(total.reshape(shape))

    def mean(self, axis: ArrayAxes = None, keepdims: bool = False) -> Self:
        """The sum over `axis`, divided by the number of terms: two roundings."""
        return self.sum(axis, keepdims) / self._rows(axis, keepdims)[0].shape[-1]

    def var(self, axis: ArrayAxes = None, keepdims: bool = False, correction: int = 0) -> Self:
        """The sum of (x - mean)^2 over `axis`, divided by the number of terms less `correction`; every step rounded."""
        self._real_numbers("var")
        deviations = self - self.mean(axis, True)  # type: ignore[operator]
        count = self._rows(axis, keepdims)[0].shape[-1] - correction
        return (deviations * deviations).sum(axis, keepdims) / count

    def std(self, axis: ArrayAxes = None, keepdims: bool = False, correction: int = 0) -> Self:
        """The square root of :meth:`var`, rounded once more."""
        return self.var(axis, keepdims, correction).sqrt()

    def max(self, axis: ArrayAxes = None, keepdims: bool = False) -> Self:
        """The largest element along `axis`: NaN if one is; +0 is above -0."""
        return self._extreme("max", largest, axis, keepdims)

    def min(self, axis: ArrayAxes = None, keepdims: bool = False) -> Self:
        """The smallest element along `axis`: NaN if one is; -0 is below +0."""
        return self._extreme("min", least, axis, keepdims)

    def maximum(self, other: Any) -> Self:
        """The larger of two numbers: NaN if one is; +0 is above -0."""
        return self._round_choice(larger, other, "maximum")

    def minimum(self, other: Any) -> Self:
        """The smaller of two numbers: NaN if one is; -0 is below +0."""
        return self._round_choice(smaller, other, "minimum")

    def fmax(self, other: Any) -> Self:
        """The larger of two numbers, and of a number and NaN the number; +0 is above -0."""
        return self._round_choice(lambda x, y: _choose_but_nan(larger, x, y), other, "fmax")

    def fmin(self, other: Any) -> Self:
        """The smaller of two numbers, and of a number and NaN the number; -0 is below +0."""
        return self._round_choice(lambda x, y: _choose_but_nan(smaller, x, y), other, "fmin")

    def copysign(self, other: Any) -> Self:
        """The magnitude of this number with the sign of the other one."""
        return self._round_choice(np.copysign, other, "copysign")

    def fmod(self, other: Any) -> Self:
        """x - n y with the integer n that is x / y cut off, as in C: exact, with the sign of x; NaN if y is 0."""
        return self._round_choice(_fmod, other, "fmod")

    def clip(self, min: Any = None, max: Any = None) -> Self:
        """x, but `min` where it is below, and `max` where that is above `max`; None is no bound."""
        bounded = self if min is None else self.maximum(min)
        return bounded if max is None else bounded.minimum(max)

    def square(self) -> Self:
        """x * x."""
        return self * self  # type: ignore[operator]

    def reshape(self, *shape: Any) -> Self:
        """The array in another shape, a view where NumPy's is one."""
        return self._with_numbers(self.numbers.reshape(*shape))

    def ravel(self) -> Self:
        """The numbers along one axis, in row-major order: a view where NumPy's is one."""
        return self.reshape(-1)

    def flatten(self) -> Self:
        """The numbers along one axis, in row-major order and in new memory."""
        return self._with_numbers(self.numbers.flatten())

    def diagonal(self, offset: int = 0) -> Self:
        """The numbers on a diagonal of the first two axes, as the last axis: a copy of them."""
        return self._with_numbers(self.numbers.diagonal(offset).copy())

    def argmax(self, axis: int | None = None) -> Any:
        """Where the largest element along `axis` is, as numpy.argmax gives it."""
        return place_of_largest(self._real_numbers("An order"), axis)

    def argmin(self, axis: int | None = None) -> Any:
        """Where the smallest element along `axis` is."""
        return place_of_least(self._real_numbers("An order"), axis)

    def transpose(self, *axes: Any) -> Self:
        """The axes in another order, reversed if none is given; a view."""
        return self._with_numbers(self.numbers.transpose(*axes))

    @property
    def T(self) -> Self:
        """The axes in reversed order; a view, to which numbers may be assigned."""
        return self.transpose()

    @T.setter
    def T(self, value: Any) -> None:
        self.T[...] = value

    def swapaxes(self, first: int, second: int) -> Self:
        """Two axes exchanged; a view."""
        return self._with_numbers(self.numbers.swapaxes(first, second))

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Self:
        """Without axes of size one: all of them, or those named; a view."""
        return self._with_numbers(self.numbers.squeeze(axis))

    def unsqueeze(self, axis: int) -> Self:
        """With a new axis of size one, at the place `axis` of the result; a view."""
        return self._with_numbers(np.expand_dims(self.numbers, axis))

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """The numbers repeated to fill `shape`."""
        return self._with_numbers(np.broadcast_to(self.numbers, tuple(shape)).copy())

    def fill(self, value: Any) -> None:
        """Write one number to all elements, rounded."""
        self[...] = value

    def copy(self) -> Self:
        """A copy of the array, in new memory."""
        return self._with_numbers(self.numbers.copy())

    def tolist(self) -> Any:
        """The numbers as Python's, in nested lists."""
        return self.numbers.tolist()

    def item(self) -> Any:
        """The only element as a number of Python's; ValueError if there is not exactly one."""
        if self.numbers.size != 1:
            raise ValueError(f"Only an array of one element is a number; this one has the shape {self.numbers.shape}.")
        return self.numbers.item()

    def _extreme(self, name: str, reduce: Callable[[NDArray], NDArray], axis: ArrayAxes, keepdims: bool) -> Self:
        self._real_numbers(name)
        rows, shape = self._rows(axis, keepdims)
        if not rows.shape[-1]:
            raise ValueError(
                f"An extreme needs an element along axis {axis!r} of an array of shape {self.numbers.shape}."
            )
        return self._with_numbers(reduce(rows).reshape(shape))

    def _round_choice(
        self, choose: Callable[[NDArray, NDArray], NDArray], other: Any, operation: str = "round"
    ) -> Self:
        raise NotImplementedError

    def _rows(self, axis: ArrayAxes, keepdims: bool) -> tuple[NDArray, tuple[int, ...]]:
        """The numbers with the named axes as the last one, in row-major order, and the shape of what reduces it."""
        check_flags(keepdims=keepdims)
        x = self.numbers
        names: Sequence[Any] = range(x.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
        axes = sorted({int(one) % x.ndim for one in names if is_integer(one, -x.ndim, x.ndim - 1)})
        if len(axes) < len(names):
            raise ValueError(f"axis {axis!r} does not name distinct axes of an array that has {x.ndim}.")
        others = [size for i, size in enumerate(x.shape) if i not in axes]
        moved = np.moveaxis(x, axes, range(-len(axes), 0)) if axes else x
        rows = moved.reshape(*others, math.prod(x.shape[i] for i in axes))
        return rows, tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else tuple(others)


def _choose_but_nan(choose: Callable[[NDArray, NDArray], NDArray], x: NDArray, y: NDArray) -> NDArray:
    """A choice of two numbers where both are some, else of the one that is."""
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, choose(x, y)))


def _fmod(x: NDArray, y: NDArray) -> NDArray:
    with np.errstate(invalid="ignore"):
        return np.fmod(x, y)


def _function(name: str) -> Callable[..., Any]:
    """A function of the catalog as a method of its first operand."""
    operation = OPERATIONS[name]
    method: Any
    match len(operation.operands):
        case 1:

            def method(self: Any) -> Any:
                return self._compute(name)

        case 2:

            def method(self: Any, other: Any) -> Any:
                return self._compute(name, other)

        case _:

            def method(self: Any, other: Any, third: Any) -> Any:
                return self._compute(name, other, third)

    note = "" if len(operation.operands) == 1 else f" This array is {operation.operands[0]}."
    method.__name__, method.__doc__ = name, operation.meaning + note
    return method


def _exact(name: str) -> Callable[[Any], Any]:
    """A function that is exact in float64 as a method."""

    def method(self: Any) -> Any:
        return self._with_numbers(self.arithmetic.round(getattr(np, name)(self._real_numbers(name)), name))

    method.__name__, method.__doc__ = name, f"{EXACT[name]}, rounded once where that is no number of the format."
    return method


for _name in EXACT:
    setattr(ArrayFunctions, _name, _exact(_name))
for _name in FUNCTIONS:
    setattr(ArrayFunctions, _name, _function(_name))
