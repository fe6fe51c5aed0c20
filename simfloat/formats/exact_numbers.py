"""Exact numbers of any precision: how they are read, and the exact results of operations on them.

Texts, integers, fractions, decimals, gmpy2's and NumPy's long floats are read exactly. Every finite number but zero
becomes a Fraction; zeros, which have a sign, infinities and NaN become floats.

With the rounding of one number, exact results are the definition of all operations. Operands are what `exact_number`
reads. Irrational results come as a fraction of ROOT_BITS bits, rounded to odd: no rounding to a format tells it from
the result itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from simfloat.common import message_text
from simfloat.formats.decimal_functions import Function, value_between

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


#: Far more bits than any format and any draw reads.
ROOT_BITS = 256

#: Digits of the decimals by which a function is rounded, until both ends of what they leave open agree.
DECIDING_DIGITS = (30, 60, 120, 240, 480, 960)


def exact_result(operation: str, *operands: Exact, negative_zero_sums: bool = False) -> Exact:
    """The exact result of one of EXACT: a Fraction, or a float where it is zero, infinite or NaN.

    Specials are those of IEEE 754-2019, sections 6 and 7. An exact zero sum of unlike signs is +0, or -0 with
    `negative_zero_sums`, as under toward_negative.
    """
    if operation in _SUMS:
        return _SUMS[operation](*operands, -0.0 if negative_zero_sums else 0.0)
    return _WITHOUT_SIGN_OF_ZERO[operation](*operands)


def sign_of(x: Exact) -> float:
    """A float of the same sign and class: 1.0 or -1.0 for a fraction, which may be too large for a float."""
    return x if isinstance(x, float) else 1.0 if x > 0 else -1.0


def negate(x: Exact) -> Exact:
    """-x, of zeros and NaN too."""
    return -x


def _add(a: Exact, b: Exact, zero: float) -> Exact:
    if isinstance(a, float) and isinstance(b, float):
        if a == 0 and b == 0:
            return a if math.copysign(1.0, a) == math.copysign(1.0, b) else zero
        return a + b
    if isinstance(a, float) or isinstance(b, float):
        special, number = (a, b) if isinstance(a, float) else (b, a)
        return number if special == 0 else special
    return a + b or zero


def _subtract(a: Exact, b: Exact, zero: float) -> Exact:
    return _add(a, negate(b), zero)


def _fma(a: Exact, b: Exact, c: Exact, zero: float) -> Exact:
    return _add(_multiply(a, b), c, zero)


def _multiply(a: Exact, b: Exact) -> Exact:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    return sign_of(a) * sign_of(b)


def _divide(a: Exact, b: Exact) -> Exact:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    a, b = sign_of(a), sign_of(b)
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _reciprocal(x: Exact) -> Exact:
    return _divide(Fraction(1), x)


def _sqrt(x: Exact) -> Exact:
    if isinstance(x, float):
        return math.nan if x < 0 else math.sqrt(x)  # of -0 it is -0
    return _root(x) if x > 0 else math.nan


def _rsqrt(x: Exact) -> Exact:
    if isinstance(x, float):
        return _reciprocal(_sqrt(x)) if x else math.copysign(math.inf, x)
    return _root(1 / x) if x > 0 else math.nan


def _root(x: Fraction) -> Fraction:
    """The square root of a positive number, rounded to odd at ROOT_BITS bits."""
    numerator, denominator = x.as_integer_ratio()
    shift = max(ROOT_BITS + (denominator.bit_length() - numerator.bit_length()) // 2 + 1, 0)
    scaled = numerator << 2 * shift
    root = math.isqrt(scaled // denominator)
    if root * root * denominator != scaled:
        root |= 1
    return Fraction(root, 1 << shift)


#: Operations whose zero results have a sign that depends on the mode: each takes that zero last.
_SUMS: dict[str, Callable[..., Exact]] = {"add": _add, "subtract": _subtract, "fma": _fma}

_WITHOUT_SIGN_OF_ZERO: dict[str, Callable[..., Exact]] = {
    "multiply": _multiply,
    "divide": _divide,
    "sqrt": _sqrt,
    "reciprocal": _reciprocal,
    "rsqrt": _rsqrt,
}

#: The operations that are defined here.
EXACT = frozenset(_SUMS) | frozenset(_WITHOUT_SIGN_OF_ZERO)


class Irrational(NamedTuple):
    """The value of a function, which lies between two numbers that are as near to each other as one asks for."""

    function: Function
    operands: tuple[Fraction, ...]
    sign: int = 1

    def round_by_bounds(self, decide: Callable[[Fraction], Any]) -> Any:
        """What a rounding makes of the value, and of both numbers; ValueError where they come no nearer."""
        for digits in DECIDING_DIGITS:
            ends = value_between(self.function, self.operands, digits)
            if ends is not None:
                lower, upper = (decide(self.sign * end) for end in ends)
                if repr(lower) == repr(upper):  # NaN is NaN, and -0 is not 0
                    return lower
        texts = " and ".join(map(message_text, self.operands))
        raise ValueError(
            f"{self.function.name} of {texts} cannot be rounded here: {DECIDING_DIGITS[-1]} digits do not tell on "
            "which side of a tie, or of a number of the format, it lies."
        )


def function_value(function: Function, operands: tuple[Fraction, ...], nearby: float) -> Exact | Irrational:
    """The value of a function of the catalog at operands of which float64 lacks one.

    `nearby` is that of the operands rounded to odd in float64, which lie on the same side of every number where the
    function's domain ends.
    """
    name, (x, *others) = function.name, operands
    if name == "power":
        return _power(function, x, *others)
    if name == "zeta":
        return _zeta(function, x, *others)
    is_pole_near = name in ("lgamma", "digamma") and x < 0  # beyond 2^52 the numbers nearby are integers
    if x.denominator == 1 if is_pole_near else not math.isfinite(nearby):
        return nearby
    rational = _logarithm(x, 2 if name == "log2" else 10) if name in ("log2", "log10") else None
    return Irrational(function, operands) if rational is None else Fraction(rational)


def _power(function: Function, x: Fraction, y: Fraction) -> Exact | Irrational:
    if x < 0 and y.denominator > 1:
        return math.nan
    rational = _rational_power(x, y)
    sign = -1 if x < 0 and y.numerator % 2 else 1
    return Irrational(function, (abs(x), y), sign) if rational is None else rational


def _rational_power(x: Fraction, y: Fraction) -> Fraction | None:
    """x^y where that is a fraction of few bits; where it is another one, no format has it, nor a tie."""
    parts = [_integer_root(part, y.denominator) for part in (abs(x.numerator), x.denominator)]
    if None in parts:
        return None
    root = Fraction(*parts) * (-1 if x < 0 else 1)  # type: ignore[arg-type]
    if abs(root) == 1:
        return root if y.numerator % 2 else Fraction(1)
    size = max(root.numerator.bit_length(), root.denominator.bit_length())
    return root**y.numerator if size * abs(y.numerator) <= MOST_BITS else None


def _integer_root(x: int, degree: int) -> int | None:
    """The integer whose power of this degree is x, if there is one."""
    if degree == 1 or x == 1:
        return x
    if x.bit_length() < degree:
        return None
    root = 1 << -(-x.bit_length() // degree)
    while True:  # Newton's method from above
        lower = ((degree - 1) * root + x // root ** (degree - 1)) // degree
        if lower >= root:
            return root if root**degree == x else None
        root = lower


def _logarithm(x: Fraction, base: int) -> int | None:
    """The integer power of the base that x is, if it is one."""
    whole = max(x.numerator, x.denominator)
    if min(x.numerator, x.denominator) != 1:
        return None
    power = round(whole.bit_length() / math.log2(base))
    power = next((p for p in (power - 1, power, power + 1) if p >= 0 and base**p == whole), None)  # type: ignore
    return power if power is None or x >= 1 else -power


def _zeta(function: Function, s: Fraction, q: Fraction) -> Exact | Irrational:
    if s < 1 or (q < 0 and s.denominator > 1):
        return math.nan
    if q < 0:
        raise ValueError(
            f"zeta of {message_text(s)} and {message_text(q)} is not summed here: its second operand is negative, and "
            "float64 lacks one of both."
        )
    return Irrational(function, (s, q))
