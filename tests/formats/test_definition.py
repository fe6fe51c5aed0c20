"""Compare the definition of rounding with golden vectors and specifications."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import floor_log2, round_value
from simfloat.formats.format import TININESS
from simfloat.tools.selftest.definitions import ROUNDED, ROUNDED_MODES
from tests.bits import DETERMINISTIC

NEAREST_EVEN, NEAREST_AWAY, TOWARD_ZERO, UP, DOWN, TO_ODD = ROUNDED_MODES


def test_golden_vectors():
    for name, number, codes in ROUNDED:
        format = getattr(sf, name)
        for rounding, code in zip(ROUNDED_MODES, codes.split(), strict=True):
            assert int(sf.encode(round_value(number, format, rounding), format)) == int(code, 16), (name, rounding)


def test_half_precision_agrees_with_numpy():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000) * 2.0 ** rng.integers(-30, 18, 2000)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)  # NumPy converts float64 to float16 directly
    assert [round_value(float(v), sf.FP16, NEAREST_EVEN) for v in x] == want.astype(float).tolist()


def test_specials_stay_where_the_format_has_them():
    for x, rounding in product((math.inf, -math.inf, -0.0), DETERMINISTIC):
        got = round_value(x, sf.FP16, rounding)
        assert got == x and math.copysign(1, got) == math.copysign(1, x)


def test_overflow_follows_the_format():
    assert round_value(1e9, sf.FP16, NEAREST_EVEN) == math.inf
    assert math.isnan(round_value(1e9, sf.E4M3, NEAREST_EVEN))
    assert math.isnan(round_value(math.inf, sf.E4M3, TOWARD_ZERO)), "an infinite operand overflows where it has no code"
    assert round_value(1e9, sf.E2M1, UP) == 6.0
    assert round_value(math.inf, sf.p3109(8, 3, extended=False), NEAREST_EVEN) == 57344.0
    assert round_value(-1e9, sf.FP16, UP) == -65504.0
    assert round_value(1e9, sf.FP16, NEAREST_EVEN.saturating()) == 65504.0
    assert round_value(-math.inf, sf.FP16, NEAREST_EVEN.saturating()) == -65504.0


def test_stochastic_overflow_has_the_next_power_as_upper_neighbour():
    # 65519 lies 15/32 of the way from 65504 to 65536.
    ups = sum(round_value(65519.0, sf.FP16, sf.stochastic(5), r) == math.inf for r in range(32))
    assert ups == 15


def test_probabilities_of_the_variants():
    # Of four draws (two bits) so many round up: A floors 4 nu, B rounds it half up, C half to even.
    for nu, ups in (("11/16", {"A": 2, "B": 3, "C": 3}), ("3/8", {"B": 2, "C": 2}), ("1/8", {"B": 1, "C": 0})):
        for variant, count in ups.items():
            x, mode = 1 + Fraction(nu) / 2**10, sf.stochastic(2, variant)
            assert sum(round_value(x, sf.FP16, mode, r) > 1 for r in range(4)) == count, (variant, nu)


@pytest.mark.parametrize("tininess", TININESS)
def test_tiny_results_are_flushed_to_a_zero_of_their_sign(tininess):
    format = sf.Format(5, 2, subnormals=False, tininess=tininess)
    after = tininess == "after_rounding"
    smallest = 2.0**-14
    # Of two bits below the smallest normal number 7/8 of it is the last one; from 15/16 on numbers round up to it.
    assert round_value(smallest * 0.95, format, NEAREST_EVEN) == (smallest if after else 0.0)
    assert round_value(smallest * 0.93, format, NEAREST_EVEN) == 0.0
    assert round_value(smallest * 0.88, format, UP) == (smallest if after else 0.0)
    assert round_value(smallest * 0.86, format, UP) == 0.0
    assert round_value(smallest * 1.01, format, TOWARD_ZERO) == smallest
    assert math.copysign(1, round_value(-smallest / 2, format, NEAREST_EVEN)) == -1
    single = sf.Format(8, 23, subnormals=False, tininess=tininess)
    assert round_value((1 - Fraction(1, 2**24)) * Fraction(2) ** -126, single, NEAREST_EVEN) == 0.0
    tie = (1 - Fraction(1, 2**25)) * Fraction(2) ** -126
    assert round_value(tie, single, NEAREST_EVEN) == (2.0**-126 if after else 0.0)


def test_unsigned_formats_have_no_negative_numbers():
    assert math.isnan(round_value(-1.0, sf.Format(5, 2, signed=False), NEAREST_EVEN))
    assert round_value(-1e-9, sf.Format(5, 2, signed=False), NEAREST_EVEN) == 0.0
    with pytest.raises(ValueError, match="has no NaN"):
        round_value(-1.0, sf.Format(3, 2, special="finite", signed=False), NEAREST_EVEN)


def test_floor_log2_is_exact_at_powers_of_two():
    for e in (-1100, -3, 0, 5, 1100):
        power = Fraction(2) ** e
        assert floor_log2(power) == e
        assert floor_log2(power * (1 - Fraction(1, 2**200))) == e - 1
