"""MPFR as an oracle: exact values rounded to odd, from which every mode of every narrower format follows."""

import gmpy2
import numpy as np

#: Exponents far beyond any result, so that only the format's own range matters.
UNBOUNDED = dict(emin=-(2**40), emax=2**40)

#: These stand for all inexact results that are as large or as small.
HUGE, TINY = 1.5 * 2.0**1000, 1.5 * 2.0**-1000


def _sigmoid(x):
    if x == 0 or not gmpy2.is_finite(x):
        return 1 / (1 + gmpy2.exp(-x))
    with gmpy2.context(gmpy2.get_context(), precision=1300):
        # In a form that never rounds to 1, and with bits enough to tell the sigmoid of the smallest float64 from 1/2;
        # beyond 2^20 the result only has to stay close to 0 or 1.
        x = max(min(x, gmpy2.mpfr(2**20)), gmpy2.mpfr(-(2**20)))
        logarithm = -gmpy2.log1p(gmpy2.exp(-x))
    return gmpy2.exp(logarithm)


def _gelu(x):
    if x == 0 or not gmpy2.is_finite(x):
        return gmpy2.mpfr("-0") if gmpy2.is_infinite(x) and x < 0 else x
    # In a direction in which 1 + erf never rounds to 1 or 2; beyond 2^14 it only has to stay close to 0 or 2.
    direction = gmpy2.RoundUp if 0 < x < 1 else gmpy2.RoundToZero
    with gmpy2.context(precision=400, round=direction, **UNBOUNDED):
        clamped = max(min(x, gmpy2.mpfr(2**14)), gmpy2.mpfr(-(2**14)))
        value = x * gmpy2.erfc(-clamped / gmpy2.sqrt(gmpy2.mpfr(2))) / 2
    return +value


UNARY = {
    "exp": gmpy2.exp,
    "log": gmpy2.log,
    "log2": gmpy2.log2,
    "tanh": gmpy2.tanh,
    **{name: getattr(gmpy2, name) for name in "log10 expm1 log1p sinh cosh asinh acosh atanh".split()},
    **{name: getattr(gmpy2, name) for name in "tan asin acos atan erfc".split()},
    "sigmoid": _sigmoid,
    "sin": gmpy2.sin,
    "cos": gmpy2.cos,
    "erf": gmpy2.erf,
    "gelu": _gelu,
    "reciprocal": lambda x: 1 / x,
    # MPFR takes rsqrt(-0) for +inf; IEEE 754-2019, 9.2.1, for -inf.
    "rsqrt": lambda x: gmpy2.rec_sqrt(x) if x != 0 else 1 / x,
}


def power(x, y):
    return x**y


#: Every public operation by its name.
ORACLES = {
    **UNARY,
    **{"add": gmpy2.add, "subtract": gmpy2.sub, "multiply": gmpy2.mul, "divide": gmpy2.div, "fma": gmpy2.fma},
    **{"sqrt": gmpy2.sqrt, "power": power, "atan2": gmpy2.atan2},
}


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
