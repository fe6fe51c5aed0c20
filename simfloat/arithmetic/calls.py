"""Functions out of rows of the catalog: with a signature for as many operands as there are, and the row's meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.catalog import OPERATIONS, Operation
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operations import operate
from simfloat.formats import nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike

Result = NDArray[np.floating]
Function = TypeVar("Function", bound=Callable[..., Result])

_RULES = """

{accuracy}

Operands are any float32 or float64 values, whatever the format; they broadcast. Specials follow IEEE 754-2019. The
result is float32 if all operands are float32 and the format fits, else float64. Stochastic modes take their bits from
`stream`; `observer` receives the counted events.

Raises ValueError for formats of more than 50 bits of precision (FP64 under nearest_even excepted), shapes that do not
broadcast, and what :func:`simfloat.round` refuses.

Examples:
    >>> sf.{name}({operands}, sf.BF16)
    array({result})
"""

_ACCURACY = {
    "exact": "The exact result is rounded once, in every mode and for all operands.",
    "elementary": """Correctly rounded in every deterministic mode for operands that are FP16 or BF16 numbers and
formats of at most 16 bits; otherwise the error is below 0.5 + 2^-20 units in the last place. The bits are the same on
every machine.""",
}


class Unary(Protocol):
    """A function of one array, rounded once to a format."""

    def __call__(
        self,
        x: ArrayLike,
        format: FormatLike,
        rounding: RoundingLike = nearest_even,
        *,
        stream: Stream | None = None,
        observer: Observer | None = None,
    ) -> Result:
        """The function of every element of `x`."""


class Binary(Protocol):
    """A function of two arrays, rounded once to a format."""

    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        format: FormatLike,
        rounding: RoundingLike = nearest_even,
        *,
        stream: Stream | None = None,
        observer: Observer | None = None,
    ) -> Result:
        """The function of every pair of elements of `a` and `b`."""


class Ternary(Protocol):
    """A function of three arrays, rounded once to a format."""

    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike,
        format: FormatLike,
        rounding: RoundingLike = nearest_even,
        *,
        stream: Stream | None = None,
        observer: Observer | None = None,
    ) -> Result:
        """The function of every triple of elements of `a`, `b` and `c`."""


def _named(operation: Operation, function: Function, example: str) -> Function:
    """The function with the name and the meaning of its row, and an example: operands, an arrow and their result."""
    function.__name__ = function.__qualname__ = operation.name
    function.__module__ = "simfloat.arithmetic.functions"  # where it is found by copies and other processes
    operands, result = example.split(" -> ")
    rules = _RULES.format(accuracy=_ACCURACY[operation.accuracy], name=operation.name, operands=operands, result=result)
    function.__doc__ = operation.meaning + rules
    return function


def unary(name: str, example: str) -> Unary:
    """The operation of one operand of that name."""
    operation = OPERATIONS[name]

    def function(
        x: ArrayLike,
        format: FormatLike,
        rounding: RoundingLike = nearest_even,
        *,
        stream: Stream | None = None,
        observer: Observer | None = None,
    ) -> Result:
        return operate(operation, (x,), format, rounding, stream, observer)

    return _named(operation, function, example)


def binary(name: str, example: str) -> Binary:
    """The operation of two operands of that name."""
    operation = OPERATIONS[name]

    def function(
        a: ArrayLike,
        b: ArrayLike,
        format: FormatLike,
        rounding: RoundingLike = nearest_even,
        *,
        stream: Stream | None = None,
        observer: Observer | None = None,
    ) -> Result:
        return operate(operation, (a, b), format, rounding, stream, observer)

    return _named(operation, function, example)


def ternary(name: str, example: str) -> Ternary:
    """The operation of three operands of that name."""
    operation = OPERATIONS[name]

    def function(
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike,
        format: FormatLike,
        rounding: RoundingLike = nearest_even,
        *,
        stream: Stream | None = None,
        observer: Observer | None = None,
    ) -> Result:
        return operate(operation, (a, b, c), format, rounding, stream, observer)

    return _named(operation, function, example)
