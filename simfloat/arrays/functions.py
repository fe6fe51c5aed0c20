"""Methods and operators of arrays, and NumPy functions composed of them; each operation is rounded."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.catalog import FUNCTIONS, OPERATIONS, REPRESENTABLE
from simfloat.arithmetic.representable import exact_modulos
from simfloat.arithmetic.spacing import larger, largest, least, smaller
from simfloat.arrays import complex_parts
from simfloat.arrays.arithmetic import ArrayArithmetic, check_same
from simfloat.arrays.numpy_methods import ArrayAxes, NumpyMethods, refuse_options
from simfloat.common import check_flags, is_integer
from simfloat.environment import in_usual_environment


class ArrayFunctions(NumpyMethods):
    """Functions, reductions and data movement of an array."""

    numbers: NDArray
    arithmetic: ArrayArithmetic

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError

    def _with_numbers(self, numbers: NDArray) -> Self:
        """Return an array with these values, which must be in the format, and the same options."""
        raise NotImplementedError

    def _real_numbers(self, operation: str) -> NDArray[np.floating]:
        """Return the values of a real array; ValueError names the operation if the array is complex."""
        if complex_parts.is_complex(self.numbers):
            raise ValueError(f"{operation} of complex arrays is not supported: {complex_parts.BY_PARTS}.")
        return self.numbers

    def negative(self) -> Self:
        """Return -x; for complex arrays, negate both parts."""
        u, x = self.arithmetic, self.numbers
        if complex_parts.is_complex(x):
            return self._with_numbers(complex_parts.from_parts(u.negate(x.real), u.negate(x.imag)))
        return self._with_numbers(u.negate(x))

    def abs(self) -> Self:
        """Return |x|; for complex arrays sqrt(a a + b b), with every operation rounded."""
        x, u = self.numbers, self.arithmetic
        if complex_parts.is_complex(x):
            return self._with_numbers(complex_parts.magnitude(u, x))
        # The smallest number may have no counterpart, as in two's complement.
        return self._with_numbers(np.abs(x) if -u.format.min <= u.format.max else u.round(np.abs(x)))

    def conj(self) -> Self:
        """Return the complex conjugates; for a real array, a copy."""
        x = self.numbers
        if not complex_parts.is_complex(x):
            return self.copy()
        return self._with_numbers(complex_parts.from_parts(x.real, self.arithmetic.negate(x.imag)))

    @property
    def real(self) -> Self:
        """The real parts, a view; assigned values are rounded."""
        return self._with_numbers(self.numbers.real)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Self:
        """The imaginary parts: a view, or zeros for a real array; assigned values are rounded."""
        x, format = self.numbers, self.arithmetic.format
        return self._with_numbers(
            x.imag if format.has_zero or complex_parts.is_complex(x) else self.arithmetic.round(x.imag)
        )

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def sum(self, axis: ArrayAxes = None, keepdims: bool = False, **others: Any) -> Self:
        """Sum over `axis` (an integer, a tuple, or None for all axes) in row-major order through `accumulate`.

        `keepdims=True` keeps the reduced axes with size 1. Other options of NumPy raise ValueError.
        """
        if others:
            refuse_options("sum", others)
        rows, shape = self._rows(axis, keepdims)
        u = self.arithmetic
        if complex_parts.is_complex(rows):
            total = complex_parts.from_parts(u.sum(rows.real, -1), u.sum(rows.imag, -1))
        else:
            total = u.sum(rows, -1)
        return self._with_numbers(total.reshape(shape))

    def mean(self, axis: ArrayAxes = None, keepdims: bool = False, **others: Any) -> Self:
        """Return the sum over `axis` divided by the number of terms, with two roundings; arguments as in `sum`."""
        if others:
            refuse_options("mean", others)
        return self.sum(axis, keepdims) / self._rows(axis, keepdims)[0].shape[-1]

    def var(
        self, axis: ArrayAxes = None, keepdims: bool = False, correction: int = 0, *, ddof: int = 0, **others: Any
    ) -> Self:
        """Return the sum of (x - mean)^2 over `axis`, divided by the number of terms minus `correction`.

        `ddof` is NumPy's older name of `correction`. Every step is rounded. `axis` and `keepdims` work as in `sum`.
        """
        if others:
            refuse_options("var", others)
        if correction and ddof:
            raise ValueError(
                "The method var of arrays of a format takes correction or ddof, two names of one option; "
                "got correction and ddof."
            )
        self._real_numbers("var")
        deviations = self - self.mean(axis, True)  # type: ignore[operator]
        count = self._rows(axis, keepdims)[0].shape[-1] - (correction or ddof)
        return (deviations * deviations).sum(axis, keepdims) / count

    def std(
        self, axis: ArrayAxes = None, keepdims: bool = False, correction: int = 0, *, ddof: int = 0, **others: Any
    ) -> Self:
        """Return the square root of :meth:`var` with the same arguments, rounded once more."""
        if others:
            refuse_options("std", others)
        return self.var(axis, keepdims, correction, ddof=ddof).sqrt()

    def max(self, axis: ArrayAxes = None, keepdims: bool = False, **others: Any) -> Self:
        """Return the largest element along `axis`: NaN if one is NaN; +0 is above -0. Arguments as in `sum`."""
        if others:
            refuse_options("max", others)
        return self._extreme("max", largest, axis, keepdims)

    def min(self, axis: ArrayAxes = None, keepdims: bool = False, **others: Any) -> Self:
        """Return the smallest element along `axis`: NaN if one is NaN; -0 is below +0. Arguments as in `sum`."""
        if others:
            refuse_options("min", others)
        return self._extreme("min", least, axis, keepdims)

    def maximum(self, other: Any) -> Self:
        """Return the larger of x and `other`: NaN if one of them is NaN; +0 is above -0."""
        return self._round_choice(larger, other, "maximum")

    def minimum(self, other: Any) -> Self:
        """Return the smaller of x and `other`: NaN if one of them is NaN; -0 is below +0."""
        return self._round_choice(smaller, other, "minimum")

    def fmax(self, other: Any) -> Self:
        """Return the larger of x and `other`; if only one of them is NaN, return the other one; +0 is above -0."""
        return self._round_choice(lambda x, y: _choose_but_nan(larger, x, y), other, "fmax")

    def fmin(self, other: Any) -> Self:
        """Return the smaller of x and `other`; if only one of them is NaN, return the other one; -0 is below +0."""
        return self._round_choice(lambda x, y: _choose_but_nan(smaller, x, y), other, "fmin")

    def remainder(self, other: Any) -> Self:
        """Return x - n `other`, where n is the floor of x / `other`, as NumPy and Python do.

        The exact result is rounded once. It has the sign of `other`, and is NaN if `other` is 0.
        """
        return self._round_choice(exact_modulos, other, "remainder")

    def sign(self) -> Self:
        """Return -1, 0 or 1 (0 for both zeros, NaN for NaN), rounded once if it is not in the format."""
        return self._with_numbers(self.arithmetic.round(np.sign(self._real_numbers("sign")), "sign"))

    def cumsum(self, axis: int | None = None) -> Self:
        """Return the partial sums along `axis`, or of all elements in row-major order, through `accumulate`.

        Raises ValueError if one step of the accumulator adds several elements, so that not every partial sum exists.
        """
        x = self._real_numbers("cumsum")
        if axis is None:
            x, axis = x.reshape(-1), 0
        if not is_integer(axis, -x.ndim, x.ndim - 1):
            raise ValueError(f"axis must be None or an integer from {-x.ndim} to {x.ndim - 1}, got {axis!r}.")
        rows = np.moveaxis(x, axis, -1)
        sums = [self.arithmetic.partial_sums(row) for row in rows.reshape(-1, rows.shape[-1])]
        return self._with_numbers(np.moveaxis(np.array(sums, x.dtype).reshape(rows.shape), -1, axis))

    def clip(self, min: Any = None, max: Any = None) -> Self:
        """Replace elements below `min` by `min`, then elements above `max` by `max`; None means no bound."""
        bounded = self if min is None else self.maximum(min)
        return bounded if max is None else bounded.minimum(max)

    def square(self) -> Self:
        """Return x * x."""
        return self * self  # type: ignore[operator]

    def reshape(self, *shape: Any) -> Self:
        """Return the array in another shape, as a view if NumPy returns a view."""
        return self._with_numbers(self.numbers.reshape(*shape))

    def ravel(self) -> Self:
        """Return the elements along one axis in row-major order, as a view if NumPy returns a view."""
        return self.reshape(-1)

    def flatten(self) -> Self:
        """Return a copy of the elements along one axis in row-major order."""
        return self._with_numbers(self.numbers.flatten())

    def diagonal(self, offset: int = 0) -> Self:
        """Return a copy of a diagonal of the first two axes, as the last axis; `offset` is the distance above the
        main diagonal.
        """
        return self._with_numbers(self.numbers.diagonal(offset).copy())

    def transpose(self, *axes: Any) -> Self:
        """Return a view with the axes in another order; without arguments, in reversed order."""
        return self._with_numbers(self.numbers.transpose(*axes))

    @property
    def T(self) -> Self:
        """A view with the axes in reversed order; values can be assigned to it."""
        return self.transpose()

    @T.setter
    def T(self, value: Any) -> None:
        self.T[...] = value

    def swapaxes(self, first: int, second: int) -> Self:
        """Return a view with two axes exchanged."""
        return self._with_numbers(self.numbers.swapaxes(first, second))

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Self:
        """Return a view in which axes of size one are removed: all of them, or the ones in `axis`."""
        return self._with_numbers(self.numbers.squeeze(axis))

    def unsqueeze(self, axis: int) -> Self:
        """Return a view with a new axis of size one at position `axis` of the result."""
        return self._with_numbers(np.expand_dims(self.numbers, axis))

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """Return a copy with the elements repeated to fill `shape`."""
        return self._with_numbers(np.broadcast_to(self.numbers, tuple(shape)).copy())

    def copy(self) -> Self:
        """Return a copy of the array."""
        return self._with_numbers(self.numbers.copy())

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
        """Return the values with the given axes merged into the last one, in row-major order, and the shape after
        reduction.
        """
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
    """Choose between two values that are not NaN; if one is NaN, return the other one."""
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, choose(x, y)))


def _function(name: str) -> Callable[..., Any]:
    """Return a function of the catalog as a method of its first operand."""
    operation = OPERATIONS[name] if name in OPERATIONS else REPRESENTABLE[name]
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

    note = "" if len(operation.operands) == 1 else f" This array is the operand {operation.operands[0]}."
    method.__name__, method.__doc__ = name, operation.meaning + note
    return method


for _name in FUNCTIONS | REPRESENTABLE:
    if _name != "remainder":  # the method `remainder` follows NumPy
        setattr(ArrayFunctions, _name, _function(_name))
for _class in (NumpyMethods, ArrayFunctions):
    for _name, _method in vars(_class).items():
        if isinstance(_method, FunctionType):  # Python's messages for wrong arguments name the public class
            _method.__qualname__ = f"Array.{_name}"


def _inner(t: Any, a: Any, b: Any) -> Any:
    a, b = t._as_operand_array(a), t._as_operand_array(b)
    if a.ndim == 0 or b.ndim == 0:
        return a.multiply(b)
    if a.ndim > 2 or b.ndim > 2:
        raise ValueError(
            f"numpy.inner of {t.name_in_messages} takes at most two axes, got shapes {a.shape} and {b.shape}."
        )
    return a @ b.T


def _outer(t: Any, a: Any, b: Any) -> Any:
    return t._as_operand_array(a).reshape(-1, 1) * t._as_operand_array(b).reshape(1, -1)


def _diff(t: Any, a: Any, n: int = 1, axis: int = -1) -> Any:
    if not is_integer(n, 0):
        raise ValueError(f"n (the number of differences) must be an integer from 0, got {n!r}.")
    x = t._with_numbers(np.moveaxis(t._as_operand_array(a).numbers, axis, -1))
    for _ in range(n):
        x = x[..., 1:] - x[..., :-1]
    return t._with_numbers(np.moveaxis(x.numbers, -1, axis))


def _trace(t: Any, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    x = t._as_operand_array(a)
    return x._with_numbers(x.numbers.diagonal(offset, axis1, axis2).copy()).sum(-1)


def _ptp(t: Any, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    x = t._as_operand_array(a)
    return x.max(axis, keepdims) - x.min(axis, keepdims)


def _round(t: Any, a: Any, decimals: int = 0) -> Any:
    if decimals != 0:
        raise ValueError(
            f"numpy.round of {t.name_in_messages} rounds to integers; got decimals={decimals!r}: to print fewer digits "
            "write round(float(x), 2), or np.round(np.asarray(x), 2)."
        )
    return t._as_operand_array(a).rint()


def _nan_to_num(
    t: Any, x: Any, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    a, largest = t._as_operand_array(x), t.format.max
    a._real_numbers("nan_to_num")
    result = np.where(np.isnan(a), nan, a)
    result = np.where(np.isposinf(a), largest if posinf is None else posinf, result)
    result = np.where(np.isneginf(a), -largest if neginf is None else neginf, result)
    return result if copy else a._write_in_place(result)


#: NumPy's `ord` -> norm of a vector; the other norms are computed from sums of squares.
_VECTOR_NORMS: dict[Any, Callable[..., Any]] = {
    1: lambda x, axis, keepdims: abs(x).sum(axis, keepdims),
    np.inf: lambda x, axis, keepdims: abs(x).max(axis, keepdims),
    -np.inf: lambda x, axis, keepdims: abs(x).min(axis, keepdims),
}


def _norm(t: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the root of the sum of rounded squares; for real arrays also sums and extremes of magnitudes."""
    a = t._as_operand_array(x)
    axes = tuple(range(a.ndim)) if axis is None else tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    is_matrix = len(axes) == 2 and not (ord is None and axis is None)
    if ord is None or (ord == "fro" and is_matrix) or (ord == 2 and len(axes) == 1):
        if complex_parts.is_complex(a.numbers):
            squares = a._with_numbers(complex_parts.squares(a.arithmetic, a.numbers))
        else:
            squares = a * a
        return squares.sum(axes, keepdims).sqrt()
    if len(axes) == 1 and ord in _VECTOR_NORMS:
        return _VECTOR_NORMS[ord](a, axes, keepdims)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        first, last = (int(i) % a.ndim for i in axes)
        summed, reduced = (first, last) if ord in (1, -1) else (last, first)
        sums = abs(a).sum(summed, True)
        extreme = sums.max(reduced, True) if ord > 0 else sums.min(reduced, True)
        return extreme if keepdims else extreme.squeeze((first, last))
    advice = ": the largest is sf.linalg.svd(x).s[0]" if ord == 2 else ""
    raise ValueError(
        f"numpy.linalg.norm of {t.name_in_messages} takes ord 1, 2, inf and -inf of vectors, and 'fro', 1, -1, inf and "
        f"-inf of matrices; got ord={ord!r} along axis {axis!r} of shape {a.shape}{advice}."
    )


def _result_type(t: Any, *operands: Any) -> np.dtype[Any]:
    """Return the dtype of an array, which has its format, or a wider dtype if another operand needs it."""
    for x in operands:
        if isinstance(x, type(t)) and x.format != t.format:
            check_same(t.arithmetic, x.arithmetic)
    dtype = np.result_type(*[x.dtype if isinstance(x, type(t)) else x for x in operands])
    return t.dtype if dtype == t.dtype else dtype


#: NumPy function -> its implementation with rounded operations.
COMPOSITES: dict[Callable[..., Any], Callable[..., Any]] = {
    np.inner: _inner,
    np.outer: _outer,
    np.diff: _diff,
    np.vdot: lambda t, a, b: t._as_operand_array(a).conj().ravel() @ t._as_operand_array(b).ravel(),
    np.trace: _trace,
    np.cumsum: lambda t, a, axis=None: t._as_operand_array(a).cumsum(axis),
    np.linalg.norm: _norm,
    np.ptp: _ptp,
    np.round: _round,
    np.around: _round,
    np.fix: lambda t, x: t._as_operand_array(x).trunc(),
    np.nan_to_num: _nan_to_num,
    np.std: lambda t, a, axis=None, *, ddof=0, keepdims=False: a.std(axis, keepdims, correction=ddof),
    np.real: lambda t, val: val.real,
    np.result_type: _result_type,
    np.imag: lambda t, val: val.imag,
}


@in_usual_environment
class ArrayOperators(ArrayFunctions):
    """Operators between an array and another operand; every element is rounded once."""

    def matmul(self, other: Any) -> Self:
        """Multiply matrices or vectors."""
        raise NotImplementedError

    def _as_operand_array(self, x: Any) -> Self:
        """Return an operand as an array."""
        raise NotImplementedError

    def _compute_into(self, operation: str, first: Any, *others: Any) -> Self:
        """Write the results of an operation of the catalog into this array."""
        raise NotImplementedError

    def _write_in_place(self, result: Any) -> Self:
        """Write the values of `result` into this array."""
        raise NotImplementedError

    def _compare(self, compare: Callable[[Any, Any], Any], other: Any) -> NDArray[np.bool_]:
        """Return the booleans of a comparison."""
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
        return self._compute_into("add", self, other)

    def __isub__(self, other: Any) -> Self:
        return self._compute_into("subtract", self, other)

    def __imul__(self, other: Any) -> Self:
        return self._compute_into("multiply", self, other)

    def __itruediv__(self, other: Any) -> Self:
        return self._compute_into("divide", self, other)

    def __ipow__(self, other: Any) -> Self:
        return self._compute_into("power", self, other)

    def __imatmul__(self, other: Any) -> Self:
        return self._write_in_place(self.matmul(other))

    def __mod__(self, other: Any) -> Self:
        return self.remainder(other)

    def __rmod__(self, other: Any) -> Self:
        return self._as_operand_array(other).remainder(self)

    def __imod__(self, other: Any) -> Self:
        return self._write_in_place(self.remainder(other))

    def __floordiv__(self, other: Any) -> NoReturn:
        raise ValueError("Arrays of a format do not support //. Write (x / y).floor(), with two roundings.")

    __rfloordiv__ = __divmod__ = __rdivmod__ = __ifloordiv__ = __floordiv__

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
