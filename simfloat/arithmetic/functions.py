"""The public operations: a function for each row of the catalog, with its meaning, and an example in BF16."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.catalog import FUNCTIONS, OPERATIONS
from simfloat.arithmetic.flags import Flags
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import OperandLike
from simfloat.arithmetic.operations import operate
from simfloat.formats import nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike

Result = NDArray[np.floating]

_RULES = """

{accuracy}

Operands are any numbers that :func:`round` reads, whatever the format, those that float64 lacks among them; they
broadcast. Specials follow IEEE 754-2019. The
result is float32 if all operands are float32 and the format fits, else float64. Stochastic modes take their bits from
`stream`; `observer` receives the counted events. With ``flags=True`` the result is a pair, the numbers and a uint8
array of IEEE exceptions: inexact 1, underflow 2, overflow 4, division by zero 8, invalid 16, as in :func:`round`.
Results are written to `out`, if it is given: an array of their shape and type, which may be an operand, too.

Raises ValueError for formats of more than 50 bits of precision (FP64 under nearest_even excepted), shapes that do not
broadcast, an `out` of another shape or type, and what :func:`simfloat.round` refuses. A function of a number that
float64 lacks is refused, too, where 960 digits do not tell which way it is rounded.

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


#: What the templates below compute: each public function is one of them with a row of its own in place of this.
_row = OPERATIONS["add"]


class _OfOne(Protocol):
    """A function of 1 operand, to type checkers."""

    @overload
    def __call__(
        self,
        x: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[False] = ...,
        out: Result | None = ...,
    ) -> Result: ...

    @overload
    def __call__(
        self,
        x: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[True],
        out: Result | None = ...,
    ) -> tuple[Result, Flags]: ...


class _OfTwo(Protocol):
    """A function of 2 operands, to type checkers."""

    @overload
    def __call__(
        self,
        a: OperandLike,
        b: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[False] = ...,
        out: Result | None = ...,
    ) -> Result: ...

    @overload
    def __call__(
        self,
        a: OperandLike,
        b: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[True],
        out: Result | None = ...,
    ) -> tuple[Result, Flags]: ...


class _OfThree(Protocol):
    """A function of 3 operands, to type checkers."""

    @overload
    def __call__(
        self,
        a: OperandLike,
        b: OperandLike,
        c: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[False] = ...,
        out: Result | None = ...,
    ) -> Result: ...

    @overload
    def __call__(
        self,
        a: OperandLike,
        b: OperandLike,
        c: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[True],
        out: Result | None = ...,
    ) -> tuple[Result, Flags]: ...


def _unary(
    x: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: bool = False,
    out: Result | None = None,
) -> Result | tuple[Result, Flags]:
    return operate(_row, (x,), format, rounding, stream, observer, flags, out)


def _binary(
    a: OperandLike,
    b: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: bool = False,
    out: Result | None = None,
) -> Result | tuple[Result, Flags]:
    return operate(_row, (a, b), format, rounding, stream, observer, flags, out)


def _ternary(
    a: OperandLike,
    b: OperandLike,
    c: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: bool = False,
    out: Result | None = None,
) -> Result | tuple[Result, Flags]:
    return operate(_row, (a, b, c), format, rounding, stream, observer, flags, out)


def _function(template: Callable[..., Any], name: str, example: str) -> Any:
    """The template as the function of a row of the catalog, with its meaning and an example: operands -> result."""
    row, (operands, result) = OPERATIONS[name], example.split(" -> ")
    function: Any = FunctionType(template.__code__, globals() | {"_row": row}, name, template.__defaults__)
    function.__kwdefaults__, function.__annotations__ = template.__kwdefaults__, template.__annotations__
    function.__qualname__ = name
    rules = _RULES.format(accuracy=_ACCURACY[row.accuracy], name=name, operands=operands, result=result)
    function.__doc__ = row.meaning + rules
    return function


# The operands of each and their result in BF16, as the example of its documentation.
add: _OfTwo = _function(_binary, "add", "256.0, 1.0 -> 256.")
subtract: _OfTwo = _function(_binary, "subtract", "1.0, 2.0**-9 -> 1.")
multiply: _OfTwo = _function(_binary, "multiply", "0.1, 3.0 -> 0.30078125")
divide: _OfTwo = _function(_binary, "divide", "1.0, 3.0 -> 0.33398438")
fma: _OfThree = _function(_ternary, "fma", "7.0, 37.0, -(2.0**-60) -> 258.")
power: _OfTwo = _function(_binary, "power", "2.0, 0.5 -> 1.4140625")
atan2: _OfTwo = _function(_binary, "atan2", "1.0, -1.0 -> 2.359375")
sqrt: _OfOne = _function(_unary, "sqrt", "2.0 -> 1.4140625")
exp: _OfOne = _function(_unary, "exp", "1.0 -> 2.71875")
log: _OfOne = _function(_unary, "log", "10.0 -> 2.296875")
log2: _OfOne = _function(_unary, "log2", "10.0 -> 3.328125")
log10: _OfOne = _function(_unary, "log10", "2.0 -> 0.30078125")
expm1: _OfOne = _function(_unary, "expm1", "0.01 -> 0.0100708")
log1p: _OfOne = _function(_unary, "log1p", "0.01 -> 0.00994873")
tanh: _OfOne = _function(_unary, "tanh", "0.5 -> 0.46289062")
sinh: _OfOne = _function(_unary, "sinh", "1.0 -> 1.171875")
cosh: _OfOne = _function(_unary, "cosh", "1.0 -> 1.546875")
asinh: _OfOne = _function(_unary, "asinh", "1.0 -> 0.8828125")
acosh: _OfOne = _function(_unary, "acosh", "2.0 -> 1.3203125")
atanh: _OfOne = _function(_unary, "atanh", "0.5 -> 0.55078125")
sin: _OfOne = _function(_unary, "sin", "1e6 -> -0.34960938")
cos: _OfOne = _function(_unary, "cos", "1e6 -> 0.9375")
tan: _OfOne = _function(_unary, "tan", "1.0 -> 1.5546875")
asin: _OfOne = _function(_unary, "asin", "0.5 -> 0.5234375")
acos: _OfOne = _function(_unary, "acos", "0.5 -> 1.046875")
atan: _OfOne = _function(_unary, "atan", "1.0 -> 0.78515625")
erf: _OfOne = _function(_unary, "erf", "0.5 -> 0.51953125")
erfc: _OfOne = _function(_unary, "erfc", "3.0 -> 2.20537186e-05")
erfcx: _OfOne = _function(_unary, "erfcx", "10.0 -> 0.05615234")
erfinv: _OfOne = _function(_unary, "erfinv", "0.5 -> 0.4765625")
ndtri: _OfOne = _function(_unary, "ndtri", "0.975 -> 1.9609375")
log_ndtr: _OfOne = _function(_unary, "log_ndtr", "-10.0 -> -53.25")
lgamma: _OfOne = _function(_unary, "lgamma", "10.0 -> 12.8125")
digamma: _OfOne = _function(_unary, "digamma", "10.0 -> 2.25")
zeta: _OfTwo = _function(_binary, "zeta", "2.0, 1.0 -> 1.6484375")
i0: _OfOne = _function(_unary, "i0", "1.0 -> 1.265625")
i0e: _OfOne = _function(_unary, "i0e", "1.0 -> 0.46484375")
i1: _OfOne = _function(_unary, "i1", "1.0 -> 0.56640625")
i1e: _OfOne = _function(_unary, "i1e", "1.0 -> 0.20800781")
gelu: _OfOne = _function(_unary, "gelu", "-1.0 -> -0.15820312")
sigmoid: _OfOne = _function(_unary, "sigmoid", "2.0 -> 0.87890625")
reciprocal: _OfOne = _function(_unary, "reciprocal", "3.0 -> 0.33398438")
rsqrt: _OfOne = _function(_unary, "rsqrt", "2.0 -> 0.70703125")

if not TYPE_CHECKING:  # type checkers find the names above without
    __all__ = list(FUNCTIONS)
