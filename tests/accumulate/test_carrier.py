"""The hardware type in which sums are computed can represent the operands, not only their products."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest.orders import dot
from tests.bits import assert_bits

FAR = [(2.0**200, 2.0**-200), (2.0**-160, 2.0**100), (448 * 2.0**120, 2.0**-120), (2.0**-1000, 2.0**999)]


@pytest.mark.parametrize("a, b", FAR)
@pytest.mark.parametrize(
    "accumulate",
    [*map(sf.sequential, (sf.FP16, sf.BF16, sf.FP32)), sf.pairwise(sf.BF16),
     sf.sequential(sf.BF16, rounding=sf.toward_negative),
     sf.sequential(sf.BF16, rounding=sf.to_odd), sf.sequential(sf.BF16, products=sf.BF16), sf.kahan(sf.FP16),
     sf.pairwise(sf.FP32), sf.blocked(2, sf.BF16, sf.FP32), sf.blocked(1, sf.blocked(1, sf.FP16, sf.FP16), sf.FP32)],
    ids=str,
)  # fmt: skip
def test_operands_may_lie_outside_float32_where_their_products_do_not(accumulate, a, b):
    for x, y in (([a, a], [b, -0.75 * b]), ([b, 1.0], [a, 1.0])):
        assert_bits(sf.dot(x, y, accumulate=accumulate), dot(accumulate, x, y))


def test_images_may_lie_outside_float32_where_their_products_do_not():
    x, w = np.full((1, 1, 2, 2), 2.0**200), np.full((1, 1, 2, 2), 2.0**-200)
    assert sf.conv2d(x, w, accumulate=sf.FP16) == 4


def test_scaled_blocks_may_lie_outside_float32_where_their_products_do_not():
    scales = np.full((1, 1), 2.0**120), np.full((1, 1), 2.0**-120)
    a, b = np.full((1, 32), 448.0), np.ones((32, 1))
    assert sf.matmul(a, b, scales=scales, accumulate=sf.FP16) == 14336
