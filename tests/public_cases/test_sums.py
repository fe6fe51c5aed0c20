"""Reported bugs of other libraries in sums, means and running sums in 16 bits."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from tests.public_cases.oracle import BF16, FP16, rounded


def one_by_one(terms, format):
    """All running sums, each addition rounded."""
    total, sums = Fraction(0), []
    for term in terms:
        sums.append(rounded(total + Fraction(float(term)), format))
        total = Fraction(sums[-1])
    return sums


@pytest.mark.parametrize(("accumulate", "stays_at"), [(sf.FP16, 2048.0), (sf.BF16, 256.0)], ids=["FP16", "BF16"])
def test_a_count_of_ones_stops_at_two_to_the_precision(accumulate, stays_at):
    """The float16 sum of more than 2,048 ones was taken for a bug. https://github.com/numpy/numpy/issues/22208"""
    ones = np.ones(2600)
    assert sf.sum(ones, accumulate=accumulate) == stays_at == one_by_one(ones, FP16 if stays_at > 256 else BF16)[-1]
    assert sf.sum(ones, accumulate=sf.FP32) == 2600


def test_a_sum_overflows_fp16_only_beyond_65519():
    """The mean of many float16 numbers was infinite. https://github.com/numpy/numpy/issues/7930"""
    for count, due in ((65519, 65504.0), (65520, np.inf)):
        ones = np.ones(count, np.float16)
        with np.errstate(over="ignore"):
            theirs = ones.sum()
        assert sf.sum(ones, accumulate=sf.FP32, output=sf.FP16) == due == theirs
    assert sf.sum(ones, accumulate=sf.FP32) / 65520 == 1


def test_a_mean_of_two_numbers_is_of_their_rounded_sum():
    """(692 + 720) / 2 was 704 in BF16. https://github.com/pytorch/pytorch/issues/137035"""
    total = sf.add(700.0, 720.0, sf.BF16)
    assert total == 1424 == rounded(1420, BF16)
    assert sf.divide(total, 2.0, sf.BF16) == 712


def test_a_running_sum_in_bf16_drifts_and_one_in_fp32_does_not():
    """One device kept a cumulative sum in bfloat16, the other in float32. https://github.com/tensorflow/tensorflow/issues/115731"""
    x = sf.round(np.random.default_rng(3).standard_normal(700), sf.BF16)
    narrow = sf.partial_sums(x, np.ones(700), accumulate=sf.BF16)
    assert narrow.tolist() == one_by_one(x, BF16)
    wide = sf.round(sf.partial_sums(x, np.ones(700), accumulate=sf.FP32), sf.BF16)
    exact = np.cumsum(x.astype(float))
    assert np.abs(wide - exact).max() < 0.2 < 0.5 < np.abs(narrow - exact).max()
