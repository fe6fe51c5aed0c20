"""A rounding mode is a row of its definition and a row of the kernels; all else follows."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.rounding import MODES, Mode, Rounding
from simfloat.kernels.grid import AWAY, Away
from simfloat.selftest.orders import dot
from simfloat.selftest.reference import operate
from tests.bits import adversarial, assert_bits


def test_every_mode_has_both_rows():
    assert set(MODES) == {"nearest_even", *AWAY}
    assert all(Rounding(mode) == getattr(sf, mode) for mode in MODES)


@pytest.fixture
def away_from_zero(monkeypatch):
    monkeypatch.setitem(MODES, "away_from_zero", Mode(lambda rest, odd, negative: rest > 0))
    monkeypatch.setitem(AWAY, "away_from_zero", Away(0.0, 0.0))
    return Rounding("away_from_zero")


def test_two_rows_make_a_mode(away_from_zero, rng):
    for format in (sf.FP16, sf.E4M3, sf.E2M1, sf.p3109(8, 1), sf.Format(11, 20), sf.Format(11, 2, bias=1073)):
        x = adversarial(format, rng)
        want = [operate("add", format, away_from_zero, v, -0.0) for v in x.tolist()]
        assert_bits(sf.round(x, format, away_from_zero), want, x)
    a, b = (sf.round(rng.standard_normal(20), sf.FP16) for _ in range(2))
    assert_bits(
        sf.multiply(a, b, sf.BF16, away_from_zero),
        [operate("multiply", sf.BF16, away_from_zero, *pair) for pair in zip(a.tolist(), b.tolist(), strict=True)],
    )
    for accumulator in (sf.sequential(sf.BF16, rounding=away_from_zero), sf.kahan(sf.FP16, rounding=away_from_zero)):
        assert_bits(sf.dot(a, b, accumulate=accumulator), dot(accumulator, a.tolist(), b.tolist()))


def test_zero_sums_and_overflow_follow_the_mode():
    assert [mode for mode in MODES if getattr(sf, mode).zero_sum < 0] == ["toward_negative"]
    assert np.signbit(sf.subtract(1.0, 1.0, sf.FP16, sf.toward_negative))
    for mode in MODES:
        rounding = getattr(sf, mode)
        for sign in (1.0, -1.0):
            stops = abs(sf.round(sign * 1e9, sf.FP16, rounding)) == sf.FP16.max
            assert stops == rounding.stops(negative=sign < 0)
            assert rounding.saturating().stops(negative=sign < 0)
