"""Elementary functions by decimals: their values to as many digits as the context of the decimal module asks for.

`exp`, `ln` and `sqrt` are the standard library's, correct in the last digit. A formula may lose digits where its terms
cancel: `value_between` computes with twice as many digits, and says by how much the value may be missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, getcontext, localcontext
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import Protocol

#: Exponents of the decimals on the way to a value, far beyond any number that is read.
_WIDE = Context(Emin=-999_999, Emax=999_999)

#: Digits that rounding may take on the way.
_GUARD = 8

_HALF = Decimal("0.5")

#: From here on, at least, Stirling's series and Euler's and Maclaurin's are used.
_FAR = 40

#: Half of the digits with which Newton's method begins, and steps that it takes at most.
_FIRST, _STEPS = 15, 100

#: Angles are reduced up to this power of ten.
_LARGEST_ANGLE = 2000

#: e to this power is beyond every format, and to its negative below.
FAR_BEYOND = 3000


class Function(Protocol):
    """A function that decimals compute: a row of the catalog."""

    @property
    def name(self) -> str:
        """By what messages call it."""

    @property
    def value(self) -> Callable[..., Decimal] | None:
        """The function of its operands' decimals."""

    @property
    def limits(self) -> tuple[float, float]:
        """The ends beyond which a function of one operand is rounded as it is there."""


def value_between(function: Function, operands: tuple[Fraction, ...], digits: int) -> tuple[Fraction, Fraction] | None:
    """Two numbers between which a function of these operands lies; None where so many digits do not tell.

    The function is defined at the operands, and neither zero nor infinite.
    """
    (low, high), value = function.limits, function.value
    assert value is not None, f"{function.name} has no value by decimals."
    clamped: list[Fraction | float] = [low if x < low else high if x > high else x for x in operands]
    values = []
    for count in (digits, 2 * digits):
        with localcontext(_WIDE, prec=count + _GUARD):
            try:
                values.append(value(*(_decimal(x) for x in clamped)))
            except (DecimalException, ArithmeticError, ValueError):
                return None
    first, second = values
    if not second or not second.is_finite() or not first.is_finite():
        return None
    near = Fraction(second)
    error = 2 * abs(Fraction(first) - near) + abs(near) / Fraction(10) ** digits
    return near - error, near + error


def _decimal(x: Fraction | float) -> Decimal:
    numerator, denominator = x.as_integer_ratio()
    return Decimal(numerator) / denominator


def _limit() -> Decimal:
    """What no longer counts beside 1."""
    return Decimal(10) ** -getcontext().prec


def _series(first: Decimal, factor: Callable[[int], Decimal]) -> Decimal:
    """first * (1 + factor(1) * (1 + factor(2) * ...)), until terms no longer count."""
    total, term, n, limit = first, first, 0, _limit()
    while abs(term) > abs(total) * limit:
        n += 1
        term *= factor(n)
        total += term
    return total


def _asymptotic(factor: Callable[[int], Decimal]) -> Decimal:
    """1 + factor(1) * (1 + factor(2) * ...), until terms no longer count. Raises ValueError if they grow before."""
    total, term, n, limit = Decimal(1), Decimal(1), 0, _limit()
    while abs(term) > limit:
        n += 1
        ratio = factor(n)
        if abs(ratio) >= 1:
            raise ValueError("The series diverges before it is exact enough.")
        term *= ratio
        total += term
    return total


def pi() -> Decimal:
    """pi, by Gauss's and Legendre's means."""
    return _pi(getcontext().prec)


@cache
def _pi(digits: int) -> Decimal:
    with localcontext(_WIDE, prec=digits + _GUARD):
        a, b, t, p = Decimal(1), 1 / Decimal(2).sqrt(), Decimal(1) / 4, 1
        while abs(a - b) > Decimal(10) ** -digits:
            middle = (a + b) / 2
            b, t, p = (a * b).sqrt(), t - p * (a - middle) ** 2, 2 * p
            a = middle
        return (a + b) ** 2 / (4 * t)


def _quarters(x: Decimal) -> tuple[int, Decimal]:
    """x in quarters of a turn, modulo 4, and what is left, from -pi/4 to pi/4."""
    if x.adjusted() > _LARGEST_ANGLE:
        raise ValueError("So large an angle is not reduced here.")
    with localcontext() as context:
        context.prec += max(x.adjusted(), 0) + _GUARD
        turn = pi() / 2
        count = (x / turn).to_integral_value()
        return int(count % 4), x - count * turn


def sin(x: Decimal) -> Decimal:
    """The sine of an angle."""
    quarter, rest = _quarters(x)
    return (_near_sin, _near_cos, lambda r: -_near_sin(r), lambda r: -_near_cos(r))[quarter % 4](rest)


def cos(x: Decimal) -> Decimal:
    """The cosine of an angle."""
    quarter, rest = _quarters(x)
    return (_near_cos, lambda r: -_near_sin(r), lambda r: -_near_cos(r), _near_sin)[quarter % 4](rest)


def _near_sin(x: Decimal) -> Decimal:
    return _series(x, lambda n: -x * x / (2 * n * (2 * n + 1)))


def _near_cos(x: Decimal) -> Decimal:
    return _series(Decimal(1), lambda n: -x * x / (2 * n * (2 * n - 1)))


def atan(x: Decimal) -> Decimal:
    """The angle whose tangent is x."""
    # Half the angle, and half again, until the series is short.
    for _ in range(8):
        x = x / (1 + (1 + x * x).sqrt())
    total, power, n, limit = Decimal(0), x, 1, _limit()
    while abs(power) > limit * abs(x):
        total += power / n
        power, n = -power * x * x, n + 2
    return 256 * total


def atan2(y: Decimal, x: Decimal) -> Decimal:
    """The angle of the point (x, y), whose x is not 0."""
    turned = pi().copy_sign(y) if x < 0 else Decimal(0)
    return atan(y / x) + turned


def tanh(x: Decimal) -> Decimal:
    """The hyperbolic tangent."""
    square = (2 * x).exp()
    return (square - 1) / (square + 1)


def log2(x: Decimal) -> Decimal:
    """The logarithm to base 2, an integer of powers of two."""
    near = x.ln() / Decimal(2).ln()
    whole = near.to_integral_value()
    return whole if Decimal(2) ** whole == x else near


def power(x: Decimal, y: Decimal) -> Decimal:
    """x^y for positive x, or a number as far beyond every format."""
    return min(max(x.ln() * y, Decimal(-FAR_BEYOND)), Decimal(FAR_BEYOND)).exp()


def erf(x: Decimal) -> Decimal:
    """The error function."""
    # Abramowitz and Stegun, 7.1.6: all terms have one sign.
    return _series(x * (-x * x).exp(), lambda n: 2 * x * x / (2 * n + 1)) * 2 / pi().sqrt()


def _is_far(exponent: Decimal) -> bool:
    """Whether an asymptotic series, whose least term is about e^-exponent, has all digits."""
    return exponent > 3 * getcontext().prec


def erfc(x: Decimal) -> Decimal:
    """1 - erf(x)."""
    if x > 0 and _is_far(x * x):
        return (-x * x).exp() * erfcx(x)
    with localcontext() as context:  # of erfc(x) as many digits are lost as exp(-x^2) has zeros
        context.prec += int(x * x / 2) if x > 0 else 0
        return 1 - erf(x)


def erfcx(x: Decimal) -> Decimal:
    """exp(x^2) erfc(x)."""
    if x > 0 and _is_far(x * x):  # 7.1.23
        return _asymptotic(lambda n: -(2 * n - 1) / (2 * x * x)) / (x * pi().sqrt())
    return (x * x).exp() * erfc(x)


def log_ndtr(x: Decimal) -> Decimal:
    """The logarithm of the probability that a normal variable is below x."""
    root = Decimal(2).sqrt()
    if x < 0:
        return (erfcx(-x / root) / 2).ln() - x * x / 2
    tail = erfc(x / root) / 2
    return -_series(tail, lambda n: tail * n / (n + 1))


def erfinv(x: Decimal) -> Decimal:
    """The number whose error function is x."""
    return _inverse_of_erfc(1 - abs(x)).copy_sign(x) if abs(x) > _HALF else _inverse_of_erf(x)


def _inverse_of_erf(x: Decimal) -> Decimal:
    """Newton's method, from the standard library's inverse of the normal distribution; |x| is at most 1/2."""
    y = Decimal(NormalDist().inv_cdf((1 + float(x)) / 2)) / Decimal(2).sqrt() if abs(x) > 1e-6 else x
    return _newton(y, lambda y: (erf(y) - x) * (y * y).exp() * pi().sqrt() / 2)


def _inverse_of_erfc(c: Decimal) -> Decimal:
    """Newton's method on the logarithm of erfc, for c from 0 to 1."""
    y = max((-c.ln()).sqrt() - _HALF, Decimal(0))

    def step(y: Decimal) -> Decimal:
        scaled = erfcx(y)
        return -(scaled / c * (-y * y).exp()).ln() * scaled * pi().sqrt() / 2

    return _newton(y, step)


def _newton(y: Decimal, step: Callable[[Decimal], Decimal]) -> Decimal:
    """A root of a function, which is left by a step to the next guess: with few digits first, then twice as many."""
    digits, most = _FIRST, getcontext().prec
    while True:
        digits = min(2 * digits, most)
        with localcontext(prec=digits):
            for _ in range(_STEPS):
                change = step(y)
                y -= change
                if abs(change) <= abs(y) * Decimal(10) ** -(digits // 2 + 2):
                    break
            else:
                raise ValueError("Newton's method does not converge.")
        if digits == most:
            return y


def ndtri(x: Decimal) -> Decimal:
    """The number that a normal variable is below with probability x."""
    root = Decimal(2).sqrt()
    if abs(x - _HALF) < Decimal("0.25"):
        return root * _inverse_of_erf(2 * x - 1)
    return root * _inverse_of_erfc(2 * min(x, 1 - x)).copy_sign(x - _HALF)


@cache
def _bernoulli_numbers(count: int) -> list[Fraction]:
    """B(2), B(4), ... from their recurrence."""
    numbers = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        numbers.append(-sum((math.comb(n + 1, k) * numbers[k] for k in range(n)), Fraction(0)) / (n + 1))
    return numbers[2::2]


def _stirling() -> tuple[Decimal, list[Decimal]]:
    """From where on Stirling's series, and Euler's and Maclaurin's, have all digits, and their Bernoulli numbers."""
    digits = getcontext().prec
    numbers = _bernoulli_numbers(max(digits // 4, 30))
    return Decimal(max(digits // 2, _FAR)), [Decimal(x.numerator) / x.denominator for x in numbers]


def lgamma(x: Decimal) -> Decimal:
    """log |Gamma(x)|, by Stirling's series for x + n, less the logarithm of x (x + 1) ... (x + n - 1)."""
    if x < _HALF:
        return (pi() / abs(_sin_of_half_turns(x))).ln() - lgamma(1 - x)
    product, (far, numbers) = Decimal(1), _stirling()
    while x < far:
        product *= x
        x += 1
    start = (x - _HALF) * x.ln() - x + (2 * pi()).ln() / 2
    return start + sum(b / (2 * k * (2 * k - 1) * x ** (2 * k - 1)) for k, b in enumerate(numbers, 1)) - product.ln()


def digamma(x: Decimal) -> Decimal:
    """The derivative of log |Gamma(x)|, by the derivative of Stirling's series."""
    if x < _HALF:
        # The cotangent of pi x, whose sign is the sine's and the cosine's.
        return digamma(1 - x) - pi() * _sin_of_half_turns(_HALF - x) / _sin_of_half_turns(x)
    less, (far, numbers) = Decimal(0), _stirling()
    while x < far:
        less += 1 / x
        x += 1
    return x.ln() - 1 / (2 * x) - sum(b / (2 * k * x ** (2 * k)) for k, b in enumerate(numbers, 1)) - less


def _sin_of_half_turns(x: Decimal) -> Decimal:
    """sin(pi x)."""
    with localcontext() as context:
        context.prec += max(x.adjusted(), 0)
        rest = x % 2
        return sin(pi() * rest)


def zeta(s: Decimal, q: Decimal) -> Decimal:
    """The sum of (q + k)^-s, by Euler's and Maclaurin's formula, for positive q."""
    total, (far, numbers) = Decimal(0), _stirling()
    while q < far:
        total += q**-s
        q += 1
    total += q ** (1 - s) / (s - 1) + q**-s / 2
    factor = s * q ** (-s - 1)
    for j, b in enumerate(numbers, 1):
        total += b * factor / math.factorial(2 * j)
        factor *= (s + 2 * j - 1) * (s + 2 * j) / (q * q)
    return total


def bessel_i(x: Decimal, order: int) -> Decimal:
    """The modified Bessel function of order 0 or 1."""
    return _series((x / 2) ** order, lambda n: x * x / (4 * n * (n + order)))


def bessel_ie(x: Decimal, order: int) -> Decimal:
    """exp(-|x|) I(x)."""
    if not _is_far(2 * abs(x)):
        return bessel_i(x, order) * (-abs(x)).exp()
    size = _asymptotic(lambda n: Decimal((2 * n - 1) ** 2 - 4 * order) / (8 * n * abs(x)))  # 9.7.1
    size /= (2 * pi() * abs(x)).sqrt()
    return size.copy_sign(x) if order else size
