"""Compare pairwise and compensated sums with their definitions."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest.checks import hard_operands
from simfloat.tools.selftest.orders import dot
from tests.bits import DETERMINISTIC, assert_bits
from tests.reference import matrix_product

SUMS = ("pairwise", "kahan")


def check(name, a, b, format, rounding=sf.nearest_even, seed=3):
    accumulate = getattr(sf, name)(format, rounding=rounding)
    got = sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(seed))
    want = matrix_product(a, b, lambda x, y, element: dot(accumulate, x, y, element=element, seed=seed))
    assert_bits(got, want)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("inputs", [sf.FP16, sf.BF16, sf.E4M3, sf.FP32], ids=str)
@pytest.mark.parametrize("format", [sf.FP16, sf.BF16, sf.E4M3, sf.FP32, sf.E4M3FNUZ, sf.Format(8, 15)], ids=str)
def test_nearest_even_sums_follow_the_definition(name, format, inputs, rng):
    check(name, *hard_operands(rng, inputs, 3, 29, 4), format)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("terms", [0, 1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 33, 64])
def test_any_number_of_terms(name, terms, rng):
    a = sf.round(rng.standard_normal((2, terms)), sf.BF16)
    b = sf.round(rng.standard_normal((terms, 3)), sf.BF16)
    check(name, a, b, sf.BF16)
    check(name, a, b, sf.BF16, sf.stochastic())


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("rounding", [*DETERMINISTIC[1:], sf.nearest_even.saturating()], ids=repr)
@pytest.mark.parametrize("format", [sf.FP16, sf.FP32, sf.p3109(8, 3), sf.p3109(8, 1)], ids=str)
def test_other_modes_follow_the_definition(name, format, rounding, rng):
    check(name, *hard_operands(rng, sf.FP16, 2, 22, 3), format, rounding)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("rounding", [sf.stochastic(), sf.stochastic(4, "A")], ids=repr)
@pytest.mark.parametrize("format", [sf.FP16, sf.FP32, sf.Format(8, 20)], ids=str)
def test_stochastic_sums_follow_the_definition(name, format, rounding, rng):
    check(name, *hard_operands(rng, sf.FP16, 3, 21, 5), format, rounding)


@pytest.mark.parametrize("name", SUMS)
def test_operands_of_full_double_precision(name, rng):
    a, b = rng.standard_normal((2, 13)), rng.standard_normal((13, 3))
    a[0, :5] *= 2.0**-1060
    b[3] *= 2.0**900
    for format in (sf.FP16, sf.FP32, sf.FP64, sf.Format(11, 40)):
        check(name, a, b, format)
    check(name, a, b, sf.FP32, sf.toward_negative)
    check(name, a, b, sf.FP32, sf.stochastic(6))


@pytest.mark.parametrize("name", SUMS)
def test_specials_and_zeros_flow_through(name):
    inf, nan = np.inf, np.nan
    a = np.array([[inf, 1.0, -inf], [inf, 0.0, 1.0], [nan, 1.0, 1.0], [65504.0, 65504.0, -inf], [-0.0, -0.0, -0.0]])
    b = np.ones((3, 2))
    b[0, 1] = 0.0
    for format in (sf.FP16, sf.E4M3, sf.FP32):
        for rounding in (sf.nearest_even, sf.toward_negative):
            check(name, a, b, format, rounding)


def test_a_single_negative_zero_stays_one_in_a_pairwise_sum():
    assert np.signbit(sf.dot([-0.0], [1.0], accumulate=sf.pairwise(sf.FP16)))
    assert not np.signbit(sf.dot([-0.0], [1.0], accumulate=sf.kahan(sf.FP16)))


@pytest.mark.parametrize("accumulate", [sf.pairwise(sf.FP16), sf.kahan(sf.FP16)], ids=str)
def test_long_sums_do_not_stagnate(accumulate):
    assert sf.sum(np.ones(4096), accumulate=accumulate) == 4096
    assert sf.sum(np.ones(4096), accumulate=sf.FP16) == 2048


def test_repr_gives_the_accumulator_back():
    for accumulator in (sf.pairwise(sf.FP16), sf.kahan("bf16", rounding=sf.stochastic(8))):
        assert eval(repr(accumulator), vars(sf)) == accumulator
    assert str(sf.kahan(sf.FP16, rounding=sf.toward_zero)) == "kahan(FP16, rounding=toward_zero)"
