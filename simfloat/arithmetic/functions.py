"""The public operations: one function for each row of the catalog, with its meaning and an example in BF16."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.catalog import FUNCTIONS, OPERATIONS, REPRESENTABLE, Operation
from simfloat.arithmetic.flags import Flags
from simfloat.arithmetic.operands import MISSING, OperandLike
from simfloat.arithmetic.operations import operate
from simfloat.arithmetic.representable import operate_representable
from simfloat.arithmetic.target import Observer
from simfloat.formats import nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike

Result = NDArray[np.floating]

_ACCURACY = {
    "exact": "The exact result is rounded once, in every mode and for all operands.",
    "elementary": """The result is correctly rounded in every deterministic mode if the operands are FP16 or
BF16 numbers and the format has at most 16 bits. Otherwise the error is below 0.5 + 2^-20 units in the last place under
rounding to nearest, and below 1 + 2^-20 units in the other modes. The bits are the same on every processor.""",
    "single": """The result is correctly rounded in every deterministic mode if the operands are FP32 numbers and
the format has at most 32 bits. Otherwise the error is below 0.5 + 2^-20 units in the last place under rounding to
nearest, and below 1 + 2^-20 units in the other modes. The bits are the same on every processor.""",
    "representable": "The exact result is rounded once, in every mode and format and for all operands.",
}

#: Function -> the end of the name of its operation in IEEE 754-2019, 5.3.1.
_TO_INTEGERS = {"rint": "TiesToEven", "floor": "TowardNegative", "ceil": "TowardPositive", "trunc": "TowardZero"}
_OF_INTEGERS = """

This is roundToIntegral{} of IEEE 754-2019. It does not raise inexact if the result differs from x.
roundToIntegralExact and C's rint raise it: for their flags, add inexact (1) where ``result != x`` and x is not NaN."""

#: Function -> the zeros near which its error is larger.
_CANCEL_AT = {"lgamma": "its zeros below zero", "digamma": "its zeros", "zeta": "its zeros in b below zero"}
_NEAR_ZEROS = """

Near {}, terms of the computation cancel. There, the error is only below 2^-90 times these terms."""

#: Errors of functions that a kernel computes; the mode of FP64 is inserted.
_LIMITS = """ValueError: if the format has more than 50 bits of precision, except for FP64 {}.
    ValueError: if float64 cannot represent an operand, and 960 digits do not decide how the result is rounded.
    """


#: The row that the templates below compute. Each public function is a template with its own row in place of this one.
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
    """Return {meaning}

    {accuracy}

    Special values follow IEEE 754-2019.

    Parameters:
        {operands}: numbers or arrays, which broadcast. All numbers that :func:`round` reads are accepted.
        format: the format of the results, or its name.
        rounding: the rounding mode, or its text; by default to nearest even.
        stream: the random bits of a stochastic mode (`BitStream` or `GivenBits`).
        observer: receives the counts of rounding events.
        flags: True to return the IEEE exceptions as well.
        out: an array to write the results to, of their shape and dtype. It may be an operand.

    Returns:
        float32 if all operands are float32 and the format fits into float32, otherwise float64. With ``flags=True`` a
        pair: the results, and a uint8 array of exceptions (inexact 1, underflow 2, overflow 4, division by zero 8,
        invalid 16; see :func:`round`).

    Raises:
        {limits}ValueError: if the shapes do not broadcast, or `out` has another shape or dtype.
        ValueError: if an operand or an option is one that :func:`simfloat.round` rejects.

    Examples:
        >>> sf.{name}({values}, sf.BF16)
        array({result})
    """
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
    """Make the function of a row of the catalog from a template; the docstring of `_unary` is filled in for it."""
    name, (values, result) = row.name, row.example.split(" -> ")
    is_computed = row.accuracy != "representable"
    own = {"_row": row, "operate": operate if is_computed else operate_representable}
    function: Any = FunctionType(template.__code__, globals() | own, name, (MISSING, *(template.__defaults__ or ())))
    function.__signature__ = signature(template)
    function.__kwdefaults__, function.__annotations__ = template.__kwdefaults__, template.__annotations__
    function.__qualname__ = name
    meaning = row.meaning[0].lower() + row.meaning[1:] if row.meaning.startswith("The ") else row.meaning
    facts = {"meaning": meaning, "accuracy": _ACCURACY[row.accuracy], "operands": ", ".join(row.operands)}
    modes = "in a deterministic mode" if row.accuracy == "exact" else f"under {nearest_even}"
    if name in _TO_INTEGERS:
        facts["accuracy"] += _OF_INTEGERS.format(_TO_INTEGERS[name])
    if name in _CANCEL_AT:
        facts["accuracy"] += _NEAR_ZEROS.format(_CANCEL_AT[name])
    facts["limits"] = _LIMITS.format(modes) if is_computed else ""
    function.__doc__ = cleandoc(_unary.__doc__ or "").format(name=name, values=values, result=result, **facts)
    return function


if TYPE_CHECKING:
    from simfloat.arithmetic.typed_functions import *  # noqa: F403
else:
    _TEMPLATES = {1: _unary, 2: _binary, 3: _ternary}
    _ROWS = FUNCTIONS | REPRESENTABLE
    globals().update({_name: _function(_TEMPLATES[len(_row.operands)], _row) for _name, _row in _ROWS.items()})
    __all__ = list(_ROWS)
