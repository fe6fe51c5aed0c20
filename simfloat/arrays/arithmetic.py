"""The arithmetic of an array, on bare real arrays: a format, a rounding mode, an order of sums, a random stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream, check_stream
from simfloat.arithmetic.exact_operations import ROUND, compute_exactly
from simfloat.arithmetic.operands import FLOAT32, are_float32
from simfloat.arithmetic.operations import compute, round_array
from simfloat.arithmetic.target import (
    Observer,
    ObserverGroup,
    Target,
    carrier_of,
    check_observer,
    check_precision,
    observer_in_force,
)
from simfloat.formats import Format, Rounding, as_format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.sums import matmul, sequential, sum
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.sequential import SequentialSum, as_accumulator

#: How products of complex numbers are rounded.
ComplexProducts = Literal["rounded", "fma"]


@dataclass(frozen=True)
class ArrayArithmetic:
    """Every operation rounded once to `format`; operands and results are float arrays, float32 where that holds them.

    `accumulate` is None for the sequential sum in the format and mode of everything else. Events go to `observer` and
    to the observer of the simulation that is in force.
    """

    format: Format
    rounding: Rounding
    accumulate: Accumulator | None
    stream: Stream | None
    complex_products: ComplexProducts = "rounded"
    observer: Observer | None = None

    @cached_property
    def dtype(self) -> Any:
        """The type of arrays that numbers of the format travel in."""
        return carrier_of(self.format)

    @cached_property
    def accumulator(self) -> Accumulator:
        """The order of sums, and their roundings."""
        accumulator = self.accumulate or sequential(self.format, self.rounding)
        return accumulator.for_inputs(self.format, self.format)

    @cached_property
    def clamp_limit(self) -> float:
        """Where results or sums stop that lie beyond it; infinite where they become infinite or NaN instead."""
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

    def same_rounding(self, other: ArrayArithmetic) -> bool:
        """Whether both round in the same way, formats and streams apart."""
        return (self.rounding, self.complex_products) == (other.rounding, other.complex_products) and (
            self.accumulator == other.accumulator
        )

    @property
    def current_observer(self) -> Observer | None:
        """The observer of an operation that runs now."""
        in_force = observer_in_force()
        if in_force is None or in_force is self.observer:
            return self.observer
        return in_force if self.observer is None else ObserverGroup(self.observer, in_force)

    def round(self, x: NDArray, operation: str = "round") -> NDArray[np.floating]:
        """The numbers of the format that `x` rounds to; an observer receives it as the operation of that name."""
        target = self._target([x])
        if x.dtype.hasobject:
            return self._in_dtype(compute_exactly(ROUND, [x], target))
        return self._in_dtype(round_array(x, target if operation == "round" else target._replace(operation=operation)))

    def compute(self, operation: str, *operands: NDArray) -> NDArray[np.floating]:
        """An operation of the catalog."""
        arrays = list(operands)
        if any([x.dtype.hasobject for x in arrays]):
            return self._in_dtype(compute_exactly(operation, arrays, self._target(arrays)))
        return self._in_dtype(compute(operation, arrays, self._target(arrays)))

    def negate(self, x: NDArray) -> NDArray[np.floating]:
        """-x, which is rounded where it may be no number of the format."""
        return -x if self.format.has_negative_zero and self.format.signed else self.round(-x)

    def matmul(self, a: NDArray, b: NDArray, initial: NDArray | None = None) -> NDArray[np.floating]:
        """The product of matrices or vectors, whose sums may start from `initial`."""
        return self._in_dtype(matmul(a, b, initial=initial, observer=self.current_observer, **self._options))

    def sum(self, x: NDArray, axis: int | None = None) -> NDArray[np.floating]:
        """The sum of elements along an axis, or of all in row-major order."""
        return self._in_dtype(sum(x, axis, observer=self.current_observer, **self._options))

    @cached_property
    def _options(self) -> dict[str, Any]:
        """What sums are called with; a mode is given where they are rounded again in the end."""
        accumulator = self.accumulator
        options = {"accumulate": accumulator, "output": self.format, "stream": self.stream}
        return options if accumulator.result == self.format else options | {"rounding": self.rounding}

    def _target(self, operands: list[NDArray]) -> Target:
        target = self._targets[are_float32(operands)]
        observer = self.current_observer
        return target if observer is None else target._replace(observer=observer)

    @cached_property
    def _targets(self) -> tuple[Target, Target]:
        """Where results of float64 operands go, and of float32 ones."""
        in_float64 = Target(self.format, self.rounding, np.float64, self.stream, operation="round")
        return in_float64, in_float64._replace(dtype=self.dtype)

    def _in_dtype(self, numbers: NDArray) -> NDArray[np.floating]:
        """Numbers of the format in the array type that they travel in."""
        return numbers if numbers.dtype == self.dtype else numbers.astype(self.dtype)


def as_arithmetic(
    format: FormatLike,
    rounding: RoundingLike,
    accumulate: Accumulator | FormatLike | None,
    stream: Stream | None,
    complex_products: ComplexProducts = "rounded",
    observer: Observer | None = None,
) -> ArrayArithmetic:
    """The arithmetic that users ask for; ValueError for what is none."""
    format, rounding = as_format(format), as_rounding(rounding)
    check_precision(format, rounding)
    check_stream(stream)
    check_observer(observer)
    if complex_products not in ("rounded", "fma"):
        raise ValueError(f"complex_products is 'rounded' or 'fma', got {complex_products!r}.")
    accumulator = None if accumulate is None else as_accumulator(accumulate)
    if accumulator == SequentialSum(format, rounding=rounding):
        accumulator = None
    return ArrayArithmetic(format, rounding, accumulator, stream, complex_products, observer)


def narrow_scalar(x: NDArray) -> NDArray:
    """One number in float32 if that holds it, so that arithmetic on float32 arrays stays there."""
    if x.size == 1 and x.dtype != FLOAT32 and not x.dtype.hasobject:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            narrow = x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
        if (narrow == x).all():
            return narrow
    return x


def choose_exactly(choose: Callable[[NDArray, NDArray], NDArray], x: NDArray, y: NDArray) -> NDArray:
    """The larger or the smaller of floats and numbers that float64 lacks, of which none is a float; NaN if one is."""
    floats, others = (y, x) if x.dtype == object else (x, y)
    is_larger = bool(choose(np.array(0.0), np.array(1.0)) == 1.0)
    return np.where(floats < others if is_larger else floats > others, others, floats.astype(object))


def with_options(arithmetic: ArrayArithmetic, **changed: Any) -> ArrayArithmetic:
    """The arithmetic with other options than these, where they are given; checked."""
    options = {name: value for name, value in changed.items() if value is not None}
    return as_arithmetic(**{field.name: getattr(arithmetic, field.name) for field in fields(arithmetic)} | options)
