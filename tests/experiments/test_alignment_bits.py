"""The loss by 14 bits of alignment: parts of an error, and policies with different sums."""

from dataclasses import replace

import numpy as np

import simfloat as sf
from experiments.alignment_bits.jobs import FP32, HOPPER
from experiments.alignment_bits.sums import measure_sums, narrow


def test_numbers_are_scaled_by_a_power_of_two_so_that_the_greatest_fits():
    x = np.array([[1.0, -3.0, 0.3]])
    rounded, scale = narrow(x)
    assert scale == 128 and 224 < 3 * scale <= 448
    assert rounded.tolist() == [[1.0, -3.0, float(sf.round(0.3, sf.E4M3))]]


def test_sums_of_one_sign_lose_more_the_longer_they_are_and_operands_less():
    rows = measure_sums("one sign", 3, tiny=True)
    assert rows[-1]["sums"] > 10 * rows[0]["sums"] and rows[-1]["operands"] < rows[0]["operands"]


def test_policies_differ_in_their_sums_alone():
    assert replace(FP32.policy, accumulate=HOPPER.policy.accumulate) == HOPPER.policy != FP32.policy
