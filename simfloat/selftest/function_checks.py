"""Checks of square root and elementary functions, against the decimal module of Python's standard library.

Its `exp`, `ln` and `sqrt` are correct in the last of as many digits as asked for. 120 digits are enough: no value of
these functions at a 16-bit operand, nor a root of a float64, comes that near to a tie without being one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.selftest.comparison import Batch, call
from simfloat.selftest.hard_numbers import DETERMINISTIC, Array

DIGITS = 120

_MANY_DIGITS = Context(prec=DIGITS, Emin=-999_999, Emax=999_999)


def _tanh(x: Decimal) -> Decimal:
    square = (2 * x).exp()
    return (square - 1) / (square + 1)


def _log2(x: Decimal) -> Decimal:
    near = x.ln() / Decimal(2).ln()
    whole = near.to_integral_value()
    return whole if Decimal(2) ** whole == x else near


def _series(x: Decimal, first: Decimal, factor: Callable[[int], Decimal]) -> Decimal:
    """first * (1 + factor(1) * (1 + factor(2) * ...)), until terms no longer count."""
    total, term, n = first, first, 0
    while abs(term) > abs(total) * Decimal(10) ** -(DIGITS - 10):
        n += 1
        term *= factor(n)
        total += term
    return total


def _sin(x: Decimal) -> Decimal:
    return _series(x, x, lambda n: -x * x / (2 * n * (2 * n + 1)))


def _cos(x: Decimal) -> Decimal:
    return _series(x, Decimal(1), lambda n: -x * x / (2 * n * (2 * n - 1)))


def _erf(x: Decimal) -> Decimal:
    # Abramowitz and Stegun, 7.1.6: all terms have one sign. The square root of pi, to 68 digits.
    terms = _series(x, x * (-x * x).exp(), lambda n: 2 * x * x / (2 * n + 1))
    return terms * 2 / Decimal("1.7724538509055160272981674833411451827975494561223871282138077898529")


def _atan(x: Decimal) -> Decimal:
    # Half the angle, and half again, until the series is short.
    for _ in range(8):
        x = x / (1 + (1 + x * x).sqrt())
    total, power, n = Decimal(0), x, 1
    while abs(power) > Decimal(10) ** -DIGITS * abs(x):
        total += power / n
        power, n = -power * x * x, n + 2
    return 256 * total


class Oracle(NamedTuple):
    """What a function of one operand is, and which operands it is tried with."""

    exact: Callable[[Decimal], Decimal]
    specials: tuple[float, float, float, float, float]  # its values at 0, -0, inf, -inf and NaN
    positive: bool = False  # tried with positive operands only
    below: float = math.inf  # tried with smaller operands only
    above: float = -math.inf  # tried with larger operands only


@cache
def _arithmetic_geometric_pi() -> Decimal:
    """pi, by Gauss's and Legendre's means."""
    a, b, t, p = Decimal(1), 1 / Decimal(2).sqrt(), Decimal(1) / 4, 1
    for _ in range(8):
        middle = (a + b) / 2
        b, t, p = (a * b).sqrt(), t - p * (a - middle) ** 2, 2 * p
        a = middle
    return (a + b) ** 2 / (4 * t)


@cache
def _bernoulli_numbers(count: int) -> list[Decimal]:
    """B(2), B(4), ... from their recurrence."""
    numbers = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        numbers.append(-sum((math.comb(n + 1, k) * numbers[k] for k in range(n)), Fraction(0)) / (n + 1))
    return [Decimal(x.numerator) / x.denominator for x in numbers[2::2]]


#: From here on Stirling's series, of so many terms, and Euler's and Maclaurin's have 70 digits.
_FAR, _STIRLING_TERMS = 40, 30


def _lgamma(x: Decimal) -> Decimal:
    """log Gamma(x) for positive x, by Stirling's series for x + n, less the logarithm of x (x + 1) ... (x + n - 1)."""
    product = Decimal(1)
    while x < _FAR:
        product *= x
        x += 1
    start = (x - Decimal("0.5")) * x.ln() - x + (2 * _arithmetic_geometric_pi()).ln() / 2
    numbers = enumerate(_bernoulli_numbers(_STIRLING_TERMS), 1)
    return start + sum(b / (2 * k * (2 * k - 1) * x ** (2 * k - 1)) for k, b in numbers) - product.ln()


def _digamma(x: Decimal) -> Decimal:
    """Its derivative, likewise."""
    less = Decimal(0)
    while x < _FAR:
        less += 1 / x
        x += 1
    numbers = enumerate(_bernoulli_numbers(_STIRLING_TERMS), 1)
    return x.ln() - 1 / (2 * x) - sum(b / (2 * k * x ** (2 * k)) for k, b in numbers) - less


def _zeta(s: Decimal, q: Decimal) -> Decimal:
    """The sum of (q + k)^-s, by Euler's and Maclaurin's formula from _FAR on."""
    total = Decimal(0)
    while q < _FAR:
        total += q**-s
        q += 1
    total += q ** (1 - s) / (s - 1) + q**-s / 2
    factor = s * q ** (-s - 1)
    for j, b in enumerate(_bernoulli_numbers(_STIRLING_TERMS), 1):
        total += b * factor / math.factorial(2 * j)
        factor *= (s + 2 * j - 1) * (s + 2 * j) / (q * q)
    return total


def _root_of_two() -> Decimal:
    return Decimal(2).sqrt()


def _erfinv(x: Decimal) -> Decimal:
    """Newton's method on erf, from the standard library's inverse of the normal distribution."""
    y = Decimal(NormalDist().inv_cdf((1 + float(x)) / 2)) / _root_of_two() if abs(x) > 1e-6 else x
    for _ in range(4):
        y -= (_erf(y) - x) * (y * y).exp() * _arithmetic_geometric_pi().sqrt() / 2
    return y


def _bessel_i(x: Decimal, order: int) -> Decimal:
    return _series(x, (x / 2) ** order, lambda n: x * x / (4 * n * (n + order)))


#: The operands of the specials.
SPECIALS = (0.0, -0.0, math.inf, -math.inf, math.nan)

_INF, _NAN, _HALF_PI = math.inf, math.nan, math.pi / 2

#: Every function of one operand. Specials: IEEE 754-2019, section 9.2.1, and limits.
FUNCTIONS = {
    "exp": Oracle(Decimal.exp, (1.0, 1.0, _INF, 0.0, _NAN)),
    "log": Oracle(Decimal.ln, (-_INF, -_INF, _INF, _NAN, _NAN), positive=True),
    "log10": Oracle(Decimal.log10, (-_INF, -_INF, _INF, _NAN, _NAN), positive=True),
    "expm1": Oracle(lambda x: x.exp() - 1, (0.0, -0.0, _INF, -1.0, _NAN)),
    "log1p": Oracle(lambda x: (1 + x).ln(), (0.0, -0.0, _INF, _NAN, _NAN), below=1),
    "tanh": Oracle(_tanh, (0.0, -0.0, 1.0, -1.0, _NAN)),
    "sinh": Oracle(lambda x: (x.exp() - (-x).exp()) / 2, (0.0, -0.0, _INF, -_INF, _NAN)),
    "cosh": Oracle(lambda x: (x.exp() + (-x).exp()) / 2, (1.0, 1.0, _INF, _INF, _NAN)),
    "asinh": Oracle(lambda x: (abs(x) + (x * x + 1).sqrt()).ln().copy_sign(x), (0.0, -0.0, _INF, -_INF, _NAN)),
    "acosh": Oracle(lambda x: (x + (x * x - 1).sqrt()).ln(), (_NAN, _NAN, _INF, _NAN, _NAN), above=1),
    "atanh": Oracle(lambda x: ((1 + x) / (1 - x)).ln() / 2, (0.0, -0.0, _NAN, _NAN, _NAN), below=1),
    "sigmoid": Oracle(lambda x: 1 / (1 + (-x).exp()), (0.5, 0.5, 1.0, 0.0, _NAN)),
    "log2": Oracle(_log2, (-_INF, -_INF, _INF, _NAN, _NAN), positive=True),
    "sin": Oracle(_sin, (0.0, -0.0, _NAN, _NAN, _NAN)),
    "cos": Oracle(_cos, (1.0, 1.0, _NAN, _NAN, _NAN)),
    "tan": Oracle(lambda x: _sin(x) / _cos(x), (0.0, -0.0, _NAN, _NAN, _NAN)),
    "asin": Oracle(lambda x: _atan(x / (1 - x * x).sqrt()), (0.0, -0.0, _NAN, _NAN, _NAN), below=1),
    "acos": Oracle(lambda x: 2 * _atan(((1 - x) / (1 + x)).sqrt()), (_HALF_PI, _HALF_PI, _NAN, _NAN, _NAN), below=1),
    "atan": Oracle(_atan, (0.0, -0.0, _HALF_PI, -_HALF_PI, _NAN)),
    # Beyond 10 the digits do not show by how much erf misses one.
    "erf": Oracle(_erf, (0.0, -0.0, 1.0, -1.0, _NAN), below=10),
    "erfc": Oracle(lambda x: 1 - _erf(x), (1.0, 1.0, 0.0, 2.0, _NAN), below=10),
    # Beyond 6 too few of erf's digits are left.
    "erfcx": Oracle(lambda x: (x * x).exp() * (1 - _erf(x)), (1.0, 1.0, 0.0, _INF, _NAN), below=6),
    "erfinv": Oracle(_erfinv, (0.0, -0.0, _NAN, _NAN, _NAN), below=1),
    "ndtri": Oracle(
        lambda x: _root_of_two() * _erfinv(2 * x - 1), (-_INF, -_INF, _NAN, _NAN, _NAN), positive=True, below=1
    ),
    "log_ndtr": Oracle(
        lambda x: ((1 + _erf(x / _root_of_two())) / 2).ln(),
        (-math.log(2), -math.log(2), -0.0, -_INF, _NAN),
        below=6,
    ),
    "lgamma": Oracle(_lgamma, (_INF, _INF, _INF, _INF, _NAN), positive=True),
    "digamma": Oracle(_digamma, (-_INF, _INF, _INF, _NAN, _NAN), positive=True),
    "i0": Oracle(lambda x: _bessel_i(x, 0), (1.0, 1.0, _INF, _INF, _NAN), below=40),
    "i0e": Oracle(lambda x: _bessel_i(x, 0) * (-abs(x)).exp(), (1.0, 1.0, 0.0, 0.0, _NAN), below=40),
    "i1": Oracle(lambda x: _bessel_i(x, 1), (0.0, -0.0, _INF, -_INF, _NAN), below=40),
    "i1e": Oracle(lambda x: _bessel_i(x, 1) * (-abs(x)).exp(), (0.0, -0.0, 0.0, -0.0, _NAN), below=40),
    "gelu": Oracle(lambda x: x / 2 * (1 + _erf(x / Decimal(2).sqrt())), (0.0, -0.0, _INF, -0.0, _NAN), below=10),
    "reciprocal": Oracle(lambda x: 1 / x, (_INF, -_INF, 0.0, -0.0, _NAN)),
    "rsqrt": Oracle(lambda x: 1 / x.sqrt(), (_INF, -_INF, 0.0, _NAN, _NAN), positive=True),
    "sqrt": Oracle(Decimal.sqrt, (0.0, -0.0, _INF, _NAN, _NAN), positive=True),
}


def square_roots(quick: bool) -> Iterator[Batch]:
    """Roots of float64 numbers, of squares of ties, and of their neighbours."""
    rng = np.random.default_rng(5)
    count = 15 if quick else 80
    for format in (sf.FP16, sf.BF16, sf.FP32, sf.E4M3):
        # The square of a tie has 2p + 2 bits: a root that ends halfway; its neighbours end just beside.
        ties = rng.integers(2**format.precision, 2 ** (format.precision + 1), count) | 1
        squares = (ties * 2.0**-format.precision) ** 2 * 4.0 ** rng.integers(format.emin // 2, format.emax // 2, count)
        wide = np.abs(rng.standard_normal(count)) * 2.0 ** rng.integers(-1000, 1000, count)
        x = np.concatenate([squares, np.nextafter(squares, 0), np.nextafter(squares, np.inf), wide])
        yield from _by_decimals("sqrt", x, format)


def elementary_functions(quick: bool) -> Iterator[Batch]:
    """Functions of 16-bit numbers, rounded to 16 bits in every deterministic mode."""
    rng = np.random.default_rng(6)
    for name, oracle in FUNCTIONS.items():
        for format in (sf.FP16, sf.BF16):
            x = rng.standard_normal(30 if quick else 150) * 2.0 ** rng.integers(-30, 6, 30 if quick else 150)
            x = sf.round(np.abs(x) if oracle.positive else x, format)
            yield from _by_decimals(name, x[(x != 0) & (np.abs(x) < oracle.below) & (x > oracle.above)], format)


def powers(quick: bool) -> Iterator[Batch]:
    """Powers of 16-bit numbers: with integers as exponents against fractions, with others against decimals."""
    rng = np.random.default_rng(7)
    count = 30 if quick else 150
    for format in (sf.FP16, sf.BF16):
        a = sf.round(rng.uniform(0.25, 4, count), format).astype(np.float64)
        b = rng.integers(-8, 12, count).astype(np.float64)
        yield from _rounded("power", (a, b), [Fraction(x) ** int(y) for x, y in zip(a, b, strict=True)], format)
        # Three times a power of two, to an exponent that is no integer, is irrational: no result is a tie.
        a, b = 3 / 2.0 ** rng.integers(-6, 6, count), (2 * rng.integers(-40, 40, count) + 1) / 16
        with localcontext(_MANY_DIGITS):
            exact = [Fraction(Decimal(x) ** Decimal(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        yield from _rounded("power", (a, b), exact, format)


def angles(quick: bool) -> Iterator[Batch]:
    """Angles of points with 16-bit coordinates, from that of their quotient."""
    rng = np.random.default_rng(8)
    count = 30 if quick else 150
    for format in (sf.FP16, sf.BF16):
        a, b = (sf.round(x, format).astype(np.float64) for x in rng.standard_normal((2, count)))
        with localcontext(_MANY_DIGITS):
            half_turn = 16 * _atan(Decimal(1) / 5) - 4 * _atan(Decimal(1) / 239)
            arcs = [_atan(Decimal(y) / Decimal(x)) for y, x in zip(a.tolist(), b.tolist(), strict=True)]
            turned = [
                half_turn.copy_sign(Decimal(y)) if x < 0 else 0 for y, x in zip(a.tolist(), b.tolist(), strict=True)
            ]
            exact = [Fraction(arc + turn) for arc, turn in zip(arcs, turned, strict=True)]
        yield from _rounded("atan2", (a, b), exact, format)


def zetas(quick: bool) -> Iterator[Batch]:
    """Sums of powers of 16-bit numbers."""
    rng = np.random.default_rng(9)
    count = 8 if quick else 40
    for format in (sf.FP16, sf.BF16):
        s = sf.round(1.125 + 6 * rng.random(count), format).astype(np.float64)
        q = sf.round(2.0 ** rng.uniform(-5, 9, count), format).astype(np.float64)
        with localcontext(_MANY_DIGITS):
            exact = [Fraction(_zeta(Decimal(x), Decimal(y))) for x, y in zip(s.tolist(), q.tolist(), strict=True)]
        yield from _rounded("zeta", (s, q), exact, format)


def special_operands(quick: bool) -> Iterator[Batch]:
    """Functions at zeros, infinities and NaN."""
    for name, oracle in FUNCTIONS.items():
        for format in (sf.FP16, sf.FP32) if quick else (sf.FP16, sf.BF16, sf.FP32, sf.FP64):
            yield call(name, (np.array(SPECIALS),), format, sf.nearest_even, sf.round(oracle.specials, format))


def _by_decimals(name: str, x: Array, format: sf.Format) -> Iterator[Batch]:
    with localcontext(_MANY_DIGITS):
        exact = [Fraction(FUNCTIONS[name].exact(Decimal(float(v)))) for v in x]
    yield from _rounded(name, (x,), exact, format)


def _rounded(name: str, operands: tuple[Array, ...], exact: list[Fraction], format: sf.Format) -> Iterator[Batch]:
    """A function beside its exact results rounded by the definition, in every deterministic mode."""
    for rounding in DETERMINISTIC:
        yield call(name, operands, format, rounding, [round_value(v, format, rounding) for v in exact])
