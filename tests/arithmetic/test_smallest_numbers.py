"""Formats with numbers as small as those of float64: bits below them decide the rounding of a result."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.tools.selftest.orders import dot
from tests.accumulate.definition import MODES as MODES_OF
from tests.bits import DETERMINISTIC, assert_bits
from tests.reference import draws, exact, operate

gmpy2 = pytest.importorskip("gmpy2", reason="needs gmpy2 (MPFR) as an oracle")

from tests import mpfr  # noqa: E402

#: Smallest numbers 2^-1074 to 2^-1071; several bits and one, signed and not, with subnormals and without.
FORMATS = (
    sf.Format(11, 2, bias=1073), sf.Format(11, 2, bias=1072), sf.Format(11, 49, bias=1024), sf.Format(6, 3, bias=1070),
    sf.Format(6, 0, bias=1074, special="fn"), sf.Format(6, 2, bias=1073, signed=False),
    sf.Format(6, 2, bias=1073, subnormals=False),
    sf.Format(6, 2, bias=1073, subnormals=False, tininess="before_rounding"),
    sf.Format(6, 0, bias=1075, special="fn", subnormals=False), sf.Format(6, 2, bias=1070, special="fn"),
)  # fmt: skip
MODES = (*DETERMINISTIC, sf.stochastic(3), sf.stochastic(32, "A"))


def tiny(rng, count, lowest, highest):
    """Numbers of one to ten bits with exponents between these bounds, of both signs."""
    significands = rng.integers(1, 1024, count) * 2.0 ** -rng.integers(0, 10, count)
    return rng.choice([-1.0, 1.0], count) * np.ldexp(significands, rng.integers(lowest, highest, count))


def rounded(values, format, rounding):
    """The definition's rounding of exact values, with the draws of a first call."""
    random = draws(len(values), rounding) if rounding.is_stochastic else [0] * len(values)
    return [round_value(v, format, rounding, r) for v, r in zip(values, random, strict=True)]


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_operations_round_values_below_the_smallest_float64(format, rng):
    a, b = tiny(rng, 96, -560, -530), tiny(rng, 96, -560, -500)
    c = np.where(rng.random(96) < 0.5, tiny(rng, 96, -1074, -1060), 0.0)
    large = tiny(rng, 96, 500, 530)
    for rounding in MODES:
        for operation, operands in (
            ("multiply", (a, b)), ("divide", (a, large)), ("fma", (a, b, c)), ("add", (c, c[::-1])),
            ("subtract", (c, c[::-1])),
        ):  # fmt: skip
            got = getattr(sf, operation)(*operands, format, rounding, stream=sf.BitStream(0))
            down = rounding == sf.toward_negative
            values = [exact(operation, *numbers, negative_zero_sums=down) for numbers in zip(*operands, strict=True)]
            assert_bits(got, rounded(values, format, rounding), *operands)


def test_functions_round_values_below_the_smallest_float64(rng):
    x = rng.uniform(-750, -735, 64)  # e^-745.1 is half the smallest float64
    y, powers = tiny(rng, 64, -1074, -1065), x * (math.log2(math.e) / math.log2(2.5))
    # tanh and sin of such y are y but for 2^-2150 of it, which decides ties.
    with gmpy2.context(precision=2400, **mpfr.UNBOUNDED):
        cases = [(name, (x,), mpfr.UNARY[name]) for name in ("exp", "sigmoid")]
        cases += [(name, (y,), mpfr.UNARY[name]) for name in ("tanh", "sin", "erf")]
        cases += [("power", (np.full(64, 2.5), powers), lambda base, v: base**v)]
        for name, operands, oracle in cases:
            rows = zip(*map(np.ndarray.tolist, operands), strict=True)
            values = [Fraction(*oracle(*map(gmpy2.mpfr, row)).as_integer_ratio()) for row in rows]
            for format, rounding in product(FORMATS[:4], MODES):
                got = getattr(sf, name)(*operands, format, rounding, stream=sf.BitStream(0))
                assert_bits(got, rounded(values, format, rounding), *operands)


@pytest.mark.parametrize("format", FORMATS[:4], ids=str)
def test_sums_round_values_below_the_smallest_float64(format, rng):
    a, b = (sf.round(tiny(rng, 24, -540, -530), sf.Format(11, 5)) for _ in range(2))
    orders = [order(format, rounding=mode) for order in MODES_OF for mode in MODES_OF[order] if not mode.is_stochastic]
    orders += [sf.sequential(format, rounding=mode, products=format) for mode in DETERMINISTIC]
    orders += [sf.blocked(5, sf.sequential(format, rounding=mode), format) for mode in DETERMINISTIC]
    for accumulator in orders:
        got = sf.dot(a, b, accumulate=accumulator)
        assert_bits(got, dot(accumulator, a.tolist(), b.tolist()))
    if format.emin - format.mantissa_bits < -1072:
        with pytest.raises(ValueError, match="An exact sum that leaves the range of float64 cannot be rounded to"):
            sf.dot(a, b, accumulate=sf.exact, output=format)


def test_a_product_below_half_of_the_smallest_number_is_zero():
    format = sf.Format(11, 2, bias=1073)
    assert sf.multiply(2.0**-700, 2.0**-700, format) == 0
    assert sf.multiply(2.0**-700, 2.0**-700, format, sf.toward_positive) == 5e-324
    assert sf.multiply(2.0**-700, 2.0**-375, format) == 0 and sf.multiply(1.5 * 2.0**-700, 2.0**-375, format) == 5e-324
    assert math.isnan(operate("multiply", format, sf.nearest_even, math.inf, 0.0))
