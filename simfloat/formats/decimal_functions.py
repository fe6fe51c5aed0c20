"""Elementary functions by decimals, with the number of digits of the current context of the decimal module.

`exp`, `ln` and `sqrt` are those of the standard library, correct in the last digit. A formula may lose digits if its
terms cancel: `value_between` computes again with twice as many digits, and returns a bound on the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, getcontext, localcontext
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import Protocol

#: Exponents of intermediate decimals, far beyond any number that is read.
_WIDE = Context(Emin=-999_999, Emax=999_999)

#: Digits that intermediate roundings may cost.
_GUARD = 8

_HALF = Decimal("0.5")

#: The least argument for Stirling's series and the Euler-Maclaurin formula.
_FAR = 40

#: Half of the digits with which Newton's method begins, and its largest number of steps.
_FIRST, _STEPS = 15, 100

#: Angles up to this power of ten are reduced.
_LARGEST_ANGLE = 2000

#: e to this power exceeds every format, and e to its negative is below every format.
FAR_BEYOND = 3000


class Function(Protocol):
    """A function that decimals can compute: a row of the catalog."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    @property
    def value(self) -> Callable[..., Decimal] | None:
        """The function of decimals."""

    @property
    def limits(self) -> tuple[float, float]:
        """The ends beyond which a function of one operand is rounded as at the end."""


def value_between(function: Function, operands: tuple[Fraction, ...], digits: int) -> tuple[Fraction, Fraction] | None:
    """Return bounds on a function of these operands; None if this number of digits is too small to decide.

    The function must be defined at the operands, and must be neither zero nor infinite there.
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
    """Return the relative size below which a term does not matter."""
    return Decimal(10) ** -getcontext().prec


def _series(first: Decimal, factor: Callable[[int], Decimal]) -> Decimal:
    """Return first * (1 + factor(1) * (1 + factor(2) * ...)), until terms no longer matter."""
    total, term, n, limit = first, first, 0, _limit()
    while abs(term) > abs(total) * limit:
        n += 1
        term *= factor(n)
        total += term
    return total


def _asymptotic(factor: Callable[[int], Decimal]) -> Decimal:
    """Return 1 + factor(1) * (1 + factor(2) * ...), until terms no longer matter; ValueError if they grow before."""
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
    """Return pi, by the Gauss-Legendre algorithm."""
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
    """Return the number of quarter turns in x, modulo 4, and the rest, from -pi/4 to pi/4."""
    if x.adjusted() > _LARGEST_ANGLE:
        raise ValueError("The angle is too large to be reduced.")
    with localcontext() as context:
        context.prec += max(x.adjusted(), 0) + _GUARD
        turn = pi() / 2
        count = (x / turn).to_integral_value()
        return int(count % 4), x - count * turn


def sin(x: Decimal) -> Decimal:
    """Return the sine of an angle."""
    quarter, rest = _quarters(x)
    return (_near_sin, _near_cos, lambda r: -_near_sin(r), lambda r: -_near_cos(r))[quarter % 4](rest)


def cos(x: Decimal) -> Decimal:
    """Return the cosine of an angle."""
    quarter, rest = _quarters(x)
    return (_near_cos, lambda r: -_near_sin(r), lambda r: -_near_cos(r), _near_sin)[quarter % 4](rest)


def _near_sin(x: Decimal) -> Decimal:
    return _series(x, lambda n: -x * x / (2 * n * (2 * n + 1)))


def _near_cos(x: Decimal) -> Decimal:
    return _series(Decimal(1), lambda n: -x * x / (2 * n * (2 * n - 1)))


def atan(x: Decimal) -> Decimal:
    """Return the arc tangent of x."""
    # Halve the angle repeatedly, until the series is short.
    for _ in range(8):
        x = x / (1 + (1 + x * x).sqrt())
    total, power, n, limit = Decimal(0), x, 1, _limit()
    while abs(power) > limit * abs(x):
        total += power / n
        power, n = -power * x * x, n + 2
    return 256 * total


def atan2(y: Decimal, x: Decimal) -> Decimal:
    """Return the angle of the point (x, y), for nonzero x."""
    turned = pi().copy_sign(y) if x < 0 else Decimal(0)
    return atan(y / x) + turned


def tanh(x: Decimal) -> Decimal:
    """Return the hyperbolic tangent."""
    square = (2 * x).exp()
    return (square - 1) / (square + 1)


def log2(x: Decimal) -> Decimal:
    """Return the logarithm to base 2; for powers of two it is an integer."""
    near = x.ln() / Decimal(2).ln()
    whole = near.to_integral_value()
    return whole if Decimal(2) ** whole == x else near


def power(x: Decimal, y: Decimal) -> Decimal:
    """Return x^y for positive x, limited to a range beyond every format."""
    return min(max(x.ln() * y, Decimal(-FAR_BEYOND)), Decimal(FAR_BEYOND)).exp()


def erf(x: Decimal) -> Decimal:
    """Return the error function."""
    # Abramowitz and Stegun, 7.1.6: all terms have one sign.
    return _series(x * (-x * x).exp(), lambda n: 2 * x * x / (2 * n + 1)) * 2 / pi().sqrt()


def _is_far(exponent: Decimal) -> bool:
    """Return True if an asymptotic series, with a least term of about e^-exponent, gives all digits."""
    return exponent > 3 * getcontext().prec


def erfc(x: Decimal) -> Decimal:
    """Return 1 - erf(x)."""
    if x > 0 and _is_far(x * x):
        return (-x * x).exp() * erfcx(x)
    with localcontext() as context:  # erfc(x) loses as many digits as exp(-x^2) has leading zeros
        context.prec += int(x * x / 2) if x > 0 else 0
        return 1 - erf(x)


def erfcx(x: Decimal) -> Decimal:
    """Return exp(x^2) erfc(x)."""
    if x > 0 and _is_far(x * x):  # 7.1.23
        return _asymptotic(lambda n: -(2 * n - 1) / (2 * x * x)) / (x * pi().sqrt())
    return (x * x).exp() * erfc(x)


def log_ndtr(x: Decimal) -> Decimal:
    """Return the logarithm of the probability that a normal variable is below x."""
    root = Decimal(2).sqrt()
    if x < 0:
        return (erfcx(-x / root) / 2).ln() - x * x / 2
    tail = erfc(x / root) / 2
    return -_series(tail, lambda n: tail * n / (n + 1))


def erfinv(x: Decimal) -> Decimal:
    """Return the inverse error function of x."""
    return _inverse_of_erfc(1 - abs(x)).copy_sign(x) if abs(x) > _HALF else _inverse_of_erf(x)


def _inverse_of_erf(x: Decimal) -> Decimal:
    """Return the inverse for |x| up to 1/2, by Newton's method from the standard library's inverse normal
    distribution."""
    y = Decimal(NormalDist().inv_cdf((1 + float(x)) / 2)) / Decimal(2).sqrt() if abs(x) > 1e-6 else x
    return _newton(y, lambda y: (erf(y) - x) * (y * y).exp() * pi().sqrt() / 2)


def _inverse_of_erfc(c: Decimal) -> Decimal:
    """Return the inverse of erfc for c from 0 to 1, by Newton's method on the logarithm of erfc."""
    y = max((-c.ln()).sqrt() - _HALF, Decimal(0))

    def step(y: Decimal) -> Decimal:
        scaled = erfcx(y)
        return -(scaled / c * (-y * y).exp()).ln() * scaled * pi().sqrt() / 2

    return _newton(y, step)


def _newton(y: Decimal, step: Callable[[Decimal], Decimal]) -> Decimal:
    """Return a root by Newton's method, with the correction `step`; the number of digits is doubled repeatedly."""
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
    """Return the number that a normal variable is below with probability x."""
    root = Decimal(2).sqrt()
    if abs(x - _HALF) < Decimal("0.25"):
        return root * _inverse_of_erf(2 * x - 1)
    return root * _inverse_of_erfc(2 * min(x, 1 - x)).copy_sign(x - _HALF)


@cache
def _bernoulli_numbers(count: int) -> list[Fraction]:
    """Return B(2), B(4), ... from their recurrence."""
    numbers = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        numbers.append(-sum((math.comb(n + 1, k) * numbers[k] for k in range(n)), Fraction(0)) / (n + 1))
    return numbers[2::2]


def _stirling() -> tuple[Decimal, list[Decimal]]:
    """Return the least argument for which Stirling's series and Euler-Maclaurin give all digits; and Bernoulli
    numbers."""
    digits = getcontext().prec
    numbers = _bernoulli_numbers(max(digits // 4, 30))
    return Decimal(max(digits // 2, _FAR)), [Decimal(x.numerator) / x.denominator for x in numbers]


def lgamma(x: Decimal) -> Decimal:
    """Return log |Gamma(x)|: Stirling's series for x + n, minus the logarithm of x (x + 1) ... (x + n - 1)."""
    if x < _HALF:
        return (pi() / abs(_sin_of_half_turns(x))).ln() - lgamma(1 - x)
    product, (far, numbers) = Decimal(1), _stirling()
    while x < far:
        product *= x
        x += 1
    start = (x - _HALF) * x.ln() - x + (2 * pi()).ln() / 2
    return start + sum(b / (2 * k * (2 * k - 1) * x ** (2 * k - 1)) for k, b in enumerate(numbers, 1)) - product.ln()


def digamma(x: Decimal) -> Decimal:
    """Return the derivative of log |Gamma(x)|, by the derivative of Stirling's series."""
    if x < _HALF:
        # The cotangent of pi x, as the quotient of cosine and sine.
        return digamma(1 - x) - pi() * _sin_of_half_turns(_HALF - x) / _sin_of_half_turns(x)
    less, (far, numbers) = Decimal(0), _stirling()
    while x < far:
        less += 1 / x
        x += 1
    return x.ln() - 1 / (2 * x) - sum(b / (2 * k * x ** (2 * k)) for k, b in enumerate(numbers, 1)) - less


def _sin_of_half_turns(x: Decimal) -> Decimal:
    """Return sin(pi x)."""
    with localcontext() as context:
        context.prec += max(x.adjusted(), 0)
        rest = x % 2
        return sin(pi() * rest)


def zeta(s: Decimal, q: Decimal) -> Decimal:
    """Return the sum of (q + k)^-s over k, by the Euler-Maclaurin formula, for positive q."""
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
    """Return the modified Bessel function of order 0 or 1."""
    return _series((x / 2) ** order, lambda n: x * x / (4 * n * (n + order)))


def bessel_ie(x: Decimal, order: int) -> Decimal:
    """Return exp(-|x|) I(x)."""
    if not _is_far(2 * abs(x)):
        return bessel_i(x, order) * (-abs(x)).exp()
    size = _asymptotic(lambda n: Decimal((2 * n - 1) ** 2 - 4 * order) / (8 * n * abs(x)))  # 9.7.1
    size /= (2 * pi() * abs(x)).sqrt()
    return size.copy_sign(x) if order else size
