"""A rounding mode is a row with its definition; all its other facts follow."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.machines import GPU
from simfloat.formats.definition import round_value
from simfloat.formats.rounding import ABOVE_HALF, HALF, MODES, NEVER, ModeRule, Rounding
from simfloat.kernels.gpu import instructions
from simfloat.kernels.lanes.operations import LANE_OPERATIONS
from simfloat.kernels.units.aligned import ALIGNMENTS
from simfloat.sums.bounds import format_bounds
from simfloat.sums.operands import OperandBounds, Problem
from simfloat.sums.sequential import hardware_kind
from simfloat.tools.selftest.definitions import operate
from simfloat.tools.selftest.orders import dot
from tests.bits import adversarial, assert_bits

#: Modes that the library does not have: other choices, choices that depend on which number is odd, and other results
#: beyond the largest number and of x - x than IEEE 754 has for a choice.
NEW = {
    "away_from_zero": ModeRule(lambda rest, odd, negative: rest > 0, zero_sum=-1.0),
    "nearest_odd": ModeRule(lambda rest, odd, negative: rest > HALF or (rest == HALF and not odd)),
    "nearest_inside": ModeRule(MODES["nearest_even"].away, stops=(True, True)),
    "nearest_away_below": ModeRule(MODES["nearest_away"].away, stops=(True, False), zero_sum=-1.0),
    "to_even": ModeRule(lambda rest, odd, negative: rest > 0 and odd),
    "zero_or_beyond": ModeRule(MODES["toward_zero"].away),
}

#: From which part of a spacing on they choose the number farther from zero, next to even ones and to odd ones.
PARTS = {
    "nearest_even": (ABOVE_HALF, ABOVE_HALF, 0.5, 0.5),
    "toward_positive": (0.0, NEVER, 0.0, NEVER),
    "to_odd": (0.0, 0.0, NEVER, NEVER),
    "nearest_up": (0.5, ABOVE_HALF, 0.5, ABOVE_HALF),
    "nearest_down": (ABOVE_HALF, 0.5, ABOVE_HALF, 0.5),
    "nearest_odd": (0.5, 0.5, ABOVE_HALF, ABOVE_HALF),
}


@pytest.fixture(params=NEW)
def new_mode(request, monkeypatch):
    monkeypatch.setitem(MODES, request.param, NEW[request.param])
    return Rounding(request.param)


def test_a_choice_that_kernels_cannot_make_is_refused(monkeypatch):
    always = "^A mode must choose the neighbour farther from zero always"
    for away, message in (
        (lambda rest, odd, negative: rest > 0.2, always),
        (lambda rest, odd, negative: rest < HALF, always),
        (lambda rest, odd, negative: rest > 0 and odd and negative,
         "^Odd numbers must matter alike above and below zero; in strange they do not"),
    ):  # fmt: skip
        monkeypatch.setitem(MODES, "strange", ModeRule(away))
        with pytest.raises(ValueError, match=message):
            sf.round(1.25, sf.FP16, "strange")


def test_a_row_makes_a_mode(new_mode, rng):
    formats = (sf.FP16, sf.E4M3, sf.E2M1, sf.p3109(8, 1), sf.Format(11, 20), sf.Format(11, 2, bias=1073), sf.BF16)
    for format in (*formats, sf.Format(8, 3, subnormals=False)):
        x = adversarial(format, rng)
        with np.errstate(over="ignore"):
            single = x.astype(np.float32)
        for numbers in (x, single):
            want = [round_value(v, format, new_mode) for v in numbers.tolist()]
            assert_bits(sf.round(numbers, format, new_mode), want, numbers)
    a, b = (sf.round(rng.standard_normal(20), sf.FP16) for _ in range(2))
    b[:3] = -a[0], 0.0, -0.0
    a[1:3] = -0.0, 0.0
    for operation, kind in product(("add", "multiply"), (np.float64, np.float32)):
        assert_bits(
            getattr(sf, operation)(a.astype(kind), b.astype(kind), sf.BF16, new_mode),
            [operate(operation, sf.BF16, new_mode, *pair) for pair in zip(a.tolist(), b.tolist(), strict=True)],
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


def test_the_facts_of_a_mode_follow_from_its_row(monkeypatch):
    assert all(Rounding(mode) == getattr(sf, mode) for mode in MODES)
    monkeypatch.setattr("simfloat.formats.rounding.MODES", MODES | NEW)
    for mode in (*MODES, *NEW):
        rounding = Rounding(mode)
        assert rounding.is_to_nearest == mode.startswith("nearest")
        assert rounding.is_toward_zero == (mode in ("toward_zero", "zero_or_beyond"))
        assert rounding.aligns == (rounding.steps in ALIGNMENTS)
        assert not rounding.saturating().aligns
    for mode, parts in PARTS.items():
        assert Rounding(mode).away == parts
        assert Rounding(mode).reads_odd == (parts[:2] != parts[2:])
    for rounding in (sf.stochastic(), sf.stochastic(8, "A").saturating()):
        assert not (rounding.is_to_nearest or rounding.is_toward_zero or rounding.aligns or rounding.instruction)


def test_modes_have_steps_on_lanes_and_on_a_gpu_except_three_rules_for_ties():
    without_steps = [name for name, rule in MODES.items() if not rule.steps]
    assert without_steps == ["nearest_toward_zero", "nearest_up", "nearest_down"]
    steps = {rule.steps for rule in MODES.values()} - {""}
    assert steps == {*LANE_OPERATIONS, "downward"} - {"plain"}
    assert {f"{prefix}_{name}" for prefix in ("cut", "lifted") for name in steps} == set(instructions.STEPS)


def test_ties_stay_ties_where_float32_has_subnormal_spacings():
    # Half a spacing of BF16 below 2^-118 is subnormal in float32, and so is the next number above it.
    a, b = np.array([[1 + 2.0**-7, 2.0**-8], [1 + 2.0**-7, 2.0**-8 + 2.0**-16]]), np.array([[2.0**-63], [2.0**-63]])
    for format, exponent in ((sf.BF16, -62), (sf.BF16, -55), (sf.Format(8, 9, bias=121), -56)):
        for mode in MODES:
            accumulate = sf.sequential(format, getattr(sf, mode))
            for sign in (1.0, -1.0):
                left = sign * a * 2.0**exponent
                expected = [[dot(accumulate, row, b[:, 0].tolist())] for row in left.tolist()]
                assert_bits(sf.matmul(left.astype(np.float32), b.astype(np.float32), accumulate=accumulate), expected)


def test_a_mode_that_has_no_steps_of_a_gpu_is_rounded_as_on_a_processor(new_mode):
    known = OperandBounds(format_bounds(sf.E4M3), sf.E4M3, True)
    for format in (sf.FP32, sf.BF16, sf.TF32, sf.FP16, sf.E5M2):
        assert hardware_kind(Problem(known, known, 9, format, device=GPU), new_mode, format) is None
