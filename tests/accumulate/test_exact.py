"""Compare exact sums with fractions."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.bits import DETERMINISTIC, assert_bits
from tests.reference import draws


def check(a, b, output, rounding=sf.nearest_even):
    got = sf.matmul(a, b, accumulate=sf.exact, output=output, rounding=rounding, stream=sf.BitStream(5))
    count = a.shape[0] * b.shape[1]
    random = draws(count, rounding, 5) if rounding.is_stochastic else [0] * count
    totals = [sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)) for row in a for column in b.T]
    want = [round_value(total, output, rounding, r) for total, r in zip(totals, random, strict=True)]
    assert_bits(got.ravel(), want)


@pytest.mark.parametrize("spread", [0, 10, 40, 150, 400])
@pytest.mark.parametrize("inputs", [sf.FP16, sf.BF16, sf.FP32, None], ids=str)
def test_exact_sums_are_rounded_once(inputs, spread, rng):
    a, b = rng.standard_normal((3, 70)), rng.standard_normal((70, 4))
    a *= 2.0 ** rng.integers(-spread, spread + 1, a.shape)
    # Cancellation: the second half undoes the first but for a little.
    a[:, 35:], b[35:] = -a[:, :35], b[:35]
    a[0, 35] *= 1 + 2.0**-10
    a[1, 36] = 0.0
    if inputs is not None:
        a, b = (sf.round(x, inputs, sf.nearest_even.saturating()) for x in (a, b))
    for output in (sf.BF16, sf.FP32, sf.Format(11, 49), sf.FP64):
        check(a, b, output)
    for rounding in DETERMINISTIC[1:]:
        check(a, b, sf.FP16, rounding)
    check(a, b, sf.FP16, sf.stochastic())


def test_many_terms(rng):
    a, b = rng.standard_normal((1, 5000)), rng.standard_normal((5000, 2)) * 2.0 ** rng.integers(-60, 60, (5000, 2))
    check(a, b, sf.FP32)


def test_specials_and_zeros():
    inf, nan = np.inf, np.nan
    wide = 2.0**-60  # makes several grids necessary
    for tiny in (0.0, wide):
        a = np.array([[inf, 1, tiny], [inf, -inf, tiny], [nan, 1, tiny], [1, -1, 0], [-0.0, -0.0, -0.0]])
        b = np.ones((3, 1)) * (1 + (2.0**-52 if tiny else 0))
        got = sf.matmul(a, b, accumulate=sf.exact, output=sf.FP32, rounding=sf.toward_negative)
        assert_bits(got.ravel(), [inf, nan, nan, 0.0, 0.0])


def test_output_is_required():
    with pytest.raises(ValueError, match="pass output="):
        sf.sum([1.0], accumulate=sf.exact)


def test_products_may_leave_the_range_of_float64():
    tiny, huge = [2.0**-600, 2.0**-600], [2.0**-600, -(2.0**-600)]
    assert sf.dot(tiny, huge, accumulate=sf.exact, output=sf.FP32) == 0
    assert sf.dot([2.0**600, 1.0], [2.0**600, 1.0], accumulate=sf.exact, output=sf.FP64) == np.inf
    x, y = [2.0**600, 3.0, -(2.0**600)], [2.0**600, 0.25, 2.0**600]
    assert sf.dot(x, y, accumulate=sf.exact, output=sf.FP16) == 0.75


def test_operations_that_cannot_be_exact_are_refused():
    x = [1.0, 2.0**-60]
    with pytest.raises(ValueError, match=r"use stochastic\(bits=26\) at most"):
        options = dict(output=sf.FP32, rounding=sf.stochastic(), stream=sf.BitStream(0))
        sf.dot(x, x, accumulate=sf.exact, **options)
    with pytest.raises(ValueError, match="precision 53, and the mode is stochastic"):
        sf.dot(x, x, accumulate=sf.exact, **options | dict(output=sf.FP64))
