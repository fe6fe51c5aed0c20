"""MPFR as an oracle: exact values rounded to odd, which can then be rounded to every narrower format in any mode."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import gmpy2
import numpy as np

from simfloat.arithmetic import catalog
from simfloat.tools.selftest.operations import SPECIALS

#: Exponents far beyond any result, so that only the format's own range matters.
UNBOUNDED = dict(emin=-(2**40), emax=2**40)

#: Bits that functions without MPFR's own rounding are computed with: far more than float64's, few enough to be quick.
BITS = 240

#: These stand for all inexact results that are as large or as small.
HUGE, TINY = 1.5 * 2.0**1000, 1.5 * 2.0**-1000


def _sigmoid(x):
    if x == 0 or not gmpy2.is_finite(x):
        return 1 / (1 + gmpy2.exp(-x))
    with gmpy2.context(gmpy2.get_context(), precision=BITS + max(0, -gmpy2.get_exp(x))):
        # In a form that never rounds to 1, and with bits enough to tell the sigmoid of a small number from 1/2;
        # beyond 2^20 the result only has to stay close to 0 or 1.
        x = max(min(x, gmpy2.mpfr(2**20)), gmpy2.mpfr(-(2**20)))
        logarithm = -gmpy2.log1p(gmpy2.exp(-x))
    return gmpy2.exp(logarithm)


def _gelu(x):
    if x == 0 or not gmpy2.is_finite(x):
        return gmpy2.mpfr("-0") if gmpy2.is_infinite(x) and x < 0 else x
    # In a direction in which 1 + erf never rounds to 1 or 2; beyond 2^14 it only has to stay close to 0 or 2.
    direction = gmpy2.RoundUp if 0 < x < 1 else gmpy2.RoundToZero
    # With 240 bits MPFR takes four times as long for erfc far from 0.
    with gmpy2.context(precision=180, round=direction, **UNBOUNDED):
        clamped = max(min(x, gmpy2.mpfr(2**14)), gmpy2.mpfr(-(2**14)))
        value = x * gmpy2.erfc(-clamped / gmpy2.sqrt(gmpy2.mpfr(2))) / 2
    return +value


def _with_bits(function, direction=gmpy2.RoundToNearest):
    """A function that is computed with BITS, in a direction that shows what is less, and then rounded."""

    def rounded(x, *others):
        with gmpy2.context(precision=BITS, round=direction, **UNBOUNDED):
            value = function(x, *others)
        return +value

    return rounded


def _lgamma(x):
    return gmpy2.mpfr("inf") if gmpy2.is_infinite(x) else gmpy2.lgamma(x)[0]


def _digamma(x):
    if x == 0 or gmpy2.is_infinite(x):
        return -1 / x if x == 0 else x if x > 0 else gmpy2.nan()
    return gmpy2.digamma(x)


def _erfcx(x):
    if not gmpy2.is_finite(x):
        return gmpy2.mpfr(0) if x > 0 else gmpy2.inf() if x < 0 else x
    if x == 0 or abs(x) < gmpy2.mpfr(2) ** -150:
        one = gmpy2.mpfr(1)
        return gmpy2.next_below(one) if x > 0 else gmpy2.next_above(one) if x < 0 else one
    if x > 2**10:
        total, term = gmpy2.mpfr(1), gmpy2.mpfr(1)
        for k in range(1, 16):
            term *= -(2 * k - 1) / (2 * x * x)
            total += term
        return total / (x * gmpy2.sqrt(gmpy2.const_pi()))
    x = max(x, gmpy2.mpfr(-(2**7)))
    return gmpy2.exp(x * x) * gmpy2.erfc(x)


def _log_ndtr(x):
    if not gmpy2.is_finite(x):
        return gmpy2.mpfr("-0") if x > 0 else x
    if x > 0:
        return gmpy2.log1p(-gmpy2.erfc(min(x, gmpy2.mpfr(2**7)) / gmpy2.sqrt(gmpy2.mpfr(2))) / 2)
    if x < -(2**10):  # MPFR's erfc underflows further out
        total, term = gmpy2.mpfr(1), gmpy2.mpfr(1)
        for k in range(1, 16):
            term *= -(2 * k - 1) / (x * x)
            total += term
        return gmpy2.log(total / gmpy2.sqrt(2 * gmpy2.const_pi())) - gmpy2.log(-x) - x * x / 2
    return gmpy2.log(gmpy2.erfc(-x / gmpy2.sqrt(gmpy2.mpfr(2))) / 2)


def _inverse_of_erfc(c):
    """The y with erfc(y) = c for 0 < c < 1, by Newton's method on the logarithm of erfc."""
    y = gmpy2.mpfr(max(float(gmpy2.sqrt(-gmpy2.log(c))) - 0.5, 0.0))
    for _ in range(60):
        tail = gmpy2.erfc(y)
        step = gmpy2.log(tail / c) * tail * gmpy2.exp(y * y) * gmpy2.sqrt(gmpy2.const_pi()) / 2
        y += step
        if abs(step) <= abs(y) * gmpy2.mpfr(2) ** -180:
            break
    return y


def _erfinv(x):
    if not abs(x) < 1:
        return gmpy2.copy_sign(gmpy2.inf(), x) if abs(x) == 1 else gmpy2.nan()
    if abs(x) < gmpy2.mpfr(2) ** -60:
        return x * gmpy2.sqrt(gmpy2.const_pi()) / 2 * (1 + gmpy2.const_pi() / 12 * x * x)
    return gmpy2.copy_sign(_inverse_of_erfc(1 - abs(x)), x)


def _ndtri(x):
    if not 0 < x < 1:
        return -gmpy2.inf() if x == 0 else gmpy2.inf() if x == 1 else gmpy2.nan()
    if x == 0.5:
        return gmpy2.mpfr(0)
    y = _erfinv(2 * x - 1) if abs(x - 0.5) < 0.25 else _inverse_of_erfc(2 * min(x, 1 - x))
    return gmpy2.copy_sign(y, x - 0.5) * gmpy2.sqrt(gmpy2.mpfr(2))


def _bessel_i(order, is_scaled):
    """I0 or I1 by its series, or by Hankel's expansion, as it is or times exp(-|x|)."""

    def function(x):
        z = abs(x)
        if not gmpy2.is_finite(x) or x == 0:
            far = gmpy2.mpfr(0) if is_scaled and gmpy2.is_infinite(x) else x if order else z
            return gmpy2.copy_sign(far, x) if order else gmpy2.mpfr(1) if x == 0 else far
        total, term, k, is_near = gmpy2.mpfr(1), gmpy2.mpfr(1), 0, z < 150
        while abs(term) > total * gmpy2.mpfr(2) ** -260:
            k += 1
            term *= z * z / (4 * k * (k + order)) if is_near else ((2 * k - 1) ** 2 - 4 * order) / (8 * k * z)
            total += term
        total = total * (z / 2) ** order if is_near else total / gmpy2.sqrt(2 * gmpy2.const_pi() * z)
        if is_scaled == is_near:
            total *= gmpy2.exp(-z if is_scaled else min(z, gmpy2.mpfr(2**14)))
        return -total if order and x < 0 else total

    return function


def _zeta(s, q):
    """The sum of (q + k)^-s for s > 1, by Euler's and Maclaurin's formula, of finite numbers."""
    total, number = gmpy2.mpfr(0), gmpy2.mpfr(0)
    if s < 1 or gmpy2.is_nan(s + q) or (q < 0 and not gmpy2.is_integer(s)):
        return gmpy2.nan()
    if s == 1 or (q <= 0 and gmpy2.is_integer(q)):
        return gmpy2.inf()
    while q < 40 + s / 2:
        total += q**-s
        q += 1
        if s > 60 and q > 8 and abs(total) * gmpy2.mpfr(2) ** -280 > q ** (2 - s):
            return total
    total += q ** (1 - s) / (s - 1) + q**-s / 2
    factor = s * q ** (-s - 1)
    for j, number in enumerate(BERNOULLI, 1):
        total += gmpy2.mpfr(number.numerator) / number.denominator * factor / gmpy2.factorial(2 * j)
        factor *= (s + 2 * j - 1) * (s + 2 * j) / (q * q)
    return total


def _bernoulli(count):
    numbers = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        numbers.append(-sum(math.comb(n + 1, k) * numbers[k] for k in range(n)) / (n + 1))
    return numbers[2::2]


BERNOULLI = _bernoulli(30)

#: What takes long here, and there: tests sample it.
LONG = {
    "erfcx": _with_bits(_erfcx),
    "erfinv": _with_bits(_erfinv),
    "ndtri": _with_bits(_ndtri),
    "log_ndtr": _with_bits(_log_ndtr, gmpy2.RoundAwayZero),
    "lgamma": _with_bits(_lgamma),
    "digamma": _with_bits(_digamma),
    "i0": _with_bits(_bessel_i(0, False), gmpy2.RoundAwayZero),
    "i0e": _with_bits(_bessel_i(0, True), gmpy2.RoundToZero),
    "i1": _with_bits(_bessel_i(1, False), gmpy2.RoundAwayZero),
    "i1e": _with_bits(_bessel_i(1, True), gmpy2.RoundToZero),
}


def _sinpi(x):
    """The sine of pi x; zeros have the sign of x."""
    part = x - 2 * gmpy2.round_away(x / 2)  # exact
    return gmpy2.copy_sign(gmpy2.mpfr(0), x) if gmpy2.is_integer(part) else _sine_of_half_turns(part)


def _cospi(x):
    """The cosine of pi x; zeros are +0."""
    part = abs(x - 2 * gmpy2.round_away(x / 2))
    if gmpy2.is_integer(2 * part):
        return gmpy2.mpfr(1 - 2 * part)
    # Near 1, the sine of half of the angle gives the difference from 1.
    return _sine_of_half_turns(gmpy2.mpfr(0.5) - part) if part > 0.25 else 1 - 2 * _sine_of_half_turns(part / 2) ** 2


def _sine_of_half_turns(part):
    return gmpy2.mpfr(math.copysign(1, part)) if abs(part) == 0.5 else gmpy2.sin(gmpy2.const_pi() * part)


def power(x, y):
    return x**y


#: What MPFR lacks, or has with other specials.
OWN = {
    **LONG,
    "sigmoid": _sigmoid,
    "gelu": _gelu,
    "sinpi": _with_bits(_sinpi),
    "cospi": _with_bits(_cospi, gmpy2.RoundToZero),
    "reciprocal": lambda x: 1 / x,
    # MPFR takes rsqrt(-0) for +inf; IEEE 754-2019, 9.2.1, for -inf.
    "rsqrt": lambda x: gmpy2.rec_sqrt(x) if x != 0 else 1 / x,
    "subtract": gmpy2.sub,
    "multiply": gmpy2.mul,
    "divide": gmpy2.div,
    "power": power,
    "zeta": _with_bits(_zeta),
}


def _by_decimals(row):
    """A function of one operand by the value of its row: decimals are the only oracle of what MPFR lacks."""

    def function(x):
        special = [float(x) == one and math.copysign(1, x) == math.copysign(1, one) for one in SPECIALS]
        if gmpy2.is_nan(x) or any(special):
            return gmpy2.mpfr(row.specials[special.index(True)] if any(special) else math.nan)
        with localcontext(prec=120, Emin=-999_999, Emax=999_999):
            low, high = row.limits
            return gmpy2.mpfr(str(row.value(Decimal(min(max(float(x), low), high)))))

    return function


def oracle(row):
    """The values of a function of the catalog: ours, else MPFR's of its name, else those by decimals."""
    return OWN.get(row.name) or getattr(gmpy2, row.name, None) or _by_decimals(row)


#: Every public operation by its name.
ORACLES = {name: oracle(row) for name, row in catalog.FUNCTIONS.items()}

#: Those of one operand but the square root.
UNARY = {name: ORACLES[name] for name, row in catalog.FUNCTIONS.items() if len(row.operands) == 1 and name != "sqrt"}


def to_odd(function, *operands):
    """Float64's round-to-odd of the function at every element; what float64 cannot hold becomes TINY or HUGE."""
    with gmpy2.context(precision=53, round=gmpy2.RoundToZero, **UNBOUNDED):
        cut, inexact = _evaluate(function, operands)
    odd = (np.clip(np.abs(cut), TINY, HUGE).view(np.int64) | 1).view(np.float64)
    return np.where(inexact, np.copysign(odd, cut), cut)


def nearest(function, *operands):
    """The function at every element rounded to nearest even in float64, overflow and gradual underflow included."""
    with gmpy2.context(precision=53, emin=-1073, emax=1024, subnormalize=True):
        return _evaluate(function, operands)[0]


def _evaluate(function, operands):
    result, inexact = np.empty(len(operands[0])), np.empty(len(operands[0]), bool)
    for i, numbers in enumerate(zip(*(x.tolist() for x in operands), strict=True)):
        value = function(*map(gmpy2.mpfr, numbers))
        result[i], inexact[i] = value, value.rc != 0 or float(value) != value
    return result, inexact
