"""Exact numbers of any precision: reading them, and the exact results of operations on them.

Texts, integers, fractions, decimals, and the numbers of gmpy2 and NumPy are read exactly. Every finite nonzero number
becomes a Fraction. Zeros, which have a sign, infinities and NaN become floats.

Exact results and the rounding of one number together define all operations. Operands are results of `exact_number`. An
irrational result is a fraction of ROOT_BITS bits, rounded to odd: no rounding to a format can distinguish it from the
true result.
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

#: Numbers are read from 10^-10000 to 10^10000, far beyond the range of float64, but still fast to compute with.
LARGEST_EXPONENT = 10_000

#: The number of digits of a text or a decimal, which is Python's limit for integers; and of bits of a fraction's parts.
MOST_DIGITS = 4300
MOST_BITS = 70_000

DIGITS = r"[0-9](?:_?[0-9])*"
DECIMAL = re.compile(rf"[+-]?(?:{DIGITS}\.?(?:{DIGITS})?|\.{DIGITS})(?:e[+-]?{DIGITS})?", re.IGNORECASE)
QUOTIENT = re.compile(rf"([+-]?{DIGITS})/({DIGITS})")
HEXADECIMAL = re.compile(r"([+-]?)0x([0-9a-f]*)\.?([0-9a-f]*)(?:p([+-]?[0-9]+))?", re.IGNORECASE)
SPECIAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)

ACCEPTED_TEXTS = "write 0.1, 1e-5, 1/3, 0x1.8p-3, inf or nan"
TOO_SMALL = ". For this one write 0 (in directed modes: a number below the smallest subnormal)"
BEYOND = (
    f"is out of range: numbers are read from 10^-{LARGEST_EXPONENT} to 10^{LARGEST_EXPONENT}, and texts and decimals "
    f"with at most {MOST_DIGITS} digits"
)


def exact_number(x: Any) -> Exact:
    """Return the exact value of `x`.

    `x` is a number of Python or NumPy, a Fraction, a Decimal, mpz, mpq or mpfr of gmpy2, or a text: a decimal such as
    ``"0.1"`` or ``"1e-5"``, a quotient ``"1/3"``, a hexadecimal float ``"0x1.8p-3"``, ``"inf"`` or ``"nan"``.

    Raises ValueError for a text that is not a number, and for numbers that are too large, too small or too long to
    compute with; TypeError if `x` is not a real number.
    """
    if isinstance(x, float):  # including NumPy's float64
        return Fraction(x) if x and math.isfinite(x) else float(x)
    if isinstance(x, int):  # True and False are 1 and 0, as in arrays
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
    """Return True if float64 can represent a number."""
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
        raise ValueError(f"{message_text(text)} {BEYOND}; {ACCEPTED_TEXTS}")
    if SPECIAL.fullmatch(plain):
        return float(plain)
    if DECIMAL.fullmatch(plain):
        return _parse_decimal(plain, text)
    negative = plain.startswith("-")
    if match := QUOTIENT.fullmatch(plain):
        # Decimal has no limit on the number of digits.
        numerator, denominator = (int(Decimal(part)) for part in match.groups())
        if denominator == 0:
            raise ValueError(f"{message_text(text)} is not a number: its denominator is 0; {ACCEPTED_TEXTS}")
        return _quotient(numerator, denominator, negative)
    match = HEXADECIMAL.fullmatch(plain)
    if match and match[2] + match[3]:
        digits, power = match[2] + match[3], match[4] or "0"
        exponent = int(power) if len(power) < 10 else None
        magnitude = int(digits, 16)
        if magnitude == 0:
            return -0.0 if negative else 0.0
        if exponent is None or abs(exponent) > LARGEST_EXPONENT:
            raise ValueError(f"{message_text(text)} {BEYOND}; {ACCEPTED_TEXTS}{TOO_SMALL * power.startswith('-')}")
        return _scale_by_power_of_two(-magnitude if negative else magnitude, exponent - 4 * len(match[3]), text)
    raise ValueError(f"{message_text(text)} is not a number: {ACCEPTED_TEXTS}")


def _parse_decimal(plain: str, text: Any) -> Exact:
    try:
        return _from_decimal(Decimal(plain), text)
    except InvalidOperation:  # the exponent has more digits than Decimal supports
        raise ValueError(f"{message_text(text)} {BEYOND}; {ACCEPTED_TEXTS}") from None


def _from_decimal(x: Decimal, text: Any = None) -> Exact:
    if x.is_nan():
        return math.nan
    if x.is_infinite() or not x:
        return math.copysign(math.inf if x else 0.0, -1.0 if x.is_signed() else 1.0)
    exponent = int(x.as_tuple().exponent)
    if abs(x.adjusted()) > LARGEST_EXPONENT or x.adjusted() - exponent >= MOST_DIGITS:
        small = TOO_SMALL * (x.adjusted() < -LARGEST_EXPONENT)
        raise ValueError(
            f"{message_text(x)} {BEYOND}" if text is None else f"{message_text(text)} {BEYOND}; {ACCEPTED_TEXTS}{small}"
        )
    return Fraction(x)


def _quotient(numerator: int, denominator: int, negative: bool = False) -> Exact:
    """Return a quotient of integers; a zero is negative if the text has a minus sign."""
    if numerator == 0:
        return -0.0 if negative else 0.0
    sizes = numerator.bit_length(), denominator.bit_length()
    if max(sizes) > MOST_BITS or abs(sizes[0] - sizes[1]) * math.log10(2) > LARGEST_EXPONENT:
        raise ValueError(f"a number with parts of {sizes[0]} and {sizes[1]} bits {BEYOND}")
    return Fraction(numerator, denominator)


def _scale_by_power_of_two(significand: int, exponent: int, text: Any) -> Exact:
    """Return an integer times a power of two, without computing it if it is too large."""
    size = significand.bit_length() + exponent
    if significand.bit_length() > MOST_BITS or abs(size) * math.log10(2) > LARGEST_EXPONENT:
        raise ValueError(f"{message_text(text)} {BEYOND}")
    return Fraction(significand) * Fraction(2) ** exponent


def _from_gmpy2(x: Any, name: str) -> Exact:
    """Return a number of gmpy2, which is recognized by the name of its type, so that gmpy2 need not be imported."""
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
    """Return a number of NumPy: an integer, or a float of any width."""
    kind = x.dtype.kind
    if kind in "iub":
        return _quotient(int(x), 1)
    if kind != "f":
        raise TypeError(type(x).__name__)
    if x == 0 or x - x != 0:
        return math.copysign(float(abs(x)), math.copysign(1.0, x))
    return Fraction(*x.as_integer_ratio())


#: Many more bits than any format and any draw needs.
ROOT_BITS = 256

#: Numbers of digits with which a function is computed, until both ends of its interval are rounded alike.
DECIDING_DIGITS = (30, 60, 120, 240, 480, 960)


def exact_result(operation: str, *operands: Exact, negative_zero_sums: bool = False) -> Exact:
    """Return the exact result of an operation of EXACT: a Fraction, or a float if it is zero, infinite or NaN.

    Special values follow IEEE 754-2019, sections 6 and 7. An exact zero sum of unlike signs is +0, or -0 with
    `negative_zero_sums`, as under toward_negative.
    """
    if operation in _SUMS:
        return _SUMS[operation](*operands, -0.0 if negative_zero_sums else 0.0)
    return _WITHOUT_SIGN_OF_ZERO[operation](*operands)


def sign_of(x: Exact) -> float:
    """Return a float of the same sign and class: 1.0 or -1.0 for a fraction, which may be too large for a float."""
    return x if isinstance(x, float) else 1.0 if x > 0 else -1.0


def negate(x: Exact) -> Exact:
    """Return -x, also for zeros and NaN."""
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
        return math.nan if x < 0 else math.sqrt(x)  # the square root of -0 is -0
    return _root(x) if x > 0 else math.nan


def _rsqrt(x: Exact) -> Exact:
    if isinstance(x, float):
        return _reciprocal(_sqrt(x)) if x else math.copysign(math.inf, x)
    return _root(1 / x) if x > 0 else math.nan


def _root(x: Fraction) -> Fraction:
    """Return the square root of a positive number, rounded to odd at ROOT_BITS bits."""
    numerator, denominator = x.as_integer_ratio()
    shift = max(ROOT_BITS + (denominator.bit_length() - numerator.bit_length()) // 2 + 1, 0)
    scaled = numerator << 2 * shift
    root = math.isqrt(scaled // denominator)
    if root * root * denominator != scaled:
        root |= 1
    return Fraction(root, 1 << shift)


def _cbrt(x: Exact) -> Exact:
    if isinstance(x, float):
        return x
    numerator, denominator = abs(x).as_integer_ratio()
    shift = max(ROOT_BITS + (denominator.bit_length() - numerator.bit_length()) // 3 + 1, 0)
    scaled = numerator << 3 * shift
    root = _root_of_integer(scaled // denominator, 3)
    if root**3 * denominator != scaled:
        root |= 1
    return Fraction(root if x > 0 else -root, 1 << shift)


def _hypot(a: Exact, b: Exact) -> Exact:
    if any(isinstance(x, float) and math.isinf(x) for x in (a, b)):
        return math.inf
    return _sqrt(_add(_multiply(a, a), _multiply(b, b), 0.0))


def _to_integer(convert: Callable[[Fraction], int]) -> Callable[[Exact], Exact]:
    """Return a function that converts numbers to integers; zeros have the sign of the number."""
    return lambda x: x if isinstance(x, float) else convert(x) + Fraction(0) or math.copysign(0.0, x)


def _remainder(divide: Callable[[Fraction], int]) -> Callable[[Exact, Exact], Exact]:
    """Return a function a - divide(a / b) b; zeros have the sign of a."""

    def function(a: Exact, b: Exact) -> Exact:
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a - divide(a / b) * b or math.copysign(0.0, sign_of(a))
        near, divisor = sign_of(a), sign_of(b)
        return a if math.isfinite(near) and divisor and not math.isnan(divisor) else math.nan

    return function


def exact_modulo(a: Exact, b: Exact) -> Exact:
    """Return a - n b, where n is the floor of a / b; zeros have the sign of b."""
    rest = exact_result("fmod", a, b)
    if rest == 0:
        return math.copysign(0.0, sign_of(b))
    return exact_result("add", rest, b) if (sign_of(rest) < 0) != (sign_of(b) < 0) and rest == rest else rest


def _copysign(a: Exact, b: Exact) -> Exact:
    return a if math.copysign(1.0, sign_of(a)) == math.copysign(1.0, sign_of(b)) else negate(a)


#: Operations in which the sign of a zero result depends on the mode: that zero is the last argument.
_SUMS: dict[str, Callable[..., Exact]] = {"add": _add, "subtract": _subtract, "fma": _fma}

_WITHOUT_SIGN_OF_ZERO: dict[str, Callable[..., Exact]] = {
    "multiply": _multiply,
    "divide": _divide,
    "sqrt": _sqrt,
    "reciprocal": _reciprocal,
    "rsqrt": _rsqrt,
    "cbrt": _cbrt,
    "hypot": _hypot,
    "rint": _to_integer(round),
    "floor": _to_integer(math.floor),
    "ceil": _to_integer(math.ceil),
    "trunc": _to_integer(math.trunc),
    "fmod": _remainder(math.trunc),
    "remainder": _remainder(round),
    "copysign": _copysign,
}

#: The operations that are defined in this file.
EXACT = frozenset(_SUMS) | frozenset(_WITHOUT_SIGN_OF_ZERO)


class Irrational(NamedTuple):
    """The value of a function, known as an interval that can be made as short as needed."""

    function: Function
    operands: tuple[Fraction, ...]
    sign: int = 1

    def round_by_bounds(self, decide: Callable[[Fraction], Any]) -> Any:
        """Return the common result of `decide` for both ends of the interval; ValueError if they never agree."""
        for digits in DECIDING_DIGITS:
            ends = value_between(self.function, self.operands, digits)
            if ends is not None:
                lower, upper = (decide(self.sign * end) for end in ends)
                if repr(lower) == repr(upper):  # NaN is NaN, and -0 is not 0
                    return lower
        texts = " and ".join(map(message_text, self.operands))
        raise ValueError(
            f"{self.function.name} of {texts} cannot be rounded: {DECIDING_DIGITS[-1]} digits do not decide on "
            "which side of a tie, or of a number of the format, it lies."
        )


def function_value(function: Function, operands: tuple[Fraction, ...], nearby: float) -> Exact | Irrational:
    """Return the value of a function of the catalog, if float64 cannot represent one of the operands.

    `nearby` is the value at the operands rounded to odd in float64, which are on the same side of every end of the
    domain of the function.
    """
    name, (x, *others) = function.name, operands
    if name == "power":
        return _power(function, x, *others)
    if name == "zeta":
        return _zeta(function, x, *others)
    is_pole_near = name in ("lgamma", "digamma") and x < 0  # the float64 values nearby are integers beyond 2^52
    if x.denominator == 1 if is_pole_near else not math.isfinite(nearby):
        return nearby
    rational = RATIONAL[name](x) if name in RATIONAL else None
    return Irrational(function, operands) if rational is None else rational or nearby


def _power(function: Function, x: Fraction, y: Fraction) -> Exact | Irrational:
    if x < 0 and y.denominator > 1:
        return math.nan
    rational = _rational_power(x, y)
    sign = -1 if x < 0 and y.numerator % 2 else 1
    return Irrational(function, (abs(x), y), sign) if rational is None else rational


def _rational_power(x: Fraction, y: Fraction) -> Fraction | None:
    """Return x^y if it is a fraction of few bits; any other fraction is not a number of a format, nor a tie."""
    parts = [_integer_root(part, y.denominator) for part in (abs(x.numerator), x.denominator)]
    if None in parts:
        return None
    root = Fraction(*parts) * (-1 if x < 0 else 1)  # type: ignore[arg-type]
    if abs(root) == 1:
        return root if y.numerator % 2 else Fraction(1)
    size = max(root.numerator.bit_length(), root.denominator.bit_length())
    return root**y.numerator if size * abs(y.numerator) <= MOST_BITS else None


def _integer_root(x: int, degree: int) -> int | None:
    """Return the root of this degree of x if it is an integer, otherwise None."""
    if degree == 1 or x == 1:
        return x
    if x.bit_length() < degree:
        return None
    root = _root_of_integer(x, degree)
    return root if root**degree == x else None


def _root_of_integer(x: int, degree: int) -> int:
    """Return the largest integer that is not above the root of this degree of x."""
    root = 1 << -(-x.bit_length() // degree)
    while True:  # Newton's method from above
        lower = ((degree - 1) * root + x // root ** (degree - 1)) // degree
        if lower >= root:
            return root
        root = lower


def _logarithm(x: Fraction, base: int) -> Fraction | None:
    """Return the integer p with base^p = x, or None."""
    whole = max(x.numerator, x.denominator)
    if min(x.numerator, x.denominator) != 1:
        return None
    power = round(whole.bit_length() / math.log2(base))
    power = next((p for p in (power - 1, power, power + 1) if p >= 0 and base**p == whole), None)  # type: ignore
    return None if power is None else Fraction(power if x >= 1 else -power)


def _sine_of_half_turns(x: Fraction) -> Fraction | None:
    """Return sin(pi x) if it is rational, which it is only at multiples of 1/6 (Niven's theorem)."""
    sixths = 6 * x % 12
    return Fraction(SINES[int(sixths)], 2) if sixths in SINES else None


#: Twice sin(pi n / 6) if it is an integer.
SINES = {0: 0, 1: 1, 3: 2, 5: 1, 6: 0, 7: -1, 9: -2, 11: -1}

#: The value of a function if it is rational, otherwise None.
RATIONAL: dict[str, Callable[[Fraction], Fraction | None]] = {
    "log2": lambda x: _logarithm(x, 2),
    "log10": lambda x: _logarithm(x, 10),
    "exp2": lambda x: _rational_power(Fraction(2), x),
    "exp10": lambda x: _rational_power(Fraction(10), x),
    "sinpi": _sine_of_half_turns,
    "cospi": lambda x: _sine_of_half_turns(x + Fraction(1, 2)),
}


def _zeta(function: Function, s: Fraction, q: Fraction) -> Exact | Irrational:
    if s < 1 or (q < 0 and s.denominator > 1):
        return math.nan
    if q < 0:
        raise ValueError(
            f"zeta of {message_text(s)} and {message_text(q)} is not implemented: its second operand is negative, and "
            "float64 cannot represent both."
        )
    return Irrational(function, (s, q))
