"""Texts that describe a format, as the arguments that make it: nothing here knows formats."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Arguments(NamedTuple):
    """What a call of Format is given."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def arguments_of(text: str) -> Arguments | None:
    """The arguments of the format that a text describes, None if it describes none.

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
    """The arguments of the IEEE P3109 format Binary{bits}p{precision}; ValueError where no exponent bit is left."""
    exponent_bits = bits - precision + (0 if signed else 1)
    if precision < 1 or exponent_bits < 1:
        most = bits - 1 if signed else bits
        raise ValueError(f"A P3109 format of {bits} bits has a precision from 1 to {most}, got {precision}.")
    name = f"Binary{bits}p{precision}{'s' if signed else 'u'}{'e' if extended else 'f'}"
    special = "p3109" if extended else "p3109_finite"
    return Arguments((exponent_bits, precision - 1), {"special": special, "signed": signed, "name": name})


def fixed_arguments(bits: int, fraction_bits: int, signed: bool = True, symmetric: bool = True) -> Arguments:
    """The arguments of the fixed-point numbers of `bits` bits; ValueError if float64 cannot represent them.

    One exponent bit tells the lower half of the magnitudes from the upper one, and both have the same spacing. The
    lowest number of two's complement is a half of its own, so with it all others are the lower half.
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
    """The shortest call of :func:`simfloat.fixed` that makes such numbers."""
    arguments = [str(bits), *([str(fraction_bits)] if fraction_bits else []), *([] if signed else ["signed=False"])]
    return f"fixed({', '.join([*arguments, *(['symmetric=False'] if signed and not symmetric else [])])})"


def _parse_fixed(text: str) -> Arguments | None:
    """The arguments of the fixed-point numbers that the text of a call makes, None if it is no such call."""
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
    """The arguments in the text of a call; they are literals, nothing is run."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        positional = [ast.literal_eval(argument) for argument in call.args]
        options = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return Arguments(positional, options)
