"""Arrays that know their format, and compute in it; they print as the call that makes them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.machines import CPU, GPU, as_array, device_of, is_on_gpu, on_cpu, on_device_of
from simfloat.arithmetic.numpy_protocol import NumpyProtocol, elements, refuse_readers, write_elements
from simfloat.arithmetic.operands import as_operand, check_not_masked, exact_operand
from simfloat.arithmetic.target import Observer
from simfloat.arrays import complex_parts
from simfloat.arrays.arithmetic import (
    ArrayArithmetic,
    ComplexProducts,
    as_arithmetic,
    choose_exactly,
    narrow_scalar,
    with_options,
)
from simfloat.arrays.functions import COMPOSITES, ArrayOperators
from simfloat.arrays.movements import MOVEMENTS, WRITING
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, Rounding, nearest_even
from simfloat.formats.catalog import CATALOG, FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.operands import first_outside_format

#: Elements above which only the first and the last ones are printed.
MOST = 1000


def call_of(numbers: NDArray, arithmetic: ArrayArithmetic) -> str:
    """The call of `array` that makes the numbers; larger arrays are abbreviated as NumPy's are."""
    options = {
        "rounding": arithmetic.rounding if arithmetic.rounding != nearest_even else None,
        "accumulate": arithmetic.accumulate,
        "stream": arithmetic.stream,
        "complex_products": arithmetic.complex_products if arithmetic.complex_products != "rounded" else None,
    }
    named = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    elements = _elements(on_cpu(numbers))
    reshaped = f".reshape{numbers.shape}" if numbers.size == 0 and numbers.ndim != 1 else ""
    return f"array({', '.join([elements, _format(arithmetic.format), *named])}){reshaped}"


def _format(format: Format) -> str:
    """The name of the catalog, or the call that makes a format of one's own."""
    return str(format) if CATALOG.get(str(format)) == format else repr(format)


def _elements(numbers: NDArray) -> str:
    if not numbers.size:
        return "[]"
    return np.array2string(
        numbers.astype(np.complex128 if numbers.dtype.kind == "c" else np.float64),
        separator=", ",
        prefix="array(",
        threshold=MOST,
        max_line_width=110,
        formatter={"float_kind": _real, "complex_kind": _complex},
    )


def _real(x: Any) -> str:
    number = float(x)
    return repr(number) if math.isfinite(number) else f"float('{number}')"


def _complex(z: Any) -> str:
    return f"complex({_real(z.real)}, {_real(z.imag)})"


#: What to write in place of operations that complex numbers do not have.
_PARTS = "write it in x.real and x.imag"
_ALTERNATIVES = {"power": "write it in products"}

#: Single numbers that are operands of arrays, with gmpy2's: exact ones.
SCALARS = (int, float, complex, np.number, np.bool, str, Fraction, Decimal)


@in_usual_environment
def array(
    data: Any,
    format: FormatLike,
    *,
    rounding: RoundingLike = nearest_even,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
    complex_products: ComplexProducts = "rounded",
    observer: Observer | None = None,
) -> Array:
    """Return an array of numbers of `format`, to which `data` are rounded; every operation on it is rounded once.

    `data` may be whatever :func:`simfloat.round` reads, numbers that float64 lacks among them.

    Operators, comparisons, indexing, views and writing in place are NumPy's. Sums and products of matrices go through
    `accumulate`, by default the sequential sum in this format and mode. Numbers that are assigned or joined are
    rounded. Single numbers, ``A * Fraction(1, 3)`` or ``A + 2**60``, are exact operands, and so is a NumPy array if all
    its numbers are of the format. Arrays of two formats or two modes do not mix: `astype` rounds to another format.
    Stochastic modes take their bits from `stream`. The events of all operations go to `observer`, which results keep,
    and to the observer of the simulation in force, if there is one; the array's format is its own in a simulation too.

    Complex data have both parts in the format. A product is (a c - b d, a d + b c), every operation rounded, or with
    ``complex_products="fma"`` (a c - round(b d), a d + round(b c)), each with one rounding; a quotient is the product
    with the divisor's conjugate, whose parts are divided by c c + d d; in products of matrices each part is one sum of
    the exact products a c and -b d, or a d and b c, side by side.

    Raises ValueError for formats of more than 50 bits of precision (FP64 under nearest_even excepted), for what
    :func:`simfloat.round` refuses, and for NumPy's functions that are not operations of such arrays, by name:
    ``np.asarray(A)`` returns the numbers in float64, and matplotlib, ``np.from_dlpack(A)`` and ``torch.as_tensor(A)``
    read the same numbers.

    Examples:
        >>> A = sf.array([[4.0, 1.0], [0.1, 3.0]], sf.BF16)
        >>> A[1, 0], A @ A[0] / 3
        (array(0.10009765625, BF16), array([5.65625, 1.1328125], BF16))
        >>> A[1:, 1:] -= A[1:, :1] / A[0, 0] * A[:1, 1:]
        >>> A
        array([[4.0, 1.0],
               [0.10009765625, 2.96875]], BF16)
    """
    arithmetic = as_arithmetic(format, rounding, accumulate, stream, complex_products, observer)
    numbers = data.numbers if isinstance(data, Array) else read_numbers(data)
    return new_array(_round_numbers(arithmetic, numbers), arithmetic)


@in_usual_environment
class Array(ArrayOperators, NumpyProtocol):
    """Numbers of one format, which compute in it; see :func:`array`.

    Examples:
        >>> isinstance(sf.array([1.0], sf.BF16).sum(), sf.Array)
        True
    """

    name_in_messages: ClassVar[str] = "arrays of a format"
    bypassed_rule: ClassVar[str] = "the format"
    further_functions = MOVEMENTS | WRITING | COMPOSITES
    alternatives: ClassVar[Mapping[str, str]] = {
        "solve": "sf.linalg.solve", "cholesky": "sf.linalg.cholesky", "qr": "sf.linalg.qr", "lstsq": "sf.linalg.lstsq",
        "svd": "sf.linalg.svd", "eigh": "sf.linalg.eigh", "einsum": "@, transpose and sum",
        "cumsum": "sf.partial_sums(x, np.ones(x.size), accumulate=x.accumulate)",
        "tanh": "x.tanh()", "logaddexp": "exp and log",
        "prod": "the products one after the other", "det": "the product of sf.linalg.lu(A).upper.diagonal()",
        "polyval": "Horner's scheme", "add.at": "x[i] = x[i] + y",
        "multiply.reduce": "the products one after the other", "median": "np.sort(x)[x.size // 2]",
        "unique": "np.unique(np.asarray(x))", "histogram": "np.histogram(np.asarray(x))",
        "matrix_power": "A @ A", "float_power": "x ** y", "inv": "sf.linalg.solve with the identity",
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
    def observer(self) -> Observer | None:
        """The observer that receives the events of its operations."""
        return self.arithmetic.observer

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
        options = {"rounding": rounding, "accumulate": accumulate, "stream": stream}
        arithmetic = with_options(self.arithmetic, format=format, **options)
        if arithmetic.format == self.format:
            return new_array(self.numbers.copy(), arithmetic)
        return new_array(_round_numbers(arithmetic, self.numbers), arithmetic)

    def matmul(self, other: Any) -> Array:
        """The product of matrices or vectors, with numpy.matmul's shapes, each sum through `accumulate`."""
        x, y = self.numbers, self._operand(other)
        u = self._result_arithmetic(other)
        if complex_parts.is_complex(x) or complex_parts.is_complex(y):
            return new_array(complex_parts.matmul(u, x, y), u)
        return new_array(u.matmul(x, y), u)

    def dot(self, other: Any) -> Array:
        """The product of arrays of at most two axes; with a number, the product of each element and that number."""
        return np.dot(self, other)

    def __getitem__(self, key: Any) -> Array:
        return self._with_numbers(as_array(elements(self.numbers, key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        numbers = self._as_operand_array(value, rounds=True).numbers if self._fits(value) else self._refuse_complex()
        write_elements(self._writable_numbers(), key, on_device_of(numbers, self.numbers))

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
        refuse_readers(self.name_in_messages, self.bypassed_rule)
        if copy is False:
            raise ValueError("np.asarray(A) gives numbers of its own: written to, those of A would leave its format.")
        return np.asarray(self._in_float64(), dtype)

    def __copy__(self) -> Array:
        return self.copy()

    def __dlpack__(self, **options: Any) -> Any:
        return self._in_float64().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numbers.__dlpack_device__()

    @property
    def state(self) -> Array:
        """A copy, which `simfloat.save` writes."""
        return self.copy()

    def load_state(self, state: Array) -> None:
        """Take the numbers of another array of this format and shape, as `simfloat.load` does."""
        if not isinstance(state, Array) or (state.format, state.shape) != (self.format, self.shape):
            saved = f"{state.format} {_describe(state.numbers)}" if isinstance(state, Array) else type(state).__name__
            raise ValueError(f"The array is {self.format} {_describe(self.numbers)}, the saved one {saved}.")
        if not self._fits(state):
            self._refuse_complex()
        self._writable_numbers()[...] = on_device_of(state.numbers, self.numbers)

    def __repr__(self) -> str:
        return call_of(self.numbers, self.arithmetic)

    def _with_numbers(self, numbers: NDArray) -> Array:
        return new_array(numbers, self.arithmetic)

    def _in_float64(self) -> NDArray[Any]:
        """The numbers in memory of their own."""
        return self.numbers.astype(np.complex128 if complex_parts.is_complex(self.numbers) else np.float64)

    def _writable_numbers(self) -> NDArray[Any]:
        """The numbers, which are about to be changed."""
        if not is_on_gpu(self.numbers) and not self.numbers.flags.writeable:
            raise ValueError("These numbers are read-only, as the imaginary parts of real numbers are.")
        return self.numbers

    def _as_operand_array(self, x: Any, rounds: bool = False) -> Array:
        """An operand as an array: exact, or, where it is assigned or joined, rounded."""
        if isinstance(x, Array) or not rounds:
            return self._with_numbers(self._operand(x))
        return self._with_numbers(_round_numbers(self.arithmetic, read_numbers(x)))

    def _operand(self, x: Any) -> NDArray:
        """The numbers of an operand: an array of the same format and mode, a single number, or numbers of the format
        in an array of NumPy's.
        """
        if isinstance(x, Array):
            self._check_same(x)
            return x.numbers
        if isinstance(x, SCALARS) or type(x).__module__ == "gmpy2" or (hasattr(x, "dtype") and not x.ndim):
            return narrow_scalar(read_numbers(x))
        if isinstance(x, np.ndarray) or is_on_gpu(x):
            return self._check_in_format(read_numbers(x))
        raise ValueError(
            f"Operands of an array of {self.format} are arrays of {self.format} and single numbers, got "
            f"{type(x).__name__}; simfloat.array(x, {str(self.format)!r}) rounds it, and np.asarray takes an "
            "array's numbers out, to compute in float64."
        )

    def _check_in_format(self, numbers: NDArray) -> NDArray:
        """Numbers in the type that this array's have, or ValueError naming the first that is not of the format."""
        is_complex = complex_parts.is_complex(numbers)
        for part in (numbers.real, numbers.imag) if is_complex else (numbers,):
            place = first_outside_format(part, self.format)
            if place is not None:
                raise ValueError(
                    f"A NumPy array beside an array of {self.format} holds numbers of {self.format}, and "
                    f"{numbers[place].item()!r} at index {place if len(place) > 1 else place[0]} is none of them: "
                    f"simfloat.array(x, {str(self.format)!r}) rounds them."
                )
        dtype = np.dtype(self.arithmetic.dtype)
        return numbers.astype(np.result_type(dtype, np.complex64) if is_complex else dtype, copy=False)

    def _result_arithmetic(self, *others: Any) -> ArrayArithmetic:
        """The arithmetic of a result: this array's, with the observer of another operand if this one has none."""
        if self.arithmetic.observer is None:
            for other in others:
                if isinstance(other, Array) and other.arithmetic.observer is not None:
                    return other.arithmetic
        return self.arithmetic

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

    def _compute(self, operation: str, *others: Any) -> Array:
        """An operation of the catalog, rounded once, or one of complex numbers."""
        operands = [self.numbers, *map(self._operand, others)]
        u = self._result_arithmetic(*others)
        if not any(map(complex_parts.is_complex, operands)):
            return new_array(u.compute(operation, *operands), u)
        if operation not in complex_parts.OPERATIONS:
            raise ValueError(
                f"{operation} of complex numbers is not rounded here: {_ALTERNATIVES.get(operation, _PARTS)}."
            )
        return new_array(complex_parts.compute(u, operation, *operands), u)

    def _round_choice(
        self, choose: Callable[[NDArray, NDArray], NDArray], other: Any, operation: str = "round"
    ) -> Array:
        x, y, u = self._real_numbers(operation), self._operand(other), self._result_arithmetic(other)
        if complex_parts.is_complex(y):
            raise ValueError(f"{operation} of complex numbers is not rounded here: {_PARTS}.")
        if x.dtype == object or y.dtype == object:
            return new_array(u.round(choose_exactly(choose, x, y), operation), u)
        machine = device_of(x, y)
        return new_array(u.round(as_array(choose(machine.to_device(x), machine.to_device(y))), operation), u)

    def _compare(self, compare: Callable[[Any, Any], Any], other: Any) -> NDArray[np.bool_]:
        """A comparison of the numbers with others, of any format: it rounds nothing."""
        numbers = other.numbers if isinstance(other, Array) else read_numbers(other)
        if compare not in (operator.eq, operator.ne) and (np.iscomplexobj(self.numbers) or np.iscomplexobj(numbers)):
            raise ValueError("Complex numbers have no order: compare their parts or magnitudes.")
        machine = device_of(self.numbers, numbers)
        return as_array(compare(machine.to_device(self.numbers), machine.to_device(numbers)))

    def _write_in_place(self, result: Array) -> Array:
        """The result of an operation in place, in this array's memory."""
        if result.shape != self.shape or not self._fits(result):
            raise ValueError(
                f"In place the result keeps shape and kind of numbers; this is {_describe(self.numbers)}, the result "
                f"{_describe(result.numbers)}. Write x = x + y instead."
            )
        self._writable_numbers()[...] = on_device_of(result.numbers, self.numbers)
        return self

    def _fits(self, value: Any) -> bool:
        """Whether a value may be stored here: complex numbers are not, among real ones."""
        return complex_parts.is_complex(self.numbers) or not np.iscomplexobj(
            value.numbers if isinstance(value, Array) else value
        )

    def _refuse_complex(self) -> NoReturn:
        raise ValueError("Complex numbers are not stored in an array of real ones; make it complex, A + 0j.")

    def _join(self, join: Callable[[list[NDArray]], NDArray], arrays: Sequence[Any]) -> Array:
        """Arrays and numbers joined, the latter rounded, each in its turn."""
        if not isinstance(arrays, list | tuple):
            arrays = [arrays] if isinstance(arrays, Array) and not arrays.ndim else list(arrays)
        parts = [self._as_operand_array(x, rounds=True).numbers for x in arrays]
        return new_array(join(_on_one_device(parts)), self._result_arithmetic(*arrays))

    def _concatenate(self, arrays: Sequence[Any], axis: int | None) -> Array:
        return self._join(lambda parts: np.concatenate(parts, axis), arrays)

    def _stack(self, arrays: Sequence[Any], axis: int) -> Array:
        return self._join(lambda parts: np.stack(parts, axis), arrays)

    def _where(self, condition: Any, x: Any, y: Any) -> Array:
        first_array = next((one for one in (x, y) if isinstance(one, Array)), self)
        chosen = as_array(condition.numbers if isinstance(condition, Array) else condition)
        parts = (chosen, *(first_array._as_operand_array(one, rounds=True).numbers for one in (x, y)))
        return new_array(np.where(*_on_one_device(parts)), first_array._result_arithmetic(x, y))


def new_array(numbers: NDArray, arithmetic: ArrayArithmetic) -> Array:
    """The array of numbers that are the format's already."""
    new = Array.__new__(Array)
    # NumPy gives single numbers in place of arrays without axes.
    new.numbers = numbers if type(numbers) is np.ndarray else as_array(numbers)
    new.arithmetic = arithmetic
    return new


def read_numbers(x: Any) -> NDArray:
    """Real or complex numbers, exactly, as users give them."""
    if isinstance(x, Array):
        return x.numbers
    kind = type(x)
    if kind is complex:
        return np.array(x)
    if kind is float or kind is int or is_on_gpu(x) or not _is_complex(x):
        return x if is_on_gpu(x) and x.dtype.kind == "c" else exact_operand(x, "data")
    check_not_masked(x, "data")
    # A sequence of Python's numbers may hold integers that a complex array would round.
    values: Any = x if hasattr(x, "dtype") else np.array(x, object)
    if hasattr(values, "resolve_conj"):
        values = values.detach().resolve_conj()
    if values.dtype == object:
        flat = values.reshape(-1)
        real, imaginary = (np.array([getattr(number, part) for number in flat], object) for part in ("real", "imag"))
        return complex_parts.from_parts(*(as_operand(part, "data").reshape(values.shape) for part in (real, imaginary)))
    return complex_parts.from_parts(as_operand(values.real, "data"), as_operand(values.imag, "data"))


def _is_complex(x: Any) -> bool:
    """Whether NumPy reads complex numbers; no ragged sequence holds any that it could read."""
    try:
        return bool(np.iscomplexobj(x))
    except (ValueError, RuntimeError):  # the latter from tensors of PyTorch that require a gradient
        return hasattr(x, "is_complex") and x.is_complex()


def _on_one_device(arrays: Sequence[NDArray]) -> list[NDArray]:
    """Arrays of which one may be a GPU's, all there: what is assigned or chosen may be given in NumPy's."""
    machine = GPU if any(map(is_on_gpu, arrays)) else CPU
    return [machine.to_device(x) for x in arrays]


def _round_numbers(arithmetic: ArrayArithmetic, numbers: NDArray) -> NDArray:
    if complex_parts.is_complex(numbers):
        return complex_parts.round_parts(arithmetic, numbers)
    return arithmetic.round(numbers)


def _describe(x: NDArray) -> str:
    return f"{'complex' if complex_parts.is_complex(x) else 'real'} of shape {x.shape}"
