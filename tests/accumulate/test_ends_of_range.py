"""Compare sequential sums far below the smallest normal number and beyond the largest with the definition."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest.checks import hard_operands
from tests.accumulate.definition import MODES, check
from tests.bits import assert_bits

FORMATS = [sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.E4M3FNUZ, sf.Format(8, 15), sf.Format(4, 6, bias=-20)]


def test_sums_at_the_ends_of_the_range_follow_the_definition(rng):
    modes = [MODES[sf.kahan][place] for place in (0, 1, -1)]
    for place, (format, rounding, end) in enumerate(product(FORMATS, modes, ("large", "small"))):
        exponent = (format.emin - format.mantissa_bits if end == "small" else format.emax) // 2
        inputs = (sf.FP32, sf.BF16)[place % 4 // 2]
        scaled = (np.ldexp(x, exponent) for x in hard_operands(rng, inputs, 2, 20, 2))
        a, b = (sf.round(x, inputs, sf.nearest_even.saturating()) for x in scaled)
        for products in (None, format, sf.FP16):
            check(sf.sequential(format, rounding=rounding, products=products), a, b)


def test_terms_below_half_the_smallest_number_add_up_to_zero():
    assert sf.sum(np.full(8, 2.0**-26), accumulate=sf.FP16) == 0


def test_products_below_half_the_smallest_number_of_their_format_are_zero():
    assert sf.dot([2.0**-47], [0.3125], accumulate=sf.sequential(sf.Format(9, 10), products=sf.FP16)) == 0


def test_infinite_products_clamp_where_the_largest_number_is_no_float32():
    format = sf.Format(8, 8, special="finite")
    accumulate = sf.sequential(format, products=sf.FP16)
    assert sf.dot([2.0**20, -(2.0**20)], [1.0, 1.0], accumulate=accumulate) == -format.max


@pytest.mark.parametrize(
    "format", [sf.Format(8, 1, bias=26), sf.Format(8, 7, bias=226), sf.Format(5, 4, bias=160)], ids=str
)
def test_sums_that_a_bias_takes_beyond_float32_are_those_of_the_format(format):
    # Operands are float32 numbers; their products, the sums and what they start from are not.
    far = 2.0 ** (80 if format.emax > 160 else -80)
    orders = [order(format, rounding=mode) for order in MODES for mode in MODES[order]]
    orders += [sf.sequential(format, rounding=mode, products=format) for mode in MODES[sf.kahan]]
    orders += [sf.blocked(2, steps, steps) for steps in orders[:3]]
    for accumulate, dtype in product(orders, (np.float64, np.float32)):
        x = np.full((8, 1), far, dtype)
        squares = sf.matmul(x, x.T, accumulate=accumulate, stream=sf.BitStream(3))
        assert_bits(squares, np.full((8, 8), far * far))
        if accumulate.takes_initial:
            start = sf.matmul(0 * x, 0 * x.T, accumulate=accumulate, initial=far * far, stream=sf.BitStream(3))
            assert_bits(start, np.full((8, 8), far * far))
