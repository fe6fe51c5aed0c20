"""Arrays with a format, which compute in this format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from simfloat.arithmetic.bit_stream import Stream, continue_like
from simfloat.arithmetic.catalog import FUNCTIONS, REPRESENTABLE
from simfloat.arithmetic.codes import are_surely_numbers
from simfloat.arithmetic.machines import as_array, device_of, is_on_gpu, on_cpu, on_device_of
from simfloat.arithmetic.numpy_protocol import NumpyProtocol, OperandOfPandas, elements, refuse_readers, write_elements
from simfloat.arithmetic.operands import as_operand, check_not_masked, exact_operand, is_torch_tensor
from simfloat.arithmetic.target import Observer
from simfloat.arrays import complex_parts
from simfloat.arrays.alternatives import ALTERNATIVES
from simfloat.arrays.arithmetic import (
    ArrayArithmetic,
    ComplexProducts,
    as_arithmetic,
    check_same,
    choose_exactly,
    narrow_scalar,
    on_one_device,
    python_number_in_float32,
    with_options,
)
from simfloat.arrays.functions import COMPOSITES, ArrayOperators
from simfloat.arrays.movements import MOVEMENTS, WRITING
from simfloat.arrays.printing import call_of, line_of
from simfloat.common import message_text
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, Rounding, nearest_even
from simfloat.formats.catalog import FORMAT_IN_DTYPE, FormatLike
from simfloat.formats.exact_numbers import is_float64
from simfloat.formats.rounding import RoundingLike
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.operands import first_outside_format

#: What to write instead of operations of complex arrays, if it is not `BY_PARTS`.
_ALTERNATIVES = {"power": "write it in products, or x.square()"}

#: Types of scalars that are exact operands, together with the types of gmpy2.
SCALARS = (int, float, complex, np.number, np.bool, str, Fraction, Decimal)


@in_usual_environment
def array(
    data: Any,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
    complex_products: ComplexProducts = "rounded",
    observer: Observer | None = None,
) -> Array:
    """Round `data` to `format` and return an array that computes in this format.

    Operators, comparisons, indexing, views and in-place writes work as in NumPy. Each operation is rounded once. Sums
    and matrix products go through `accumulate`. Values that are assigned or joined are rounded.

    A scalar, as in ``A * Fraction(1, 3)`` or ``A + 2**60``, is an exact operand. A NumPy array, or a PyTorch tensor on
    the CPU, is an operand if all its values are numbers of the format. Arrays with different formats, rounding modes,
    accumulators or streams cannot be combined; `astype` changes them. An array keeps its own format inside `simulate`.

    Complex data have both parts in the format. Complex arrays have ``+ - * /``, `square`, `abs`, `conj`, sums, means
    and matrix products. Other functions raise ValueError: write them in ``x.real`` and ``x.imag``, and join the parts
    by ``a + 1j * b``. `abs` rounds both squares, their sum and the square root; ``np.hypot(x.real, x.imag)`` rounds
    once. A real divisor divides both parts. Another quotient is the product with the conjugate of the divisor, with
    both parts divided by c c + d d. In a matrix product, each part is one sum of exact products: a c and -b d alternate
    in the real part, a d and b c in the imaginary part.

    ``np.asarray(A)`` returns the values in float64. Matplotlib, ``np.from_dlpack(A)`` and ``torch.as_tensor(A)`` read
    the same values.

    Parameters:
        data: all values that :func:`simfloat.round` accepts, including those that float64 cannot represent.
        format: the format; precision at most 50 bits, or FP64 in a deterministic mode. Functions such as `exp` and
            `power` have FP64 only with nearest_even.
        rounding: the rounding mode of every operation.
        accumulate: the order and the roundings of sums, an accumulator or a format; by default the sequential sum in
            `format` and `rounding`. A format here means the sequential sum to nearest even, whatever `rounding` is; for
            bounds in a directed mode, pass ``sequential(format, rounding)``.
        stream: the random bits of stochastic rounding (`BitStream` or `GivenBits`).
        complex_products: "rounded" computes (a c - b d, a d + b c) with every operation rounded; "fma" computes (a c
            - round(b d), a d + round(b c)), each part with one fma.
        observer: receives the rounding events of all operations; results keep it. The observer of the current
            simulation receives them also.

    Returns:
        An `Array` with the shape of `data`.

    Raises:
        ValueError: if the precision of the format is too large.
        ValueError: if `data` is not supported by :func:`simfloat.round`.
        ValueError: when a NumPy function that is not an operation of such arrays is called; the message names it.

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
class Array(ArrayOperators, NumpyProtocol, OperandOfPandas):
    """Values of one format and the operations in this format; created by :func:`array`.

    Examples:
        >>> isinstance(sf.array([1.0], sf.BF16).sum(), sf.Array)
        True
    """

    name_in_messages: ClassVar[str] = "arrays of a format"
    bypassed_rule: ClassVar[str] = "the format"
    writes_out: ClassVar[bool] = True
    internal_names: ClassVar[frozenset[str]] = frozenset({"arithmetic"})

    further_functions = MOVEMENTS | WRITING | COMPOSITES
    alternatives: ClassVar[Mapping[str, str]] = ALTERNATIVES

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        raise ValueError("Arrays are created by simfloat.array(data, format).")

    @property
    def format(self) -> Format:
        """The format of all values."""
        return self.arithmetic.format

    @property
    def rounding(self) -> Rounding:
        """The rounding mode of results."""
        return self.arithmetic.rounding

    @property
    def accumulate(self) -> Accumulator:
        """The accumulator: the order and the roundings of sums."""
        return self.arithmetic.accumulator

    @property
    def stream(self) -> Stream | None:
        """The source of random bits for stochastic rounding."""
        return self.arithmetic.stream

    @property
    def observer(self) -> Observer | None:
        """The observer that receives the rounding events of this array."""
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

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of ``np.asarray(A)``, float64 or complex128; its metadata names the format for `astype`."""
        kind = np.complex128 if complex_parts.is_complex(self.numbers) else np.float64
        return np.dtype(kind, metadata={FORMAT_IN_DTYPE: self.format})

    def astype(
        self,
        format: FormatLike,
        *,
        rounding: RoundingLike | None = None,
        accumulate: Accumulator | FormatLike | None = None,
        stream: Stream | None = None,
        copy: bool = True,
    ) -> Array:
        """Round the values to another format.

        Parameters:
            format: the new format.
            rounding: the mode of this rounding and of later operations; None keeps the current mode.
            accumulate: the new accumulator, or a format for the sequential sum in it; None keeps an accumulator that
                was given explicitly, and otherwise means the sequential sum in the new format.
            stream: the new source of random bits; None keeps the current one, unless `rounding` needs no random bits.
            copy: False returns this array if neither values nor options change, as in NumPy.

        Returns:
            A new `Array`, or this one.
        """
        u = self.arithmetic
        arithmetic = with_options(u, format=format, rounding=rounding, accumulate=accumulate, stream=stream)
        if rounding is not None and stream is None and not arithmetic.draws:
            arithmetic = replace(arithmetic, stream=None)
        if arithmetic.format == self.format:
            if not copy and arithmetic == self.arithmetic:
                return self
            return new_array(self.numbers.copy(), arithmetic)
        return new_array(_round_numbers(arithmetic, self.numbers), arithmetic)

    def matmul(self, other: Any) -> Array:
        """Multiply matrices or vectors with the shapes of numpy.matmul; every sum goes through `accumulate`."""
        x, y = self.numbers, self._operand(other)
        u = self._result_arithmetic(other)
        if complex_parts.is_complex(x) or complex_parts.is_complex(y):
            return new_array(complex_parts.matmul(u, x, y), u)
        return new_array(u.matmul(x, y), u)

    def dot(self, other: Any) -> Array:
        """Multiply arrays of at most two axes; if `other` is a scalar, multiply each element by it."""
        return np.dot(self, other)

    def matvec(self, x: Any) -> NDArray[np.float64]:
        """Round a vector to the format and multiply the matrix by it.

        SciPy's iterative solvers call this method, and expect a result in float64. Infinities, NaN, and values beyond
        the largest number of the format raise ValueError, as in :func:`simfloat.linalg.as_linear_operator`.
        """
        vector = self._as_operand_array(x, rounds=True)
        if not np.isfinite(vector.numbers).all():
            raise ValueError(
                f"x has infinities, NaN, or values beyond the largest number of {self.format}, {self.format.max}: "
                "scale the system, or use a format of larger range."
            )
        return (self @ vector)._in_float64()

    def rmatvec(self, x: Any) -> NDArray[np.float64]:
        """Round a vector to the format and multiply the conjugate transpose of the matrix by it."""
        return self.conj().T.matvec(x)

    def __getitem__(self, key: Any) -> Array:
        return self._with_numbers(as_array(elements(self.numbers, key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        numbers = self._as_operand_array(value, rounds=True).numbers if self._fits(value) else self._refuse_complex()
        write_elements(self._writable_numbers(), key, on_device_of(numbers, self.numbers))

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise TypeError("An array without axes has no elements to iterate over.")
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

    def __str__(self) -> str:
        # As in NumPy, a single result is written as a number: the module csv and the operator % call `str`.
        return repr(self) if self.numbers.ndim else str(self.item())

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        refuse_readers(self.name_in_messages, self.bypassed_rule, self.alternatives)
        if copy is False:
            raise ValueError("np.asarray(A) always copies: values written to the memory of A could leave its format.")
        return np.asarray(self._in_float64(), dtype)

    def __copy__(self) -> Array:
        return self.copy()

    def __dlpack__(self, **options: Any) -> Any:
        return self._in_float64().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numbers.__dlpack_device__()

    @property
    def state(self) -> Array:
        """A copy of the array and its stream, which `simfloat.save` writes."""
        u = self.arithmetic
        return new_array(self.numbers.copy(), u if u.stream is None else replace(u, stream=deepcopy(u.stream)))

    def load_state(self, state: Array) -> None:
        """Copy the values of an array of the same format and shape into this one, as `simfloat.load` does.

        The stream continues like the saved one. ValueError if only one of the arrays rounds stochastically.
        """
        if not isinstance(state, Array) or (state.format, state.shape) != (self.format, self.shape):
            saved = f"{state.format} {_describe(state.numbers)}" if isinstance(state, Array) else type(state).__name__
            raise ValueError(f"The array is {self.format} {_describe(self.numbers)}, the saved one {saved}.")
        if not self._fits(state):
            self._refuse_complex()
        if state.arithmetic.draws != self.arithmetic.draws:
            mine, saved = (f"rounding={x.rounding}, accumulate={x.accumulate}" for x in (self, state))
            raise ValueError(
                f"Only one of both needs random bits: the array has {mine}, the saved one {saved}. Create both alike."
            )
        self._writable_numbers()[...] = on_device_of(state.numbers, self.numbers)
        if self.stream is not None and type(self.stream) is type(state.stream):
            continue_like(self.stream, state.stream)

    def __repr__(self) -> str:
        return call_of(self.numbers, self.arithmetic)

    def _repr_inline_(self, max_width: int) -> str:
        """Return one line, which xarray prints in a table."""
        return line_of(self.numbers, self.format, max_width)

    def _with_numbers(self, numbers: NDArray) -> Array:
        return new_array(numbers, self.arithmetic)

    def _in_float64(self) -> NDArray[Any]:
        """Return a copy of the values in float64 or complex128."""
        return self.numbers.astype(np.complex128 if complex_parts.is_complex(self.numbers) else np.float64)

    def _writable_numbers(self) -> NDArray[Any]:
        """Return the values for writing; ValueError if they are read-only."""
        if not is_on_gpu(self.numbers) and not self.numbers.flags.writeable:
            raise ValueError("These values are read-only, like the imaginary parts of a real array.")
        return self.numbers

    def _as_operand_array(self, x: Any, rounds: bool = False) -> Array:
        """Return an operand as an array: exact, or rounded if the operand is assigned or joined."""
        if isinstance(x, Array) or not rounds:
            return self._with_numbers(self._operand(x))
        return self._with_numbers(_round_numbers(self.arithmetic, read_numbers(x)))

    def _operand(self, x: Any) -> NDArray:
        """Return the values of an operand.

        An operand is an array of the same format and mode, a scalar, or a NumPy array or a PyTorch tensor on the CPU
        that contains only numbers of the format.
        """
        if isinstance(x, Array):
            check_same(self.arithmetic, x.arithmetic)
            return x.numbers
        if type(x) is np.ndarray and x.dtype == self.arithmetic.dtype and are_surely_numbers(x, self.format):
            return x if x.ndim else narrow_scalar(x)
        if (number := python_number_in_float32(x)) is not None:
            return number
        if isinstance(x, SCALARS) or type(x).__module__ == "gmpy2" or (hasattr(x, "dtype") and not x.ndim):
            return narrow_scalar(read_numbers(x))
        if isinstance(x, np.ndarray) or is_on_gpu(x) or is_torch_tensor(x):
            return self._check_in_format(read_numbers(x))
        if type(x).__module__.startswith("xarray."):
            raise ValueError(
                f"Label the array before an operation with a {type(x).__name__}: xarray.DataArray(A, dims=x.dims)."
            )
        text = "x.toarray()" if hasattr(x, "toarray") else "x"  # SciPy's sparse matrices
        raise ValueError(
            f"An operand of an array of {self.format} must be an array of {self.format} or a single number, got "
            f"{type(x).__name__}; simfloat.array({text}, {str(self.format)!r}) rounds it, and np.asarray(a) returns "
            "the values of an array, to compute in float64."
        )

    def _check_in_format(self, numbers: NDArray) -> NDArray:
        """Convert values to the storage type of this array; ValueError names the first one outside the format."""
        is_complex = complex_parts.is_complex(numbers)
        for part in (numbers.real, numbers.imag) if is_complex else (numbers,):
            place = first_outside_format(part, self.format)
            if place is not None:
                value = numbers[place]
                if numbers.dtype != object or is_float64(value):
                    value = value.item() if hasattr(value, "item") else float(value)
                raise ValueError(
                    f"An operand of an array of {self.format} must contain only numbers of {self.format}, but "
                    f"{message_text(value)} at index {place if len(place) > 1 else place[0]} is not one: "
                    f"simfloat.array(x, {str(self.format)!r}) rounds the operand."
                )
        dtype = np.dtype(self.arithmetic.dtype)
        return numbers.astype(np.result_type(dtype, np.complex64) if is_complex else dtype, copy=False)

    def _result_arithmetic(self, *others: Any) -> ArrayArithmetic:
        """Return the arithmetic of a result: the one of this array, or of an operand with an observer if this array
        has none.
        """
        if self.arithmetic.observer is None:
            for other in others:
                if isinstance(other, Array) and other.arithmetic.observer is not None:
                    return other.arithmetic
        return self.arithmetic

    def _compute(self, operation: str, *others: Any) -> Array:
        """Compute an operation of the catalog, rounded once, or a complex operation."""
        operands = [self.numbers, *map(self._operand, others)]
        u = self._result_arithmetic(*others)
        if not any(map(complex_parts.is_complex, operands)):
            compute = u.compute_representable if operation in REPRESENTABLE else u.compute
            return new_array(compute(operation, *operands), u)
        if operation not in complex_parts.OPERATIONS:
            instead = _ALTERNATIVES.get(operation, complex_parts.BY_PARTS)
            raise ValueError(f"{operation} of complex arrays is not supported: {instead}.")
        return new_array(complex_parts.compute(u, operation, *operands), u)

    def _write_out(self, out: Array, operation: str, operands: Sequence[Any]) -> Array:
        """Write the results of a ufunc into another array of the format."""
        first = self._as_operand_array(operands[0])
        if operation in FUNCTIONS:
            return out._compute_into(operation, first, *operands[1:])
        check_same(out.arithmetic, first.arithmetic)
        return out._write_in_place(getattr(first, operation)(*operands[1:]))

    def _compute_into(self, operation: str, first: Array, *others: Any) -> Array:
        """Write the results of an operation into this array, which may be an operand, and avoid a copy if possible."""
        check_same(self.arithmetic, first.arithmetic)
        operands = [first.numbers, *map(first._operand, others)]
        u = first._result_arithmetic(*others)
        if operation not in REPRESENTABLE and u.compute_into(self._writable_numbers(), operation, *operands):
            return self
        return self._write_in_place(first._compute(operation, *others))

    def _round_choice(
        self, choose: Callable[[NDArray, NDArray], NDArray], other: Any, operation: str = "round"
    ) -> Array:
        x, y, u = self._real_numbers(operation), self._operand(other), self._result_arithmetic(other)
        if complex_parts.is_complex(y):
            raise ValueError(f"{operation} of complex arrays is not supported: {complex_parts.BY_PARTS}.")
        if operation == "remainder":
            return new_array(u.round(choose(on_cpu(x), on_cpu(y)), operation), u)
        if x.dtype == object or y.dtype == object:
            return new_array(u.round(choose_exactly(choose, x, y), operation), u)
        machine = device_of(x, y)
        chosen = as_array(choose(machine.to_device(x), machine.to_device(y)))
        # An element of an array, or zero, needs no rounding, unless its draws or its events are needed.
        is_number = isinstance(other, Array) or (not y.ndim and y == 0 and not np.signbit(y) and self.format.has_zero)
        if is_number and chosen.dtype == u.dtype and u.stream is None and u.current_observer is None:
            return new_array(chosen, u)
        return new_array(u.round(chosen, operation), u)

    def _compared_numbers(self, x: Any) -> NDArray:
        return read_numbers(x)

    def _compare(self, compare: Callable[[Any, Any], Any], other: Any) -> NDArray[np.bool_]:
        """Compare the values with others of any format; a comparison rounds nothing."""
        return self._compare_exactly(compare, (self, other))

    def _write_in_place(self, result: Array) -> Array:
        """Write the result of an in-place operation into the memory of this array."""
        if result.shape != self.shape or not self._fits(result):
            raise ValueError(
                f"An in-place operation cannot change the shape or make a real array complex: the array is "
                f"{_describe(self.numbers)}, the result {_describe(result.numbers)}. Write x = x + y instead."
            )
        self._writable_numbers()[...] = on_device_of(result.numbers, self.numbers)
        return self

    def _fits(self, value: Any) -> bool:
        """True if a value can be stored in this array: a complex value cannot be stored in a real array."""
        return complex_parts.is_complex(self.numbers) or not complex_parts.reads_as_complex(
            value.numbers if isinstance(value, Array) else value
        )

    def _refuse_complex(self) -> NoReturn:
        raise ValueError("A real array cannot store complex numbers; make it complex: A + 0j.")

    def _join(self, join: Callable[[list[NDArray]], NDArray], arrays: Sequence[Any]) -> Array:
        """Join arrays and other values; those that are not arrays are rounded one after the other."""
        if not isinstance(arrays, list | tuple):
            arrays = [arrays] if isinstance(arrays, Array) and not arrays.ndim else list(arrays)
        parts = [self._as_operand_array(x, rounds=True).numbers for x in arrays]
        return new_array(join(on_one_device(parts)), self._result_arithmetic(*arrays))

    def _concatenate(self, arrays: Sequence[Any], axis: int | None) -> Array:
        return self._join(lambda parts: np.concatenate(parts, axis), arrays)

    def _stack(self, arrays: Sequence[Any], axis: int) -> Array:
        return self._join(lambda parts: np.stack(parts, axis), arrays)

    def _where(self, condition: Any, x: Any, y: Any) -> Array:
        first_array = next((one for one in (x, y) if isinstance(one, Array)), self)
        chosen = as_array(condition.numbers if isinstance(condition, Array) else condition)
        parts = (chosen, *(first_array._as_operand_array(one, rounds=True).numbers for one in (x, y)))
        return new_array(np.where(*on_one_device(parts)), first_array._result_arithmetic(x, y))


def new_array(numbers: NDArray, arithmetic: ArrayArithmetic) -> Array:
    """Return an array of values that are already in the format."""
    new = Array.__new__(Array)
    # NumPy returns scalars instead of 0-dimensional arrays.
    new.numbers = numbers if type(numbers) is np.ndarray else as_array(numbers)
    new.arithmetic = arithmetic
    return new


def read_numbers(x: Any, name: str = "data") -> NDArray:
    """Read real or complex values exactly; `name` is the name of the argument in messages."""
    if isinstance(x, Array):
        return x.numbers
    kind = type(x)
    if kind is complex:
        return np.array(x)
    if kind is float or kind is int or is_on_gpu(x) or not complex_parts.reads_as_complex(x):
        return x if is_on_gpu(x) and x.dtype.kind == "c" else exact_operand(x, name)
    check_not_masked(x, name)
    # A sequence may contain Python integers that a complex array would round.
    values: Any = x if hasattr(x, "dtype") else np.array(x, object)
    if hasattr(values, "resolve_conj"):
        values = values.detach().resolve_conj()
    if values.dtype == object:
        flat = values.reshape(-1)
        real, imaginary = (np.array([getattr(number, part) for number in flat], object) for part in ("real", "imag"))
        return complex_parts.from_parts(*(as_operand(part, name).reshape(values.shape) for part in (real, imaginary)))
    return complex_parts.from_parts(as_operand(values.real, name), as_operand(values.imag, name))


def _round_numbers(arithmetic: ArrayArithmetic, numbers: NDArray) -> NDArray:
    if complex_parts.is_complex(numbers):
        return complex_parts.round_parts(arithmetic, numbers)
    return arithmetic.round(numbers)


def _describe(x: NDArray) -> str:
    return f"{'complex' if complex_parts.is_complex(x) else 'real'} of shape {x.shape}"
