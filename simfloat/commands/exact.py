"""Reading a number as it is written, without a rounding."""

from __future__ import annotations

import re
from fractions import Fraction

HEXADECIMAL = re.compile(r"([+-]?)0x([0-9a-f]*)\.?([0-9a-f]*)(?:p([+-]?\d+))?", re.IGNORECASE)
EXPONENT = re.compile(r"[ep]([+-]?\d+)$", re.IGNORECASE)

#: Far beyond float64's range, and yet quick to compute with.
LARGEST_EXPONENT = 10_000


def read_number(text: str) -> Fraction | float:
    """The number that a text is written for: a decimal, a fraction, a hexadecimal float, -0, inf or nan.

    A Fraction, but for what no fraction is. Raises ValueError for anything else.
    """
    try:
        number = _read(text)
    except (ValueError, ZeroDivisionError):
        known = "write 0.1, 1e-5, 1/3, 0x1.8p-3, inf or nan"
        raise ValueError(f"{text!r} is no number, or one beyond 10^{LARGEST_EXPONENT}; {known}.") from None
    return -0.0 if number == 0 and text.startswith("-") else number


def _read(text: str) -> Fraction | float:
    exponent = EXPONENT.search(text)
    hexadecimal = HEXADECIMAL.fullmatch(text)
    if exponent and (hexadecimal or "x" not in text) and abs(int(exponent[1])) > LARGEST_EXPONENT:
        raise ValueError
    if hexadecimal:
        sign, whole, rest, power = hexadecimal.groups()
        magnitude = Fraction(int(whole + rest, 16)) * Fraction(2) ** (int(power or 0) - 4 * len(rest))
        return -magnitude if sign == "-" else magnitude
    if re.fullmatch("[+-]?(inf|infinity|nan)", text, re.IGNORECASE):
        return float(text)
    return Fraction(text)


def short_hex(value: float) -> str:
    """Python's hexadecimal float without the zeros at its end; inf and nan as they are."""
    return re.sub(r"\.?0*p", "p", value.hex(), count=1)
