"""Casts round the operands of sums to a format, and observers receive the events."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


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
    """Casts that change nothing are counted, too; the ones that a sum multiplies by are nobody's operand."""
    a, b, x = np.array([[1000.0, 1.0]]), np.array([[1e-4], [1.0]]), np.ones((3, 4), np.float32)
    for call, counts in (
        (lambda observer: sf.matmul(a, b, inputs=sf.E2M3, accumulate=sf.FP32, observer=observer), (5, 1, 1)),
        (lambda observer: sf.matmul(a, b, accumulate=sf.FP32, observer=observer), (1, 0, 0)),
        (lambda observer: sf.matmul(x, x.T, inputs=sf.FP32, accumulate=sf.FP32, observer=observer), (24 + 9, 0, 0)),
        (lambda observer: sf.sum(x, accumulate=sf.FP32, inputs=sf.FP16, observer=observer), (12 + 1, 0, 0)),
    ):
        call(recorder := sf.Recorder())
        assert tuple(recorder.counts()[name] for name in ("total", "overflow", "underflow")) == counts


def test_a_value_that_a_cast_clamps_is_summed_as_the_largest_number():
    clamped = sf.nearest_even.saturating()
    for x in (np.float32([np.inf]), np.array([np.inf])):
        assert sf.dot(x, np.ones_like(x), inputs=sf.cast(sf.FP32, clamped), accumulate=sf.FP32) == sf.FP32.max
    # 4 = 2^2 becomes 2^-969 (2 - 2^-10), far below what was asked for, or infinite: a carrier must hold either.
    format = sf.Format(5, 10, bias=1000, special="p3109_finite")
    orders = sf.sequential(sf.FP16, sf.to_odd), sf.pairwise(sf.FP16, rounding=sf.to_odd), sf.exact
    modes = sf.toward_zero, sf.to_odd, sf.toward_negative, sf.toward_positive, clamped
    for mode, accumulate in product(modes, orders):
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
