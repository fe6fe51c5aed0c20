"""Numbers of any precision, read exactly: texts, integers, fractions, decimals, gmpy2's and NumPy's long floats.

Every finite number but zero becomes a Fraction; zeros, which have a sign, infinities and NaN become floats.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, TypeAlias

from simfloat.checks import message_text

Exact: TypeAlias = Fraction | float

#: Numbers are read from 10^-10000 to 10^10000: far beyond float64's range, and yet quick to compute with.
LARGEST_EXPONENT = 10_000

#: Digits of a text or a decimal that are read, as many as Python reads of an integer, and bits of a fraction's parts.
MOST_DIGITS = 4300
MOST_BITS = 70_000

DIGITS = r"[0-9](?:_?[0-9])*"
DECIMAL = re.compile(rf"[+-]?(?:{DIGITS}\.?(?:{DIGITS})?|\.{DIGITS})(?:e[+-]?{DIGITS})?", re.IGNORECASE)
QUOTIENT = re.compile(rf"([+-]?{DIGITS})/({DIGITS})")
HEXADECIMAL = re.compile(r"([+-]?)0x([0-9a-f]*)\.?([0-9a-f]*)(?:p([+-]?[0-9]+))?", re.IGNORECASE)
SPECIAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)

ACCEPTED_TEXTS = "write 0.1, 1e-5, 1/3, 0x1.8p-3, inf or nan"
BEYOND = (
    f"is no number within reach: they go from 10^-{LARGEST_EXPONENT} to 10^{LARGEST_EXPONENT}, texts and decimals with "
    f"at most {MOST_DIGITS} digits"
)


def exact_number(x: Any) -> Exact:
    """The number that `x` is, exactly.

    `x` is a number of Python's or NumPy's, a Fraction, a Decimal, gmpy2's mpz, mpq or mpfr, or a text: a decimal such
    as ``"0.1"`` or ``"1e-5"``, a quotient ``"1/3"``, a hexadecimal float ``"0x1.8p-3"``, ``"inf"``, ``"nan"``.

    Raises ValueError for a text that writes no number, and for numbers too large, too small or too long to compute
    with; TypeError for what is no real number.
    """
    if isinstance(x, float):  # NumPy's float64 is one
        return Fraction(x) if x and math.isfinite(x) else float(x)
    if isinstance(x, int):  # True and False are numbers, as in arrays
        return _quotient(x, 1)
    if isinstance(x, str):
        return _parse_text(x)
    if isinstance(x, Fraction):
        return _quotient(x.numerator, x.denominator)
    if isinstance(x, Decimal):
        return _from_decimal(x)
    kind = type(x)
    if kind.__module__.partition(".")[0] == "gmpy2":
        return _from_gmpy2(x, kind.__name__)
    if kind.__module__ == "numpy":
        return _from_numpy(x)
    raise TypeError(kind.__name__)


def is_float64(x: Exact) -> bool:
    """Whether float64 holds a number."""
    if isinstance(x, float):
        return True
    numerator, denominator = x.as_integer_ratio()
    if denominator & (denominator - 1):
        return False
    try:
        return float(x) == x
    except OverflowError:
        return False


def _parse_text(text: str) -> Exact:
    plain = text.strip()
    if len(plain) > MOST_DIGITS:
        raise ValueError(f"{message_text(text)}, {BEYOND}; {ACCEPTED_TEXTS}")
    if SPECIAL.fullmatch(plain):
        return float(plain)
    if DECIMAL.fullmatch(plain):
        return _parse_decimal(plain, text)
    negative = plain.startswith("-")
    if match := QUOTIENT.fullmatch(plain):
        # By way of Decimal, which has no limit of digits.
        numerator, denominator = (int(Decimal(part)) for part in match.groups())
        if denominator == 0:
            raise ValueError(f"{message_text(text)} is no number: its denominator is 0; {ACCEPTED_TEXTS}")
        return _quotient(numerator, denominator, negative)
    match = HEXADECIMAL.fullmatch(plain)
    if match and match[2] + match[3]:
        digits, power = match[2] + match[3], match[4] or "0"
        exponent = int(power) if len(power) < 10 else None
        magnitude = int(digits, 16)
        if magnitude == 0:
            return -0.0 if negative else 0.0
        if exponent is None or abs(exponent) > LARGEST_EXPONENT:
            raise ValueError(f"{message_text(text)} {BEYOND}; {ACCEPTED_TEXTS}")
        return _scale_by_power_of_two(-magnitude if negative else magnitude, exponent - 4 * len(match[3]), text)
    raise ValueError(f"{message_text(text)} is no number: {ACCEPTED_TEXTS}")


def _parse_decimal(plain: str, text: Any) -> Exact:
    try:
        return _from_decimal(Decimal(plain), text)
    except InvalidOperation:  # an exponent of more digits than Decimal has
        raise ValueError(f"{message_text(text)} {BEYOND}; {ACCEPTED_TEXTS}") from None


def _from_decimal(x: Decimal, text: Any = None) -> Exact:
    if x.is_nan():
        return math.nan
    if x.is_infinite() or not x:
        return math.copysign(math.inf if x else 0.0, -1.0 if x.is_signed() else 1.0)
    exponent = int(x.as_tuple().exponent)
    if abs(x.adjusted()) > LARGEST_EXPONENT or x.adjusted() - exponent >= MOST_DIGITS:
        raise ValueError(
            f"{message_text(x)} {BEYOND}" if text is None else f"{message_text(text)} {BEYOND}; {ACCEPTED_TEXTS}"
        )
    return Fraction(x)


def _quotient(numerator: int, denominator: int, negative: bool = False) -> Exact:
    """A quotient of integers; a zero is negative if the text says so."""
    if numerator == 0:
        return -0.0 if negative else 0.0
    sizes = numerator.bit_length(), denominator.bit_length()
    if max(sizes) > MOST_BITS or abs(sizes[0] - sizes[1]) * math.log10(2) > LARGEST_EXPONENT:
        raise ValueError(f"a number with parts of {sizes[0]} and {sizes[1]} bits {BEYOND}")
    return Fraction(numerator, denominator)


def _scale_by_power_of_two(significand: int, exponent: int, text: Any) -> Exact:
    """An integer times a power of two, which is not built where it is too large."""
    size = significand.bit_length() + exponent
    if significand.bit_length() > MOST_BITS or abs(size) * math.log10(2) > LARGEST_EXPONENT:
        raise ValueError(f"{message_text(text)} {BEYOND}")
    return Fraction(significand) * Fraction(2) ** exponent


def _from_gmpy2(x: Any, name: str) -> Exact:
    """A number of gmpy2's, which is known by its type's name: nothing is imported."""
    if name == "mpz":
        if x.bit_length() > MOST_BITS:
            raise ValueError(f"{message_text(x)} {BEYOND}")
        return _quotient(int(x), 1)
    if name == "mpq":
        if max(part.bit_length() for part in (x.numerator, x.denominator)) > MOST_BITS:
            raise ValueError(f"a number with parts of more than {MOST_BITS} bits {BEYOND}")
        return _quotient(int(x.numerator), int(x.denominator))
    if name == "mpfr":
        if x.is_zero() or not x.is_finite():
            return math.nan if x.is_nan() else math.copysign(0.0 if x.is_zero() else math.inf, -x.is_signed() or 1.0)
        significand, exponent = x.as_mantissa_exp()
        return _scale_by_power_of_two(int(significand), int(exponent), x)
    raise TypeError(name)


def _from_numpy(x: Any) -> Exact:
    """A number of NumPy's: an integer, or a float of any width."""
    kind = x.dtype.kind
    if kind in "iub":
        return _quotient(int(x), 1)
    if kind != "f":
        raise TypeError(type(x).__name__)
    if x == 0 or x - x != 0:
        return math.copysign(float(abs(x)), math.copysign(1.0, x))
    return Fraction(*x.as_integer_ratio())
