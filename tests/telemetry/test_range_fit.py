"""The share of a histogram of exponents that a format keeps."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.telemetry.advice import Binades, RangeCounts, count_in_range, format_binades


@pytest.mark.parametrize("format, binades", [
    (sf.FP16, (-24, -14, 15)), (sf.E4M3, (-9, -6, 8)), (sf.E8M0, (-127, -127, 127)),
    (sf.FP64, (-1074, -1022, 1023)), (sf.Format(5, 10, subnormals=False), (-14, -14, 15)),
], ids=str)  # fmt: skip
def test_the_binades_of_a_format_begin_at_its_smallest_number(format, binades):
    assert format_binades(format) == Binades(*binades)


def test_zeros_are_neither_kept_nor_lost():
    histogram = {-25: 1, -24: 2, 0: 4, 15: 8, 16: 16, "zero": 1000}
    assert count_in_range(histogram, format_binades(sf.FP16)) == RangeCounts(below=1, within=14, beyond=16)
    assert count_in_range({"zero": 3}, format_binades(sf.FP16)).share == 1
    counted = {np.int64(key) if key != "zero" else key: number for key, number in histogram.items()}
    assert count_in_range(counted, format_binades(sf.FP16)) == count_in_range(histogram, format_binades(sf.FP16)), (
        "NumPy's integers are exponents too"
    )


@pytest.mark.parametrize("k", [-20, 0, 3, 15])
def test_a_scale_keeps_what_rounding_the_scaled_values_keeps(k, rng):
    # Significands of 1 lie on no border within their binade: rounding agrees with the histogram exactly.
    x = 2.0 ** rng.integers(-60, 30, 4000)
    recorder = sf.Recorder()
    sf.round(x, sf.FP64, observer=recorder)
    y = sf.round(x * 2.0**k, sf.FP16)
    within = int((np.isfinite(y) & (y != 0)).sum())
    assert count_in_range(recorder.histogram(), format_binades(sf.FP16).shift(k)).within == within
