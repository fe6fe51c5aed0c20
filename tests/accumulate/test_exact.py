"""Compare exact sums with fractions."""

from itertools import product

import numpy as np

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.accumulate.definition import exact_sums
from tests.bits import DETERMINISTIC, assert_bits
from tests.checks import assert_refused
from tests.reference import draws


def check(a, b, output, rounding=sf.nearest_even):
    got = sf.matmul(a, b, accumulate=sf.exact, output=output, rounding=rounding, stream=sf.BitStream(5))
    random = draws(got.size, rounding, 5) if rounding.is_stochastic else [0] * got.size
    totals = (total for row in exact_sums(a, b) for total in row)
    assert_bits(got.ravel(), [round_value(total, output, rounding, r) for total, r in zip(totals, random, strict=True)])


def test_exact_sums_are_rounded_once(rng):
    for inputs, spread in product((sf.FP16, sf.BF16, sf.FP32, None), (0, 10, 40, 150, 400)):
        a, b = rng.standard_normal((2, 30)), rng.standard_normal((30, 3))
        a *= 2.0 ** rng.integers(-spread, spread + 1, a.shape)
        # Cancellation: the second half undoes the first but for a little.
        a[:, 15:], b[15:] = -a[:, :15], b[:15]
        a[0, 15] *= 1 + 2.0**-10
        a[1, 16] = 0.0
        if inputs is not None:
            a, b = (sf.round(x, inputs, sf.nearest_even.saturating()).astype(float) for x in (a, b))
        for output in (sf.BF16, sf.FP32, sf.Format(11, 49), sf.FP64):
            check(a, b, output)
        for rounding in (*DETERMINISTIC[1:], sf.stochastic()):
            check(a, b, sf.FP16, rounding)
    a = rng.standard_normal((1, 5000))
    check(a, rng.standard_normal((5000, 2)) * 2.0 ** rng.integers(-60, 60, (5000, 2)), sf.FP32)


def test_specials_and_zeros():
    inf, nan = np.inf, np.nan
    wide = 2.0**-60  # makes several grids necessary
    for tiny in (0.0, wide):
        a = np.array([[inf, 1, tiny], [inf, -inf, tiny], [nan, 1, tiny], [1, -1, 0], [-0.0, -0.0, -0.0]])
        b = np.ones((3, 1)) * (1 + (2.0**-52 if tiny else 0))
        got = sf.matmul(a, b, accumulate=sf.exact, output=sf.FP32, rounding=sf.toward_negative)
        assert_bits(got.ravel(), [inf, nan, nan, 0.0, 0.0])


def test_products_may_leave_the_range_of_float64():
    tiny, huge = [2.0**-600, 2.0**-600], [2.0**-600, -(2.0**-600)]
    assert sf.dot(tiny, huge, accumulate=sf.exact, output=sf.FP32) == 0
    assert sf.dot([2.0**600, 1.0], [2.0**600, 1.0], accumulate=sf.exact, output=sf.FP64) == np.inf
    x, y = [2.0**600, 3.0, -(2.0**600)], [2.0**600, 0.25, 2.0**600]
    assert sf.dot(x, y, accumulate=sf.exact, output=sf.FP16) == 0.75


def test_operations_that_cannot_be_exact_are_refused():
    options = dict(accumulate=sf.exact, rounding=sf.stochastic(), stream=sf.BitStream(0))
    assert_refused(
        (lambda: sf.sum([1.0], accumulate=sf.exact), "pass output="),
        (lambda: sf.sum([1.0, 2.0**-60], output=sf.FP32, **options), r"use stochastic\(bits=26\) at most"),
        (lambda: sf.sum([1.0, 2.0**-60], output=sf.FP64, **options), "precision 53, and the mode is stochastic"),
    )
