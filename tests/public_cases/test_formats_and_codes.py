"""What others have reported about the ends of formats, about codes and about flags."""

import numpy as np
import pytest

import simfloat as sf


def test_e4m3_beyond_its_range_is_nan_or_its_largest_number_as_the_mode_says(ml_dtypes):
    """Some libraries return NaN from 465 on, others 448. https://github.com/jax-ml/ml_dtypes/issues/400"""
    x = np.float32([448, 455.5, 464, 464.0625, 470, 5e4, -464.5])
    theirs = x.astype(ml_dtypes.float8_e4m3fn).astype(float)
    assert np.array_equal(sf.round(x, sf.E4M3), theirs, equal_nan=True) and np.isnan(theirs).sum() == 4
    assert sf.round(x, sf.E4M3, sf.nearest_even.saturating()).tolist() == [448.0] * 6 + [-448.0]


@pytest.mark.parametrize(
    ("mode", "due"),
    [
        (sf.nearest_even, [1, 8, 8, 1, 2, 8]),
        (sf.toward_positive, [2, 16, 8, 2, 2, 8]),
        (sf.toward_zero, [1, 8, 8, 1, 1, 4]),
    ],
    ids=["nearest", "up", "down"],
)
def test_a_scale_is_rounded_to_a_power_of_two_in_the_mode_that_is_asked_for(mode, due):
    """Libraries round E8M0 to nearest, up or down, and few let one choose. https://github.com/jax-ml/ml_dtypes/issues/298"""
    assert sf.round([1.0625, 9, 8, 1.25, 1.75, 7.9], sf.E8M0, mode).tolist() == due


@pytest.mark.parametrize(("format", "precision", "emin"), [(sf.FP16, 11, -14), (sf.FP32, 24, -126)], ids=str)
def test_underflow_is_flagged_where_the_unbounded_result_is_tiny(format, precision, emin):
    """The smallest normal number times 1 - u came without underflow. https://github.com/openhwgroup/cvfpu/issues/94

    With an exponent without bounds 2^emin (1 - u) is a number, below the smallest normal one: tiny, and inexact on the
    grid of subnormal numbers.
    """
    result, flags = sf.multiply(2.0**emin, 1 - 2.0**-precision, format, flags=True)
    assert (result, flags) == (2.0**emin, 2 | 1)
    result, flags = sf.multiply(2.0**emin, 1 + 2.0 ** (1 - precision), format, flags=True)
    assert (result, flags) == (2.0**emin * (1 + 2.0 ** (1 - precision)), 0)
