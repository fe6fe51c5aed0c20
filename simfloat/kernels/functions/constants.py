"""Mathematical constants to any precision, by integer and decimal arithmetic, which is the same on every computer."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

#: A relative change below this has no influence on a rounding except by its sign.
SPECK = 2.0**-200

#: Bit pattern of exact.INTEGER; adding it to a number leaves the nearest integer in the last bits.
INTEGER_IMAGE = 0x4338000000000000

_DIGITS = Context(prec=60)


def pair(x: Fraction) -> tuple[float, float]:
    """Return x as a sum of two float64."""
    return float(x), float(x - Fraction(float(x)))


def truncate_below(x: Fraction, bits: int) -> Fraction:
    """Return x truncated to multiples of 2^-bits."""
    return Fraction(math.floor(x * 2**bits), 2**bits)


def exponential(x: Fraction) -> Fraction:
    """Return e to the power x, to 60 digits."""
    return Fraction(_DIGITS.exp(_decimal(x)))


def logarithm(x: Fraction) -> Fraction:
    """Return the natural logarithm of x, to 60 digits."""
    return Fraction(_DIGITS.ln(_decimal(x)))


def square_root(x: Fraction, bits: int) -> Fraction:
    """Return the square root of x, with an error below 2^-bits."""
    return Fraction(math.isqrt(math.floor(x * 4**bits)), 2**bits)


def circle(bits: int) -> Fraction:
    """Return the number pi, with an error below 2^-bits, by Machin's formula."""
    one = 1 << (bits + 20)

    def arctangent(inverse: int) -> int:
        term = total = one // inverse
        n = 1
        while term:
            term //= -inverse * inverse
            n += 2
            total += term // n
        return total

    return Fraction(16 * arctangent(5) - 4 * arctangent(239), one)


def _decimal(x: Fraction) -> Decimal:
    return _DIGITS.divide(Decimal(x.numerator), Decimal(x.denominator))


EXACT_LN2 = logarithm(Fraction(2))
LOG2_E, LN2 = pair(1 / EXACT_LN2), pair(EXACT_LN2)

#: ln 2 in pieces of 42, 42 and 53 bits: multiples of the first two by an exponent are exact.
LN2_A, LN2_B = (
    float(truncate_below(EXACT_LN2, 42)),
    float(truncate_below(EXACT_LN2, 84) - truncate_below(EXACT_LN2, 42)),
)
LN2_C = float(EXACT_LN2 - truncate_below(EXACT_LN2, 84))
