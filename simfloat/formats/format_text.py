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

    A text is like ``e5m10`` (ieee), a name of P3109 (``Binary8p3se``), or a call (``Format(4, 3, special='fn')``,
    ``fixed(8, 6)``). Raises ValueError for a name of P3109 without an exponent bit, and for too few bits.
    """
    if widths := re.fullmatch(r"e([0-9]{1,4})m([0-9]{1,4})", text.lower()):
        return Arguments((int(widths[1]), int(widths[2])), {})
    if parts := re.fullmatch(r"binary([0-9]{1,4})p([0-9]{1,4})([su])([ef])", text.lower()):
        return p3109_arguments(int(parts[1]), int(parts[2]), signed=parts[3] == "s", extended=parts[4] == "e")
    if parts := re.fullmatch(r"fixed\(([0-9]{1,4})(?:, *(-?[0-9]{1,4}))?\)", text.lower()):
        return fixed_arguments(int(parts[1]), int(parts[2] or 0))
    return _of_call(text) if text.startswith("Format(") else None


def p3109_arguments(bits: int, precision: int, signed: bool, extended: bool) -> Arguments:
    """The arguments of the IEEE P3109 format Binary{bits}p{precision}; ValueError where no exponent bit is left."""
    exponent_bits = bits - precision + (0 if signed else 1)
    if precision < 1 or exponent_bits < 1:
        most = bits - 1 if signed else bits
        raise ValueError(f"A P3109 format of {bits} bits has a precision from 1 to {most}, got {precision}.")
    name = f"Binary{bits}p{precision}{'s' if signed else 'u'}{'e' if extended else 'f'}"
    special = "p3109" if extended else "p3109_finite"
    return Arguments((exponent_bits, precision - 1), {"special": special, "signed": signed, "name": name})


def fixed_arguments(bits: int, fraction_bits: int) -> Arguments:
    """The arguments of the fixed-point numbers of so many bits; ValueError where there is none but for a sign.

    One exponent bit tells the lower half of the magnitudes from the upper one, and both have the same spacing.
    """
    if not 2 <= bits <= 54:
        raise ValueError(
            "Fixed-point numbers have a sign and one more bit at least, and 53 more at most, which float64 holds: bits "
            f"from 2 to 54, got {bits}."
        )
    mantissa_bits = bits - 2
    name = f"fixed({bits}, {fraction_bits})" if fraction_bits else f"fixed({bits})"
    return Arguments((1, mantissa_bits), {"bias": 1 - mantissa_bits + fraction_bits, "special": "finite", "name": name})


def _of_call(text: str) -> Arguments | None:
    """The arguments in the text of a call; they are literals, nothing is run."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        given = [ast.literal_eval(argument) for argument in call.args]
        options = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return Arguments(given, options)
