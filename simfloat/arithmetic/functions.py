"""The public operations: a function for each row of the catalog, with its meaning, and an example in BF16."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.catalog import FUNCTIONS, OPERATIONS, Operation
from simfloat.arithmetic.flags import Flags
from simfloat.arithmetic.operands import OperandLike
from simfloat.arithmetic.operations import operate
from simfloat.arithmetic.target import Observer
from simfloat.formats import nearest_even
from simfloat.formats.catalog import FormatLike
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


def _function(template: Callable[..., Any], row: Operation) -> Any:
    """The template as the function of a row of the catalog, with its meaning and its example."""
    name, (operands, result) = row.name, row.example.split(" -> ")
    function: Any = FunctionType(template.__code__, globals() | {"_row": row}, name, template.__defaults__)
    function.__kwdefaults__, function.__annotations__ = template.__kwdefaults__, template.__annotations__
    function.__qualname__ = name
    rules = _RULES.format(accuracy=_ACCURACY[row.accuracy], name=name, operands=operands, result=result)
    function.__doc__ = row.meaning + rules
    return function


if TYPE_CHECKING:
    from simfloat.arithmetic.typed_functions import *  # noqa: F403
else:
    _TEMPLATES = {1: _unary, 2: _binary, 3: _ternary}
    globals().update({_name: _function(_TEMPLATES[len(_row.operands)], _row) for _name, _row in FUNCTIONS.items()})
    __all__ = list(FUNCTIONS)
