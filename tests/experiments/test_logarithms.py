"""Logarithms of FP32 numbers are safe in FP16, as the page of claims proves."""

import numpy as np

import simfloat as sf

LEAST_NORMAL, HALF_ULP = 2.0**-14, 2.0**-11


def test_every_subnormal_logarithm_is_near_a_multiple_of_the_least_number_and_others_are_in_the_range():
    k = np.arange(1, 1025)
    near = np.concatenate([1 - k * 2.0**-24, 1 + k * 2.0**-23])
    logarithms = np.log(near)
    subnormal = np.abs(logarithms) < LEAST_NORMAL
    assert not subnormal[[1023, 2047]].any(), "further from 1, logarithms are normal numbers"
    steps = logarithms[subnormal] * 2.0**24
    assert (np.abs(steps - np.rint(steps)) < 2.0**-15 * np.abs(steps)).all()
    ends = np.log([2.0**-149, sf.FP32.max])
    assert -104 < ends[0] and ends[1] < 89 < sf.FP16.max
    rounded = sf.round(logarithms, sf.FP16)
    assert (np.abs(rounded / logarithms - 1) <= HALF_ULP).all()


def test_the_logarithm_of_a_result_that_underflowed_is_infinite():
    assert sf.log(sf.exp(-18.0, sf.FP16), sf.FP16) == -np.inf
