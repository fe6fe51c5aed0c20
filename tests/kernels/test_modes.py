"""A rounding mode is a row of its definition and a row of the kernels; all else follows."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.accumulate.bounds import numbers_of
from simfloat.accumulate.native_steps import own_kind
from simfloat.accumulate.operand_bounds import OperandBounds, Problem
from simfloat.arithmetic.machines import GPU
from simfloat.formats.rounding import HALF, MODES, ModeRule, Rounding
from simfloat.kernels import grid
from simfloat.kernels.grid import ABOVE_HALF, AWAY, Away
from simfloat.kernels.unit_steps import ALIGNMENTS
from simfloat.selftest.orders import dot
from simfloat.selftest.reference import operate
from tests.bits import adversarial, assert_bits


def test_every_mode_has_both_rows():
    assert set(MODES) == {"nearest_even", *AWAY}
    assert all(Rounding(mode) == getattr(sf, mode) for mode in MODES)


#: Modes that the library does not have, by the rows of their definition and of the kernels.
NEW = {
    "away_from_zero": (ModeRule(lambda rest, odd, negative: rest > 0), Away(0.0, 0.0)),
    "nearest_zero": (ModeRule(lambda rest, odd, negative: rest > HALF), Away(ABOVE_HALF, ABOVE_HALF)),
    "nearest_positive": (
        ModeRule(lambda rest, odd, negative: rest > HALF or (rest == HALF and not negative)),
        Away(grid.HALF, ABOVE_HALF),
    ),
}


@pytest.fixture(params=NEW)
def new_mode(request, monkeypatch):
    defined, kept = NEW[request.param]
    monkeypatch.setitem(MODES, request.param, defined)
    monkeypatch.setitem(AWAY, request.param, kept)
    return Rounding(request.param)


def test_two_rows_make_a_mode(new_mode, rng):
    for format in (sf.FP16, sf.E4M3, sf.E2M1, sf.p3109(8, 1), sf.Format(11, 20), sf.Format(11, 2, bias=1073)):
        x = adversarial(format, rng)
        want = [operate("add", format, new_mode, v, -0.0) for v in x.tolist()]
        assert_bits(sf.round(x, format, new_mode), want, x)
    a, b = (sf.round(rng.standard_normal(20), sf.FP16) for _ in range(2))
    assert_bits(
        sf.multiply(a, b, sf.BF16, new_mode),
        [operate("multiply", sf.BF16, new_mode, *pair) for pair in zip(a.tolist(), b.tolist(), strict=True)],
    )
    # Ties are common where sums of few bits are rounded to fewer.
    few = rng.integers(-7, 8, (2, 50)).astype(np.float64)
    for accumulator in (sf.sequential(sf.E4M3, rounding=new_mode), sf.kahan(sf.FP16, rounding=new_mode)):
        for x, y in ((a, b), few):
            assert_bits(sf.dot(x, y, accumulate=accumulator), dot(accumulator, x.tolist(), y.tolist()))
            narrow = sf.dot(x.astype(np.float32), y.astype(np.float32), accumulate=accumulator)
            assert_bits(narrow, dot(accumulator, x.tolist(), y.tolist()))


def test_zero_sums_and_overflow_follow_the_mode():
    assert [mode for mode in MODES if getattr(sf, mode).zero_sum < 0] == ["toward_negative"]
    assert np.signbit(sf.subtract(1.0, 1.0, sf.FP16, sf.toward_negative))
    for mode in MODES:
        rounding = getattr(sf, mode)
        for sign in (1.0, -1.0):
            stops = abs(sf.round(sign * 1e9, sf.FP16, rounding)) == sf.FP16.max
            assert stops == rounding.stops(negative=sign < 0)
            assert rounding.saturating().stops(negative=sign < 0)


@pytest.mark.parametrize("mode", [*MODES, *NEW])
def test_what_a_mode_does_follows_from_its_row(mode, monkeypatch):
    for name, (defined, _) in NEW.items():
        monkeypatch.setitem(MODES, name, defined)
    rounding = Rounding(mode)
    assert rounding.is_to_nearest == mode.startswith("nearest")
    assert rounding.is_toward_zero == (mode == "toward_zero")
    assert rounding.aligns == (mode in ALIGNMENTS)
    assert not rounding.saturating().aligns


def test_a_mode_that_has_no_steps_of_a_gpu_is_rounded_as_on_a_processor(new_mode):
    known = OperandBounds(numbers_of(sf.E4M3), sf.E4M3, True)
    for format in (sf.FP32, sf.BF16, sf.TF32, sf.FP16, sf.E5M2):
        assert own_kind(Problem(known, known, 9, format, machine=GPU), new_mode, format) is None


def test_no_stochastic_mode_is_to_nearest_or_aligns():
    for rounding in (sf.stochastic(), sf.stochastic(8, "A").saturating()):
        assert not (rounding.is_to_nearest or rounding.is_toward_zero or rounding.aligns or rounding.instruction)
