"""The width of accumulators: the bits for a given error, and policies."""

import math

import numpy as np
import pytest

import simfloat as sf
from experiments.accumulator_width.dots import accumulator, measure_dots, needed_bits
from experiments.accumulator_width.training import FP32, VARIANTS


def test_the_bits_that_an_error_needs_are_read_by_its_logarithm():
    bits, errors = np.array([2, 3, 4, 5]), np.array([0.8, 0.4, 0.1, 0.05])
    assert needed_bits(bits, errors, 0.4) == 3
    assert needed_bits(bits, errors, 0.2) == pytest.approx(3.5)
    assert needed_bits(bits, errors, 0.9) == 2 and math.isnan(needed_bits(bits, errors, 0.01))
    assert needed_bits(bits, np.array([0.8, 0.4, 0.0, 0.0]), 0.1) < 4, "an error of zero is small"


def test_more_bits_and_chunks_make_longer_sums_more_accurate():
    rows = measure_dots({"data": "uniform", "seed": 0, "tiny": True})
    errors = {(row["length"], row["bits"], row["chunk"]): row["error"] for row in rows if "length" in row}
    assert errors[256, 3, 0] > errors[256, 5, 0] > errors[256, 7, 0]
    assert errors[256, 4, 64] < errors[256, 4, 0] and errors[64, 4, 64] == errors[64, 4, 0]


def test_policies_differ_in_the_sums_of_contractions_alone():
    narrow = {variant.key: variant.policy for variant in VARIANTS}
    assert narrow["3"].accumulate == accumulator(3) == sf.sequential(sf.Format(8, 3))
    assert narrow["3 chunked"].accumulate == sf.blocked(16, sf.Format(8, 3), sf.Format(8, 3))
    assert {policy.reduce for policy in narrow.values()} == {FP32.policy.reduce}
