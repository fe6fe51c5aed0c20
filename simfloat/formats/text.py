"""Formats as text: reading the arguments of a format from text, and describing a format in words and numbers.

The first part does not depend on formats.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from simfloat.common import Table, table

if TYPE_CHECKING:
    from simfloat.formats.format import Format


class Arguments(NamedTuple):
    """The arguments of a call of Format."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def arguments_of(text: str) -> Arguments | None:
    """Return the arguments of the format that a text describes, or None.

    A text is like ``e5m10`` (ieee), a name of P3109 (``Binary8p3se``, ``p3109_k8p3se`` of gfloat), or a call
    (``Format(4, 3, special='fn')``, ``fixed(8, 6)``). Raises ValueError for a name of P3109 without an exponent bit,
    and for too few bits.
    """
    if widths := re.fullmatch(r"e([0-9]{1,4})m([0-9]{1,4})", text.lower()):
        return Arguments((int(widths[1]), int(widths[2])), {})
    if parts := re.fullmatch(r"(?:binary|p3109_k)([0-9]{1,4})p([0-9]{1,4})([su])([ef])", text.lower()):
        return p3109_arguments(int(parts[1]), int(parts[2]), signed=parts[3] == "s", extended=parts[4] == "e")
    if parts := re.fullmatch(r"fixed(\(.*\))", text, re.IGNORECASE):
        return _parse_fixed(f"fixed{parts[1]}")
    return _parse_call(text) if text.startswith("Format(") else None


def p3109_arguments(bits: int, precision: int, signed: bool, extended: bool) -> Arguments:
    """Return the arguments of the IEEE P3109 format Binary{bits}p{precision}; ValueError if no exponent bit is left."""
    exponent_bits = bits - precision + (0 if signed else 1)
    if precision < 1 or exponent_bits < 1:
        most = bits - 1 if signed else bits
        raise ValueError(f"A P3109 format of {bits} bits has a precision from 1 to {most}, got {precision}.")
    name = f"Binary{bits}p{precision}{'s' if signed else 'u'}{'e' if extended else 'f'}"
    special = "p3109" if extended else "p3109_finite"
    return Arguments((exponent_bits, precision - 1), {"special": special, "signed": signed, "name": name})


def fixed_arguments(bits: int, fraction_bits: int, signed: bool = True, symmetric: bool = True) -> Arguments:
    """Return the arguments of the fixed-point format of `bits` bits; ValueError if float64 cannot represent the
    numbers.

    One exponent bit distinguishes the lower half of the magnitudes from the upper half, and both have the same spacing.
    With the lowest number of two's complement, which is an upper half of one number, all other magnitudes form the
    lower half.
    """
    most = 53 + (signed and symmetric)
    if not 1 + signed <= bits <= most:
        written = "" if signed and symmetric else " with symmetric=False" if signed else " with signed=False"
        raise ValueError(
            f"Fixed-point numbers{written} have {1 + signed} to {most} bits, which float64 can represent; got {bits}."
        )
    has_lowest = signed and not symmetric
    exponent_bits, special = int(not has_lowest), "fixed_symmetric" if signed and symmetric else "fixed"
    mantissa_bits = bits - signed - exponent_bits
    options = {"bias": 1 - mantissa_bits + fraction_bits, "special": special, "signed": signed}
    name = fixed_text(bits, fraction_bits, signed, symmetric)
    return Arguments((exponent_bits, mantissa_bits), options | {"name": name})


def fixed_text(bits: int, fraction_bits: int, signed: bool, symmetric: bool) -> str:
    """Return the shortest call of :func:`simfloat.fixed` that makes this format."""
    arguments = [str(bits), *([str(fraction_bits)] if fraction_bits else []), *([] if signed else ["signed=False"])]
    return f"fixed({', '.join([*arguments, *(['symmetric=False'] if signed and not symmetric else [])])})"


def _parse_fixed(text: str) -> Arguments | None:
    """Return the arguments of the fixed-point format in the text of a call, None for any other text."""
    call = _parse_call(text)
    if call is None or not 1 <= len(call.args) <= 2:
        return None
    options: dict[str, Any] = {"fraction_bits": 0, **call.kwargs}
    if set(options) - {"fraction_bits", "signed", "symmetric"} or (
        len(call.args) == 2 and "fraction_bits" in call.kwargs
    ):
        return None
    bits, fraction_bits = (*call.args, options.pop("fraction_bits"))[:2]
    if not all(type(number) is int and abs(number) < 10_000 for number in (bits, fraction_bits)):
        return None
    return (
        fixed_arguments(bits, fraction_bits, **options)
        if all(type(flag) is bool for flag in options.values())
        else None
    )


def _parse_call(text: str) -> Arguments | None:
    """Return the arguments in the text of a call; they must be literals, and no code is run."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        positional = [ast.literal_eval(argument) for argument in call.args]
        options = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return Arguments(positional, options)


def format_facts(format: Format) -> Table:
    """Return the facts of a format as a table, one row per fact; numbers are followed by their codes."""
    return table(_fixed_point_facts(format) if format.is_fixed else _float_facts(format), has_head=False)


def _float_facts(format: Format) -> list[tuple[str, str]]:
    low, code = format.emin - format.mantissa_bits, format.max_code
    smallest = format.smallest_subnormal
    smallest_code = 1 if smallest < format.smallest_normal else _first_normal(format)
    return [
        ("bits", f"{format.bits}: {layout(format)}, as {picture(format)}"),
        ("exponents", f"{format.emin} to {format.emax}, bias {format.bias}"),
        ("precision", f"{format.precision}, unit roundoff 2^-{format.precision} = {format.unit_roundoff!r}"),
        ("max", f"{format.max!r}  {hexadecimal_code(code, format)}"),
        ("min", f"{format.min!r}  {hexadecimal_code(_code_of_most_negative(code, format), format)}"),
        (
            "smallest normal",
            f"2^{format.emin} = {format.smallest_normal!r}  {hexadecimal_code(_first_normal(format), format)}",
        ),
        (
            "smallest",
            f"2^{low if smallest_code == 1 else format.emin} = {smallest!r}  {hexadecimal_code(smallest_code, format)}",
        ),
        ("subnormals", _subnormals(format)),
        ("1 to the next", f"2^-{format.mantissa_bits} = {format.eps!r}"),
        ("zero", _zeros(format)),
        ("infinity", _infinities(format)),
        ("NaN", _not_numbers(format)),
    ]


def _fixed_point_facts(format: Format) -> list[tuple[str, str]]:
    """Return the facts of a fixed-point format: a constant spacing, and no exponent, subnormals, -0, infinity or
    NaN."""
    bits, unit = format.bits, -format.fraction_bits
    lowest = 1 << (bits - 1) if format.special == "fixed" else (1 << (bits - 1)) + 1
    spare = f"no number; -{1 << (bits - 1)} * 2^{unit} with symmetric=False"
    return [
        ("bits", f"{bits}: {layout(format)}, as {picture(format)}"),
        ("codes", "two's complement" if format.signed else "binary, without a sign"),
        ("max", f"{format.max!r}  {hexadecimal_code(format.max_code, format)}"),
        ("min", f"{format.min!r}  {hexadecimal_code(lowest if format.signed else 0, format)}"),
        *([(hexadecimal_code(lowest - 1, format), spare)] if format.special == "fixed_symmetric" else []),
        ("spacing", f"2^{unit} = {format.eps!r}, everywhere"),
        ("rounding error", f"at most 2^{unit - 1} = {format.unit_roundoff!r} to nearest"),
        ("overflow", "becomes max or min in every rounding mode"),
        ("zero", f"{hexadecimal_code(0, format)}, no -0"),
        ("infinity", "none"),
        ("NaN", "none"),
    ]


def html(format: Format) -> str:
    """Return the facts of a format for a notebook, below the call that makes the format."""
    return f"<b>{escape(str(format))}</b> <code>{escape(repr(format))}</code>{format_facts(format)._repr_html_()}"


def layout(format: Format) -> str:
    """Return the fields of a code, starting at its top bit, and their widths."""
    if format.is_fixed:
        names = ("sign", "integer", "fraction")
        return ", ".join(f"{name} {width}" for name, width in zip(names, _widths(format), strict=False) if width)
    sign = "sign 1, " if format.signed else ""
    return f"{sign}exponent {format.exponent_bits}, mantissa {format.mantissa_bits}"


def picture(format: Format) -> str:
    """Return one letter for each bit of a code.

    They are s for the sign, e for the exponent and m for the mantissa; i and f for the integer and the fraction of
    fixed-point numbers.
    """
    letters = "sif" if format.is_fixed else "sem"
    return " ".join(letter * width for letter, width in zip(letters, _widths(format), strict=False) if width)


def _widths(format: Format) -> tuple[int, ...]:
    """Return the widths of the fields of a code from the top; two fields if the binary point is outside the code."""
    if not format.is_fixed:
        return int(format.signed), format.exponent_bits, format.mantissa_bits
    integer = format.bits - format.signed - format.fraction_bits
    inside = integer >= 0 and format.fraction_bits >= 0
    return (int(format.signed), *((integer, format.fraction_bits) if inside else (format.bits - format.signed,)))


def hexadecimal_code(code: int, format: Format) -> str:
    """Return a code in hexadecimal, with all the digits that codes have."""
    return f"0x{code:0{-(-format.bits // 4)}x}"


def binary_code(code: int, format: Format) -> str:
    """Return the bits of a code, field by field."""
    bits = f"{code:0{format.bits}b}"
    ends = list(accumulate(_widths(format)))
    return " ".join(filter(None, (bits[start:end] for start, end in zip([0, *ends], ends, strict=False))))


def _first_normal(format: Format) -> int:
    return 1 << format.mantissa_bits if format.has_zero else 0


def _code_of_most_negative(code: int, format: Format) -> int:
    """Return the code of the most negative number; without a sign, the code of the smallest number."""
    return code | 1 << (format.bits - 1) if format.signed else 0


def _subnormals(format: Format) -> str:
    if format.flushes:
        return f"no: results that are tiny {format.tininess.replace('_', ' ')} become zero"
    return "yes" if format.smallest_subnormal < format.smallest_normal else "no"


def _zeros(format: Format) -> str:
    if not format.has_zero:
        return "none"
    negative = (
        f", -0 is {hexadecimal_code(_code_of_most_negative(0, format), format)}"
        if format.has_negative_zero
        else ", no -0"
    )
    return hexadecimal_code(0, format) + (negative if format.signed else "")


def _infinities(format: Format) -> str:
    code = format.infinity_code
    if code is None:
        return "none: larger values become " + ("max" if format.clamps else "NaN")
    return hexadecimal_code(code, format) + (
        f", {hexadecimal_code(_code_of_most_negative(code, format), format)}" if format.signed else ""
    )


def _not_numbers(format: Format) -> str:
    if format.nan_code is None:
        return "none"
    signs = 1 + format.signed
    finite = signs * (format.max_code + 1) - (format.signed and not format.has_negative_zero)
    count = 2**format.bits - finite - signs * format.has_infinity
    return hexadecimal_code(format.nan_code, format) + (f" and {count - 1} more" if count > 1 else "")
