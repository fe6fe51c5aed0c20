"""Arrays that know their format, and compute in it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.elements import elements, write
from simfloat.arithmetic.machines import CPU, GPU, as_array, beside, is_on_gpu, machine_of
from simfloat.arithmetic.numpy_protocol import NumpyProtocol, refuse_readers
from simfloat.arithmetic.operands import exact_operand
from simfloat.arrays import complex_parts
from simfloat.arrays.array_arithmetic import (
    ArrayArithmetic,
    ComplexProducts,
    as_arithmetic,
    chosen_exactly,
    narrowed,
    with_options,
)
from simfloat.arrays.array_operators import ArrayOperators
from simfloat.arrays.array_text import call_of
from simfloat.arrays.numpy_composites import COMPOSITES
from simfloat.arrays.numpy_movements import MOVEMENTS
from simfloat.checks import rectangular
from simfloat.formats import Format, Rounding, nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike

#: Single numbers that are operands of arrays, with gmpy2's: exact ones.
SCALARS = (int, float, complex, np.number, np.bool, str, Fraction, Decimal)


def array(
    data: Any,
    format: FormatLike,
    *,
    rounding: RoundingLike = nearest_even,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
    complex_products: ComplexProducts = "rounded",
) -> Array:
    """An array of numbers of `format`, to which `data` are rounded, and every operation on it once.

    `data` may be whatever :func:`simfloat.round` reads, numbers that float64 lacks among them.

    Operators, comparisons, indexing, views and writing in place are NumPy's. Sums and products of matrices go through
    `accumulate`, by default the sequential sum in this format and mode. Numbers that are assigned are rounded; single
    numbers, ``A * Fraction(1, 3)`` or ``A + 2**60``, are exact operands. Arrays of two formats or two modes do not mix:
    `astype` rounds to another one. Stochastic modes take their bits from `stream`.

    Complex data have both parts in the format. A product is (a c - b d, a d + b c), every operation rounded, or with
    ``complex_products="fma"`` (a c - round(b d), a d + round(b c)), each with one rounding; a quotient is the product
    with the divisor's conjugate, whose parts are divided by c c + d d; in products of matrices each part is one sum of
    the exact products a c and -b d, or a d and b c, side by side.

    Raises ValueError for formats of more than 50 bits of precision (FP64 under nearest_even excepted), for what
    :func:`simfloat.round` refuses, and for NumPy's functions that are no operations of such arrays, by name:
    ``np.asarray(A)`` takes the numbers out, in float64.

    Examples:
        >>> A = sf.array([[4.0, 1.0], [0.1, 3.0]], sf.BF16)
        >>> A[1, 0], A @ A[0] / 3
        (array(0.10009765625, BF16), array([5.65625, 1.1328125], BF16))
        >>> A[1:, 1:] -= A[1:, :1] / A[0, 0] * A[:1, 1:]
        >>> A
        array([[4.0, 1.0],
               [0.10009765625, 2.96875]], BF16)
    """
    arithmetic = as_arithmetic(format, rounding, accumulate, stream, complex_products)
    numbers = data.numbers if isinstance(data, Array) else _data(data)
    return array_of(_rounded(arithmetic, numbers), arithmetic)


class Array(ArrayOperators, NumpyProtocol):
    """Numbers of one format, which compute in it; see :func:`array`.

    Examples:
        >>> isinstance(sf.array([1.0], sf.BF16).sum(), sf.Array)
        True
    """

    called: ClassVar[str] = "arrays of a format"
    passed_by: ClassVar[str] = "the format"
    own_functions = MOVEMENTS | COMPOSITES
    instead: ClassVar[Mapping[str, str]] = {
        "solve": "sf.linalg.solve", "cholesky": "sf.linalg.cholesky", "qr": "sf.linalg.qr", "lstsq": "sf.linalg.lstsq",
        "einsum": "@, transpose and sum", "copyto": "y[...] = x",
        "cumsum": "sf.partial_sums(x, np.ones(x.size), accumulate=x.accumulate)",
        "tanh": "x.tanh()", "logaddexp": "exp and log", "pad": "slices of a larger array",
        "prod": "the products one after the other", "det": "the product of sf.linalg.lu(A).upper.diagonal()",
        "polyval": "Horner's scheme", "add.at": "x[i] = x[i] + y",
        "multiply.reduce": "the products one after the other", "put": "x[i] = y",
        "median": "np.sort(x)[x.size // 2]", "insert": "np.concatenate", "block": "np.vstack and np.hstack",
        "unique": "np.unique(np.asarray(x))", "searchsorted": "np.searchsorted(np.asarray(x), y)",
        "histogram": "np.histogram(np.asarray(x))", "round": "x.astype(format)", "matrix_power": "A @ A",
        "ptp": "x.max() - x.min()", "nan_to_num": "np.where(np.isnan(x), 0, x)",
        "fill_diagonal": "y[i, i] = x with i = np.arange(n)",
        "float_power": "x ** y", "inv": "sf.linalg.solve with the identity",
    }  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        raise ValueError("Arrays are made by simfloat.array(data, format).")

    @property
    def format(self) -> Format:
        """The format that all its numbers are in."""
        return self.arithmetic.format

    @property
    def rounding(self) -> Rounding:
        """The mode in which results are rounded."""
        return self.arithmetic.rounding

    @property
    def accumulate(self) -> Accumulator:
        """The order and the roundings of its sums."""
        return self.arithmetic.accumulator

    @property
    def stream(self) -> Stream | None:
        """Where stochastic roundings get their bits from."""
        return self.arithmetic.stream

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self.numbers.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.numbers.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.numbers.size

    def astype(
        self,
        format: FormatLike,
        *,
        rounding: RoundingLike | None = None,
        accumulate: Accumulator | FormatLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """The numbers rounded to another format, in the mode that is given or its own; options not given stay."""
        given = {"rounding": rounding, "accumulate": accumulate, "stream": stream}
        arithmetic = with_options(self.arithmetic, format=format, **given)
        if arithmetic.format == self.format:
            return array_of(self.numbers.copy(), arithmetic)
        return array_of(_rounded(arithmetic, self.numbers), arithmetic)

    def matmul(self, other: Any) -> Array:
        """The product of matrices or vectors, with numpy.matmul's shapes, each sum through `accumulate`."""
        x, u = self.numbers, self.arithmetic
        y = self._operand(other)
        if complex_parts.is_complex(x) or complex_parts.is_complex(y):
            return self._like(complex_parts.matmul(u, x, y))
        return self._like(u.matmul(x, y))

    def dot(self, other: Any) -> Array:
        """The same of at most two axes; with a number it is the product with that."""
        return np.dot(self, other)

    def __getitem__(self, key: Any) -> Array:
        return self._like(as_array(elements(self.numbers, key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        given = self._as_own(value, rounds=True).numbers if self._fits(value) else self._refused_parts()
        write(self.numbers, key, beside(given, self.numbers))

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise TypeError("An array without axes has no elements to go through.")
        return (self[i] for i in range(len(self.numbers)))

    def __len__(self) -> int:
        return len(self.numbers)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification) if specification else str(self)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        refuse_readers(self.called, self.passed_by)
        if copy is False:
            raise ValueError("np.asarray(A) gives numbers of its own: written to, those of A would leave its format.")
        wide = self.numbers.astype(np.complex128 if complex_parts.is_complex(self.numbers) else np.float64)
        return np.asarray(wide, dtype)

    def __repr__(self) -> str:
        return call_of(self.numbers, self.arithmetic)

    def _like(self, numbers: NDArray) -> Array:
        return array_of(numbers, self.arithmetic)

    def _as_own(self, x: Any, rounds: bool = False) -> Array:
        """An operand as an array: exact, or, where it is assigned, rounded."""
        if isinstance(x, Array) or not rounds:
            return self._like(self._operand(x))
        return self._like(_rounded(self.arithmetic, _data(x)))

    def _operand(self, x: Any) -> NDArray:
        """The numbers of an operand: an array of the same format and mode, or a number of Python's or NumPy's."""
        if isinstance(x, Array):
            self._check_same(x)
            return x.numbers
        if isinstance(x, SCALARS) or type(x).__module__ == "gmpy2" or (hasattr(x, "dtype") and not x.ndim):
            return narrowed(_data(x))
        raise ValueError(
            f"Operands of an array of {self.format} are arrays of {self.format} and single numbers, got "
            f"{type(x).__name__}; simfloat.array(x, {str(self.format)!r}) rounds it, and np.asarray takes an "
            "array's numbers out, to compute in float64."
        )

    def _check_same(self, other: Array) -> None:
        if other.format != self.format:
            raise ValueError(
                f"Arrays of two formats do not mix, {self.format} and {other.format}: take one of them to the other's, "
                f"x.astype({str(self.format)!r})."
            )
        if not self.arithmetic.same_rounding(other.arithmetic) or self.stream is not other.stream:
            raise ValueError(
                f"Arrays that round in two ways do not mix: rounding={self.rounding} with accumulate={self.accumulate} "
                f"and stream={self.stream}, and rounding={other.rounding} with accumulate={other.accumulate} and "
                f"stream={other.stream}; astype(format, rounding=..., accumulate=..., stream=...) changes them."
            )

    def _computed(self, operation: str, other: Any) -> Array:
        x, y, u = self.numbers, self._operand(other), self.arithmetic
        if not complex_parts.is_complex(x) and not complex_parts.is_complex(y):
            return self._like(u.compute(operation, x, y))
        if operation not in complex_parts.OPERATIONS:
            raise ValueError(f"{operation} of complex numbers is not rounded here: write it in products.")
        return self._like(complex_parts.compute(u, operation, x, y))

    def _chosen_of(self, choose: Callable[[NDArray, NDArray], NDArray], other: Any) -> Array:
        x, y, u = self._real_numbers("An order"), self._operand(other), self.arithmetic
        if x.dtype == object or y.dtype == object:
            return self._like(u.round(chosen_exactly(choose, x, y)))
        return self._like(u.round(choose(x, y)))

    def _compared(self, compare: Callable[[Any, Any], Any], other: Any) -> NDArray[np.bool_]:
        """A comparison of the numbers with others, of any format: it rounds nothing."""
        numbers = other.numbers if isinstance(other, Array) else _data(other)
        if compare not in (operator.eq, operator.ne) and (np.iscomplexobj(self.numbers) or np.iscomplexobj(numbers)):
            raise ValueError("Complex numbers have no order: compare their parts or magnitudes.")
        machine = machine_of(self.numbers, numbers)
        return as_array(compare(machine.take(self.numbers), machine.take(numbers)))

    def _written(self, result: Array) -> Array:
        """The result of an operation in place, in this array's memory."""
        if result.shape != self.shape or not self._fits(result):
            raise ValueError(
                f"In place the result keeps shape and kind of numbers; this is {_described(self.numbers)}, the result "
                f"{_described(result.numbers)}. Write x = x + y instead."
            )
        self.numbers[...] = beside(result.numbers, self.numbers)
        return self

    def _fits(self, value: Any) -> bool:
        """Whether a value may be stored here: complex numbers are not, among real ones."""
        return complex_parts.is_complex(self.numbers) or not np.iscomplexobj(
            value.numbers if isinstance(value, Array) else value
        )

    def _refused_parts(self) -> NoReturn:
        raise ValueError("Complex numbers are not stored in an array of real ones; make it complex, A + 0j.")

    def _joined_along(self, arrays: Sequence[Any], axis: int) -> Array:
        return self._like(np.concatenate(_on_one_machine([self._operand(x) for x in arrays]), axis))

    def _stacked(self, arrays: Sequence[Any], axis: int) -> Array:
        return self._like(np.stack(_on_one_machine([self._operand(x) for x in arrays]), axis))

    def _chosen(self, condition: Any, x: Any, y: Any) -> Array:
        parts = (as_array(condition), *(self._as_own(one, rounds=True).numbers for one in (x, y)))
        return self._like(np.where(*_on_one_machine(parts)))


def array_of(numbers: NDArray, arithmetic: ArrayArithmetic) -> Array:
    """The array of numbers that are the format's already."""
    made = Array.__new__(Array)
    made.numbers, made.arithmetic = numbers, arithmetic
    return made


def _data(x: ArrayLike) -> NDArray:
    """Real or complex numbers, exactly, as users give them."""
    if type(x) is float:
        return np.array(x)
    if not is_on_gpu(x) and np.iscomplexobj(x if hasattr(x, "dtype") else rectangular(x, "data")):
        numbers = np.asarray(x)
        return numbers if numbers.dtype.itemsize <= 16 else exact_operand(numbers)
    return x.numbers if isinstance(x, Array) else exact_operand(x, "data")


def _on_one_machine(arrays: Sequence[NDArray]) -> list[NDArray]:
    """Arrays of which one may be a GPU's, all there: what is assigned or chosen may be given in NumPy's."""
    machine = GPU if any(map(is_on_gpu, arrays)) else CPU
    return [machine.take(x) for x in arrays]


def _rounded(arithmetic: ArrayArithmetic, numbers: NDArray) -> NDArray:
    if complex_parts.is_complex(numbers):
        return complex_parts.rounded(arithmetic, numbers)
    return arithmetic.round(numbers)


def _described(x: NDArray) -> str:
    return f"{'complex' if complex_parts.is_complex(x) else 'real'} of shape {x.shape}"
