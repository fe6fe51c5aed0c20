"""The arithmetic of an array: format, rounding mode, accumulator and random stream, applied to plain real arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream, check_stream
from simfloat.arithmetic.exact_operations import ROUND, compute_exactly
from simfloat.arithmetic.machines import CPU, GPU, is_on_gpu
from simfloat.arithmetic.operands import FLOAT32, are_float32, broadcast_shape
from simfloat.arithmetic.operations import compute, round_array
from simfloat.arithmetic.representable import exact_values
from simfloat.arithmetic.target import (
    Observer,
    ObserverGroup,
    Target,
    carrier_of,
    check_observer,
    check_precision,
    observer_in_force,
)
from simfloat.common import state_of_fields
from simfloat.formats import FP32, Format, Rounding, as_format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.sums import matmul, partial_sums, sequential, sum
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.sequential import SequentialSum, as_accumulator

#: The rounding of complex products.
ComplexProducts = Literal["rounded", "fma"]


@dataclass(frozen=True)
class ArrayArithmetic:
    """Operations on float arrays, each rounded once to `format`.

    Operands and results are float32 if it can represent the format, otherwise float64. `accumulate` is None for the
    sequential sum in the same format and mode. Events go to `observer` and to the observer of the current simulation.
    """

    format: Format
    rounding: Rounding
    accumulate: Accumulator | None
    stream: Stream | None
    complex_products: ComplexProducts = "rounded"
    observer: Observer | None = None

    __getstate__ = state_of_fields

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        # Pickles of older versions also contain cached values.
        vars(self).update((field.name, state[field.name]) for field in fields(self) if field.name in state)

    @cached_property
    def dtype(self) -> Any:
        """The storage type of the format: float32 or float64."""
        return carrier_of(self.format)

    @cached_property
    def accumulator(self) -> Accumulator:
        """The accumulator of sums."""
        accumulator = self.accumulate or sequential(self.format, self.rounding)
        return accumulator.for_inputs(self.format, self.format)

    @cached_property
    def clamp_limit(self) -> float:
        """The largest number if results or sums saturate there; infinity if they become infinite or NaN instead."""
        accumulator = self.accumulator
        kinds = [(self.format, (self.rounding,)), (accumulator.result, accumulator.roundings)]
        return min(
            (
                format.max
                for format, modes in kinds
                if format is not None
                and (format.clamps or any(mode.stops(negative) for mode in modes for negative in (False, True)))
            ),
            default=math.inf,
        )

    @property
    def draws(self) -> bool:
        """True if operations or sums need random bits."""
        return any(mode.is_stochastic for mode in (self.rounding, *self.accumulator.roundings))

    @property
    def current_observer(self) -> Observer | None:
        """The observer for an operation that runs now."""
        in_force = observer_in_force()
        if in_force is None or in_force is self.observer:
            return self.observer
        return in_force if self.observer is None else ObserverGroup(self.observer, in_force)

    def round(self, x: NDArray, operation: str = "round") -> NDArray[np.floating]:
        """Round `x` to the format; an observer receives the events under the name `operation`."""
        target = self._target([x])
        if x.dtype.hasobject:
            return self._in_dtype(compute_exactly(ROUND, [x], target))
        return self._in_dtype(round_array(x, target if operation == "round" else target._replace(operation=operation)))

    def compute(self, operation: str, *operands: NDArray) -> NDArray[np.floating]:
        """Compute an operation of the catalog."""
        arrays = list(operands)
        if any([x.dtype.hasobject for x in arrays]):
            return self._in_dtype(compute_exactly(operation, arrays, self._target(arrays)))
        return self._in_dtype(compute(operation, arrays, self._target(arrays)))

    def compute_into(self, out: NDArray[np.floating], operation: str, *operands: NDArray) -> bool:
        """Compute an operation of the catalog into an array.

        Return False, and do nothing, if the results cannot be written directly.
        """
        arrays = list(operands)
        if any([type(x) is not np.ndarray or x.dtype.kind != "f" for x in (out, *arrays)]):
            return False
        target = self._target(arrays)
        if target.dtype != out.dtype or broadcast_shape(arrays) != out.shape:
            return False
        compute(operation, arrays, target, out=out)
        return True

    def compute_representable(self, operation: str, *operands: NDArray) -> NDArray[np.floating]:
        """Compute an operation with a result that float64 represents, such as fmod."""
        arrays = list(operands)
        if any(x.dtype.hasobject for x in arrays):
            return self._in_dtype(compute_exactly(operation, arrays, self._target(arrays)))
        return self.round(exact_values(operation, arrays), operation)

    def partial_sums(self, x: NDArray) -> NDArray[np.floating]:
        """Return the partial sums of a vector after every element."""
        if self.accumulator.chunk != 1:
            raise ValueError(f"One step of {self.accumulator} adds several elements: cumsum needs their partial sums.")
        ones = np.ones(x.size, np.float32)
        return self._in_dtype(partial_sums(x, ones, observer=self.current_observer, **self._options))

    def negate(self, x: NDArray) -> NDArray[np.floating]:
        """Return -x, rounded if it may not be a number of the format."""
        return -x if self.format.has_negative_zero and self.format.signed else self.round(-x)

    def matmul(self, a: NDArray, b: NDArray, initial: NDArray | None = None) -> NDArray[np.floating]:
        """Multiply matrices or vectors; sums start from `initial`."""
        return self._in_dtype(matmul(a, b, initial=initial, observer=self.current_observer, **self._options))

    def sum(self, x: NDArray, axis: int | None = None) -> NDArray[np.floating]:
        """Sum the elements along an axis, or all elements in row-major order."""
        return self._in_dtype(sum(x, axis, observer=self.current_observer, **self._options))

    @cached_property
    def _options(self) -> dict[str, Any]:
        """Options of sums; they include the rounding mode if the sum is rounded to the format at the end."""
        accumulator = self.accumulator
        options = {"accumulate": accumulator, "output": self.format, "stream": self.stream}
        return options if accumulator.result == self.format else options | {"rounding": self.rounding}

    def _target(self, operands: list[NDArray]) -> Target:
        target = self._targets[are_float32(operands)]
        observer = self.current_observer
        return target if observer is None else target._replace(observer=observer)

    @cached_property
    def _targets(self) -> tuple[Target, Target]:
        """The rounding targets for float64 operands and for float32 operands."""
        in_float64 = Target(self.format, self.rounding, np.float64, self.stream, operation="round")
        return in_float64, in_float64._replace(dtype=self.dtype)

    def _in_dtype(self, numbers: NDArray) -> NDArray[np.floating]:
        """Convert values to the storage type."""
        return numbers if numbers.dtype == self.dtype else numbers.astype(self.dtype)


#: The options of an arithmetic.
OPTIONS = tuple(field.name for field in fields(ArrayArithmetic))


def as_arithmetic(
    format: FormatLike,
    rounding: RoundingLike,
    accumulate: Accumulator | FormatLike | None,
    stream: Stream | None,
    complex_products: ComplexProducts = "rounded",
    observer: Observer | None = None,
) -> ArrayArithmetic:
    """Return the arithmetic with these options; ValueError if one of them is invalid."""
    format, rounding = as_format(format), as_rounding(rounding)
    if stream is None and observer is None and accumulate is None and complex_products == "rounded":
        return _plain_arithmetic(id(format), format, rounding)
    return _checked_arithmetic(format, rounding, accumulate, stream, complex_products, observer)


@lru_cache(maxsize=64)
def _plain_arithmetic(identity: int, format: Format, rounding: Rounding) -> ArrayArithmetic:
    """Return the arithmetic with default options. Equal formats may differ in name, so their id is compared."""
    return _checked_arithmetic(format, rounding, None, None, "rounded", None)


def _checked_arithmetic(
    format: Format,
    rounding: Rounding,
    accumulate: Accumulator | FormatLike | None,
    stream: Stream | None,
    complex_products: ComplexProducts,
    observer: Observer | None,
) -> ArrayArithmetic:
    check_precision(format, rounding, is_exact=True)
    check_stream(stream)
    check_observer(observer)
    if complex_products not in ("rounded", "fma"):
        raise ValueError(f"complex_products is 'rounded' or 'fma', got {complex_products!r}.")
    accumulator = None if accumulate is None else as_accumulator(accumulate)
    if accumulator == SequentialSum(format, rounding=rounding):
        accumulator = None
    return ArrayArithmetic(format, rounding, accumulator, stream, complex_products, observer)


#: The magnitude up to which float32 represents all integers, and its smallest and largest normal numbers.
EXACT_INTEGERS, SMALLEST_NORMAL, LARGEST = 2**24, FP32.smallest_normal, FP32.max


def python_number_in_float32(x: Any) -> NDArray | None:
    """Return an int or a float in float32, if this is clearly exact; None for every other operand."""
    if type(x) is int and -EXACT_INTEGERS <= x <= EXACT_INTEGERS:
        return np.array(x, np.float32)
    if type(x) is float and SMALLEST_NORMAL <= abs(x) <= LARGEST and float(narrow := np.float32(x)) == x:
        return np.array(narrow)
    return None


def narrow_scalar(x: NDArray) -> NDArray:
    """Convert one value to float32 if this is exact, so that arithmetic with float32 arrays stays in float32."""
    if x.size == 1 and x.dtype != FLOAT32 and not x.dtype.hasobject:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            narrow = x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
        if (narrow == x).all():
            return narrow
    return x


def choose_exactly(choose: Callable[[NDArray, NDArray], NDArray], x: NDArray, y: NDArray) -> NDArray:
    """Choose the larger or the smaller of floats and exact values (objects); NaN if the float is NaN.

    One operand contains floats; the other contains exact values that float64 cannot represent.
    """
    floats, others = (y, x) if x.dtype == object else (x, y)
    is_larger = bool(choose(np.array(0.0), np.array(1.0)) == 1.0)
    return np.where(floats < others if is_larger else floats > others, others, floats.astype(object))


def with_options(arithmetic: ArrayArithmetic, **changed: Any) -> ArrayArithmetic:
    """Return the arithmetic with the options that are not None replaced and checked."""
    options = {name: value for name, value in changed.items() if value is not None}
    return as_arithmetic(**{name: getattr(arithmetic, name) for name in OPTIONS} | options)


def check_same(x: ArrayArithmetic, y: ArrayArithmetic) -> None:
    """Raise ValueError unless the formats, the roundings and the streams of two arrays are the same."""
    if y is x:
        return
    if y.format != x.format:
        is_wider = y.format.precision >= x.format.precision and y.format.emin <= x.format.emin
        common = y.format if is_wider and y.format.emax >= x.format.emax else x.format
        raise ValueError(
            f"Arrays of two formats do not mix, {x.format} and {y.format}: convert one of them, "
            f"x.astype({str(common)!r})."
        )
    if (x.rounding, x.complex_products, x.accumulator) != (y.rounding, y.complex_products, y.accumulator):
        ways = [f"rounding={u.rounding} with accumulate={u.accumulator} and stream={u.stream}" for u in (x, y)]
        raise ValueError(
            f"Arrays that round in two ways do not mix: {', and '.join(ways)}; "
            "astype(format, rounding=..., accumulate=..., stream=...) changes them."
        )
    if x.stream is not y.stream:
        raise ValueError(
            "Arrays that round in two ways do not mix. Each has its own stream: pass the same BitStream to both, or "
            "write y.astype(y.format, stream=x.stream)."
        )


def on_one_device(arrays: Sequence[NDArray]) -> list[NDArray]:
    """Move all arrays to the GPU if one of them is there; an assigned or chosen operand may be a NumPy array."""
    machine = GPU if any(map(is_on_gpu, arrays)) else CPU
    return [machine.to_device(x) for x in arrays]
