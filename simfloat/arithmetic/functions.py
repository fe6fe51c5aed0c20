"""The public operations: a function for each row of the catalog, with its meaning, and an example in BF16."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.catalog import FUNCTIONS, OPERATIONS, Operation
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


class UnaryFunction(Protocol):
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


class BinaryFunction(Protocol):
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


class TernaryFunction(Protocol):
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
    operands, result = example.split(" -> ")
    rules = _RULES.format(accuracy=_ACCURACY[operation.accuracy], name=operation.name, operands=operands, result=result)
    function.__doc__ = operation.meaning + rules
    return function


def _unary(name: str, example: str) -> UnaryFunction:
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


def _binary(name: str, example: str) -> BinaryFunction:
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


def _ternary(name: str, example: str) -> TernaryFunction:
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


# The operands of each and their result in BF16, as the example of its documentation.
add = _binary("add", "256.0, 1.0 -> 256.")
subtract = _binary("subtract", "1.0, 2.0**-9 -> 1.")
multiply = _binary("multiply", "0.1, 3.0 -> 0.30078125")
divide = _binary("divide", "1.0, 3.0 -> 0.33398438")
fma = _ternary("fma", "7.0, 37.0, -(2.0**-60) -> 258.")
power = _binary("power", "2.0, 0.5 -> 1.4140625")
sqrt = _unary("sqrt", "2.0 -> 1.4140625")
exp = _unary("exp", "1.0 -> 2.71875")
log = _unary("log", "10.0 -> 2.296875")
log2 = _unary("log2", "10.0 -> 3.328125")
tanh = _unary("tanh", "0.5 -> 0.46289062")
sin = _unary("sin", "1e6 -> -0.34960938")
cos = _unary("cos", "1e6 -> 0.9375")
erf = _unary("erf", "0.5 -> 0.51953125")
gelu = _unary("gelu", "-1.0 -> -0.15820312")
sigmoid = _unary("sigmoid", "2.0 -> 0.87890625")
reciprocal = _unary("reciprocal", "3.0 -> 0.33398438")
rsqrt = _unary("rsqrt", "2.0 -> 0.70703125")

if not TYPE_CHECKING:  # type checkers find the names above without
    __all__ = list(FUNCTIONS)
