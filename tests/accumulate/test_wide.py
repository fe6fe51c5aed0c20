"""Sums with steps that are rounded to FP64 itself, for which round-to-odd has no spare bits."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest.orders import dot
from tests.bits import assert_bits
from tests.reference import matrix_product

CLAMPED = sf.nearest_even.saturating()


@pytest.mark.parametrize(
    "accumulate",
    [sf.sequential(sf.FP64, products=sf.FP16), sf.sequential(sf.FP16, products=sf.FP64),
     sf.sequential(sf.FP64, rounding=CLAMPED), sf.pairwise(sf.FP64, rounding=CLAMPED),
     sf.kahan(sf.FP64, rounding=CLAMPED), sf.sequential(sf.FP64, products=sf.FP64)],
    ids=str,
)  # fmt: skip
def test_steps_in_fp64_are_rounded_once(accumulate, rng):
    a, b = rng.standard_normal((3, 13)), rng.standard_normal((13, 4))
    a[1] *= 2.0**-1060
    a[2] *= 2.0 ** rng.integers(-500, 500, 13)
    b[:, 1] *= 2.0**1000
    got = sf.matmul(a, b, accumulate=accumulate, output=sf.FP64)
    assert_bits(got, matrix_product(a, b, lambda x, y, element: dot(accumulate, x, y)))


def test_a_clamped_fp64_sum_stays_at_the_largest_number():
    most = np.finfo(float).max
    assert sf.sum([most, most], accumulate=sf.sequential(sf.FP64, rounding=CLAMPED)) == most
    assert sf.sum([np.inf, 1.0], accumulate=sf.pairwise(sf.FP64, rounding=CLAMPED)) == most
