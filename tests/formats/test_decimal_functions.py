"""Functions by decimals, which decide roundings in exact numbers: bounds contain the value that mpmath computes."""

import random
from fractions import Fraction

import pytest

from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.formats.decimal_functions import value_between

DIGITS = 40

#: Where the arguments of a function lie, if it is not defined for all numbers or if large ones exceed its limits.
DOMAINS = {
    **dict.fromkeys(("sqrt", "log", "log2", "log10", "rsqrt"), (0, 1000)),
    **dict.fromkeys(("acosh",), (1, 1000)),
    **dict.fromkeys(("atanh", "asin", "acos", "erfinv"), (-1, 1)),
    **dict.fromkeys(("ndtri",), (0, 1)),
    **dict.fromkeys(("log1p",), (-1, 1000)),
    **dict.fromkeys(("erf", "erfc", "erfcx"), (-20, 20)),
    **dict.fromkeys(("gelu", "log_ndtr"), (-30, 30)),
}


def oracles(mpmath):
    """mpmath's functions for the rows of the catalog, if their names differ or mpmath has a formula only."""
    half, root = mpmath.mpf(1) / 2, mpmath.sqrt(2)
    return {
        "log2": lambda x: mpmath.log(x, 2),
        "exp2": lambda x: mpmath.mpf(2) ** x,
        "exp10": lambda x: mpmath.mpf(10) ** x,
        "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
        "ndtri": lambda x: mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1),
        "log_ndtr": lambda x: (
            mpmath.log1p(-mpmath.erfc(x / root) * half) if x > 0 else mpmath.log(mpmath.erfc(-x / root) * half)
        ),
        "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
        "zeta": lambda s, q: mpmath.zeta(s, q),
        "i0": lambda x: mpmath.besseli(0, x),
        "i1": lambda x: mpmath.besseli(1, x),
        "i0e": lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)),
        "i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
        "gelu": lambda x: x * mpmath.ncdf(x),
        "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
        "reciprocal": lambda x: 1 / x,
        "rsqrt": lambda x: 1 / mpmath.sqrt(x),
        "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    }


def arguments(name, rng):
    """Numbers of all sizes in the domain of a function, near its ends too, none of which is exact in binary."""
    low, high = DOMAINS.get(name, (-50, 50))
    sizes = [Fraction(rng.randrange(1, 10**30), 10**30) * scale for scale in (1, 1, 10, 1000, Fraction(1, 10**7))]
    near_ends = [low + sizes[4], high - sizes[4], low + sizes[0] / 100, high - sizes[0] / 100]
    numbers = [*sizes, *(-x for x in sizes), *near_ends]
    numbers += [low + (high - low) * Fraction(rng.randrange(1, 10**30), 10**30) for _ in range(4)]
    return [x for x in numbers if low < x < high]


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.value is not None])
def test_bounds_contain_the_value_of_mpmath(name):
    mpmath = pytest.importorskip("mpmath", reason="needs mpmath as an oracle")
    rng, function = random.Random(name), FUNCTIONS[name]
    if len(function.operands) == 1:
        cases = [(x,) for x in arguments(name, rng)]
    else:
        least, lowest = {"zeta": (2, 0), "power": (0, -5), "atan2": (-9, -5)}[name]
        parts = [(rng.randrange(1, 10**30), rng.randrange(1, 10**30)) for _ in range(12)]
        cases = [(least + Fraction(x, 10**29), lowest + Fraction(y, 10**28)) for x, y in parts]
    decided = 0
    with mpmath.workdps(3 * DIGITS + 60):
        theirs = oracles(mpmath).get(name) or getattr(mpmath, name)
        for operands in cases:
            bounds = value_between(function, operands, DIGITS)
            if bounds is None:
                continue
            value = theirs(*(mpmath.mpf(x.numerator) / x.denominator for x in operands))
            exact = Fraction(*mpmath.libmp.to_rational(mpmath.re(value)._mpf_))
            assert bounds[0] <= exact <= bounds[1], (operands, float(exact), [float(x) for x in bounds])
            assert bounds[1] - bounds[0] <= abs(exact) / 10 ** (DIGITS // 2)
            decided += 1
    assert decided > len(cases) / 2
