"""Reported bugs of other libraries in the rounding of a number or of one operation."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from tests.public_cases.oracle import BF16, FP16, FP32, rounded


def test_ties_go_to_the_even_neighbour():
    """A quantizer rounded ties away from zero, unlike torch.half. https://github.com/Tiiiger/QPyTorch/issues/23"""
    ties = [(2 * n + 1) * 2.0**-11 for n in range(-1040, -1008)] + [(2 * n + 1) * 2.0**-11 for n in range(1024, 1056)]
    assert sf.round(ties, sf.FP16).tolist() == [rounded(x, FP16) for x in ties] == np.float16(ties).tolist()


@pytest.mark.parametrize(
    ("x", "due"),
    [(1.5 + 2.0**-8 + 2.0**-45, 1.5 + 2.0**-7), (2**24 + 2**16 + 1, 2**24 + 2**17), (-(3.0 + 2.0**-40), -3.0)],
)
def test_a_float64_or_an_integer_is_rounded_to_bf16_once(x, due):
    """Conversions went through float32, which made ties. https://github.com/jax-ml/ml_dtypes/pull/401"""
    assert sf.round(x, sf.BF16) == due == rounded(x, BF16)


def test_a_fused_multiply_add_in_fp16_is_rounded_once():
    """The reference of a test suite rounded to single first. https://github.com/KhronosGroup/OpenCL-CTS/pull/1882"""
    a, b, c = 1.361328125, 56.5625, 2988.0
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert rounded(rounded(exact, FP32), FP16) == 3064.0, "twice"
    assert sf.fma(a, b, c, sf.FP16) == 3066.0 == rounded(exact, FP16)


def test_half_of_all_draws_round_a_tie_up():
    """Random bits lay so low that FP32 nearly always went down. https://github.com/uxlfoundation/oneDNN/pull/2903"""
    for quarters in (1, 2, 3):
        x = np.full(256, 1 + quarters * 2.0**-9)
        up = sf.round(x, sf.BF16, sf.stochastic(bits=8), stream=sf.GivenBits(np.arange(256))) > 1
        assert up.sum() == 64 * quarters


@pytest.mark.parametrize(
    ("variant", "ups"), [("A", (0, 1, 2, 3)), ("B", (1, 2, 3, 4)), ("C", (0, 2, 2, 4))], ids=["A", "B", "C"]
)
def test_two_random_bits_round_up_as_often_as_the_variant_says(variant, ups):
    """Three ways to use few random bits have different biases. https://github.com/graphcore-research/gfloat/pull/36

    For v eighths of a step above a number, of the four draws those go up: A floor(v / 2), B v / 2 with halves up, C
    v / 2 with halves to even.
    """
    for eighths, due in zip((1, 3, 5, 7), ups, strict=True):
        x, mode = np.full(4, 1 + eighths * 2.0**-10), sf.stochastic(bits=2, variant=variant)
        assert (sf.round(x, sf.BF16, mode, stream=sf.GivenBits([0, 1, 2, 3])) > 1).sum() == due


def test_numbers_below_the_smallest_one_are_rounded_not_flushed():
    """Tiny numbers became 0 in every mode. https://github.com/higham/chop/pull/6"""
    least = 2.0**-24
    x = least * np.array([0.4, 0.5, 0.6, 1.5, -0.6])
    assert sf.round(x, sf.FP16).tolist() == [rounded(v, FP16) for v in x] == [0.0, 0.0, least, 2 * least, -least]
    assert sf.round(x, sf.FP16, sf.toward_positive).tolist() == [least, least, least, 2 * least, 0.0]
    assert sf.round(x, sf.FP16, sf.toward_negative).tolist() == [0.0, 0.0, 0.0, least, -least]


def test_the_sum_of_two_zeros_is_zero_in_any_format():
    """The sum of zeros of two formats was about 1e-12. https://github.com/apytypes/apytypes/issues/676"""
    a, b = [0.0, 0.0, -0.0, -0.0], [0.0, -0.0, 0.0, -0.0]
    for format in (sf.Format(9, 7), sf.Format(6, 5), sf.E4M3):
        for mode, negative in ((sf.nearest_even, [3]), (sf.toward_negative, [1, 2, 3])):
            found = sf.add(a, b, format, mode)
            assert (found == 0).all() and np.flatnonzero(np.signbit(found)).tolist() == negative


@pytest.mark.parametrize(("x", "due"), [
    (Decimal("1.00390625000000000001"), 1.0078125), ("2.0078125", 2.0), ("0x1.0100000000000001p+1", 2.015625),
    (2**70 + 2**62, 2.0**70), (2**70 + 2**62 + 1, 2.0**70 + 2.0**63), (Fraction(1, 3), 0.333984375),
], ids=repr)  # fmt: skip
def test_a_number_that_float64_lacks_is_rounded_once(x, due):
    """A conversion of decimal numbers went by way of float. https://github.com/dotnet/runtime/pull/98643"""
    assert sf.round(x, sf.BF16) == due
