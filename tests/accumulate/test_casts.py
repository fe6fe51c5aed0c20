"""Casts round the operands of sums to a format, and observers receive the events."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


def test_inputs_may_be_casts(rng):
    a, b = rng.standard_normal((5, 30)) * 300, rng.standard_normal((30, 4)) * 300
    saturating = sf.cast(sf.E4M3, sf.nearest_even.saturating())
    got = sf.matmul(a, b, inputs=(saturating, sf.E5M2), accumulate=sf.FP32)
    left, right = sf.round(a, sf.E4M3, sf.nearest_even.saturating()), sf.round(b, sf.E5M2)
    assert_bits(got, sf.matmul(left, right, accumulate=sf.FP32))
    assert_bits(sf.matmul(a, b, inputs=sf.cast(sf.FP16), accumulate=sf.FP32),
                sf.matmul(a, b, inputs="fp16", accumulate=sf.FP32))  # fmt: skip


def test_a_saturating_cast_clamps_infinities():
    assert sf.dot([np.inf], [1.0], inputs=sf.cast(sf.FP32, CLAMPED), accumulate=sf.FP32) == sf.FP32.max
    x = np.float32([np.inf])
    assert sf.dot(x, np.float32([1]), inputs=sf.cast(sf.FP32, CLAMPED), accumulate=sf.FP32) == sf.FP32.max


CLAMPED = sf.nearest_even.saturating()


def test_stochastic_casts_of_both_operands_draw_bits_of_their_own(rng):
    x = np.full((40, 50), 1.0 + 2.0**-11)
    cast = sf.cast(sf.FP16, sf.stochastic())
    stream = sf.BitStream(1)
    got = sf.matmul(x, np.eye(50), inputs=(cast, sf.FP16), accumulate=sf.FP32, stream=stream)
    assert stream.calls == 1
    other = sf.matmul(np.eye(40), x, inputs=(sf.FP16, cast), accumulate=sf.FP32, stream=sf.BitStream(1))
    assert set(np.unique(got)) == set(np.unique(other)) == {1.0, 1.0 + 2.0**-10}
    assert (got != other).mean() > 0.4
    again = sf.matmul(x, np.eye(50), inputs=(cast, sf.FP16), accumulate=sf.FP32, stream=sf.BitStream(1))
    assert_bits(got, again)
    with pytest.raises(ValueError, match="pass stream="):
        sf.matmul(x, np.eye(50), inputs=cast, accumulate=sf.FP32)


def test_the_losses_of_operands_are_observed():
    recorder = sf.Recorder()
    a, b = np.array([[1000.0, 1.0]]), np.array([[1e-4], [1.0]])
    sf.matmul(a, b, inputs=sf.E2M3, accumulate=sf.FP32, observer=recorder)
    counts = recorder.counts()
    assert (counts["total"], counts["overflow"], counts["underflow"]) == (5, 1, 1)
    quiet = sf.Recorder()
    sf.matmul(a, b, accumulate=sf.FP32, observer=quiet)
    assert quiet.counts()["total"] == 1


def test_a_cast_that_changes_nothing_is_counted():
    recorder = sf.Recorder()
    x = np.ones((3, 4), np.float32)
    sf.matmul(x, x.T, inputs=sf.FP32, accumulate=sf.FP32, observer=recorder)
    assert recorder.counts()["total"] == 24 + 9 - 0
    summed = sf.Recorder()
    sf.sum(x, accumulate=sf.FP32, inputs=sf.FP16, observer=summed)
    assert summed.counts()["total"] == 12 + 1, "the ones that a sum multiplies by are nobody's operand"


@pytest.mark.parametrize(
    "mode", [sf.toward_zero, sf.to_odd, sf.toward_negative, sf.toward_positive, sf.nearest_even.saturating()], ids=str
)
def test_a_value_that_a_cast_clamps_is_summed_as_the_largest_number(mode):
    # 4 = 2^2 becomes 2^-969 (2 - 2^-10), far below what was asked for, or infinite: a carrier must hold either.
    format = sf.Format(5, 10, bias=1000, special="p3109_finite")
    for accumulate in (sf.sequential(sf.FP16, sf.to_odd), sf.pairwise(sf.FP16, rounding=sf.to_odd), sf.exact):
        x = sf.round([4.0, -4.0, 4.0], format, mode)
        want = sf.dot(x, [1.0, 0.5, 3.0], accumulate=accumulate, output=sf.FP32)
        assert want == (2.0**-24 if accumulate != sf.exact else 0.0)
        got = sf.dot([4.0, -4.0, 4.0], [1.0, 0.5, 3.0], inputs=(sf.cast(format, mode), sf.FP16),
                     accumulate=accumulate, output=sf.FP32)  # fmt: skip
        assert_bits(got, want)


def test_negative_operands_are_nan_in_a_format_without_a_sign():
    unsigned = sf.Format(5, 2, signed=False)
    for accumulate in (sf.FP32, sf.exact, sf.tensor_core("hopper", sf.E5M2), sf.matrix_core("cdna3", sf.FP16)):
        got = sf.dot([-1.0, 2.0], [1.0, 1.0], inputs=(unsigned, sf.FP16), accumulate=accumulate, output=sf.BF16)
        assert np.isnan(got), accumulate
