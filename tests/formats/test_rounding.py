"""Rounding modes as values."""

import pickle

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.rounding import as_rounding
from tests.bits import DETERMINISTIC, assert_bits
from tests.checks import assert_refused


@pytest.mark.parametrize("rounding", [*DETERMINISTIC, sf.stochastic(), sf.stochastic(8, "A")], ids=repr)
def test_repr_and_pickle_and_the_text_give_the_mode_back(rounding):
    assert rounding.saturating() != rounding and rounding.saturating().saturating() == rounding.saturating()
    for mode in (rounding, rounding.saturating(), rounding.overflowing()):
        assert eval(repr(mode), vars(sf)) == pickle.loads(pickle.dumps(mode)) == as_rounding(f" {mode!r} ") == mode
        assert as_rounding(mode) is mode


def test_nonsense_is_refused():
    assert_refused(
        (lambda: sf.stochastic(bits=0), "1 to 32 random bits, got bits=0"),
        (lambda: sf.stochastic(bits=33), "1 to 32 random bits, got bits=33"),
        (lambda: sf.stochastic(variant="D"), "variant must be 'A', 'B' or 'C'"),
        (lambda: sf.Rounding("upward"), "Unknown rounding mode 'upward'"),
        (lambda: sf.Rounding(["to_odd"]), "Unknown rounding mode \\['to_odd'\\]"),
        (lambda: sf.Rounding("to_odd", bits=3), "to_odd takes no random bits"),
        (lambda: sf.Rounding("to_odd", saturates="no"), "saturates must be True or False, got 'no'"),
        (lambda: sf.Rounding("to_odd", overflows=1), "overflows must be True or False, got 1"),
    )


def test_arguments_of_a_text_are_those_of_the_call():
    assert as_rounding("stochastic()") == as_rounding("stochastic") == sf.stochastic() == sf.stochastic(32, "C")
    assert as_rounding("stochastic.saturating()") == sf.stochastic().saturating()
    with pytest.raises(ValueError, match="stream"):
        sf.round(0.1, sf.FP16, "stochastic")
    assert as_rounding("stochastic(8)") == as_rounding("stochastic(bits=8)") == sf.stochastic(8)
    assert as_rounding("stochastic(5, 'B').saturating()") == sf.stochastic(5, "B").saturating()


def test_an_invalid_mode_is_refused():
    for text, message in [
        ("nearest", r"rounding must be .*, or its text, got 'nearest'\. Modes: .* Did you mean nearest_even\?"),
        ("toward_zero.saturating", "got 'toward_zero.saturating'"), ("sr", r"Did you mean stochastic\(bits=32\)\?"),
        ("stochastic(bits=99)", "1 to 32 random bits, got bits=99"),
        ("stochastic(bits='8')", "1 to 32 random bits, got bits='8'"),
        ("stochastic(__import__('os'))", "rounding must be"), ("stochastic(nonsense=1)", "rounding must be"),
        ("up; down", "rounding must be"), ("", "rounding must be"), ("\0", "rounding must be"),
        ("(" * 10_000, "rounding must be"), (None, "rounding must be"),
        (sf.stochastic, r"Did you mean stochastic\(bits=32\)\?"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            as_rounding(text)


@pytest.mark.parametrize(
    "mode, names",
    [("nearest_even", "nearest rne RTE half_even ROUND_HALF_EVEN round_half_even roundTiesToEven rint near_even"),
     ("nearest_away", "rna RMM half_up ROUND_HALF_UP roundTiesToAway near_maxMag round_half_away_from_zero"),
     ("nearest_toward_zero", "half_down ROUND_HALF_DOWN roundTiesTowardZero"),
     ("nearest_up", "half_ceiling ties_up"), ("nearest_down", "half_floor ties_down"),
     ("toward_zero", "truncate trunc rtz RZ chop FE_TOWARDZERO roundTowardZero round_to_zero minMag toward-zero"),
     ("toward_positive", "up ceil rup RU ROUND_CEILING FE_UPWARD roundTowardPositive"),
     ("toward_negative", "down floor rdn RD decimal.ROUND_FLOOR FE_DOWNWARD roundTowardNegative"),
     ("to_odd", "odd jamming von_neumann"),
     (r"stochastic\(bits=32\)", "sr random stochastic_rounding")],
)  # fmt: skip
def test_the_usual_name_of_a_mode_is_answered_with_that_mode(mode, names):
    for name in names.split():
        with pytest.raises(ValueError, match=rf"Did you mean {mode}\?$"):
            as_rounding(name)


def test_a_word_that_names_no_mode_is_answered_with_the_list_alone():
    for word in ("banana", "tapered", "round", "fp16"):
        with pytest.raises(ValueError, match=r"may be followed by \.saturating\(\) or \.overflowing\(\)\.$"):
            as_rounding(word)


def test_a_mode_may_be_given_as_text_wherever_a_format_may():
    x, ones = np.array([[0.1, 1e6]]), np.ones((1, 2))
    zero, drawn = sf.toward_zero.saturating(), sf.stochastic(8)
    assert_bits(sf.round(x, "fp16", "toward_zero.saturating()"), sf.round(x, sf.FP16, zero))
    for text, mode in (("toward_zero.saturating()", zero), ("stochastic(bits=8)", drawn)):
        for call in (
            lambda how, format: sf.add(x, 0.1, format, how, stream=sf.BitStream(1)),
            lambda how, format: sf.matmul(
                x, ones.T, accumulate="fp32", output=format, rounding=how, stream=sf.BitStream(1)
            ),
        ):
            assert_bits(call(text, "bf16"), call(mode, sf.BF16))
    for make in (sf.sequential, sf.pairwise, sf.kahan, sf.cast):
        assert make("fp16", rounding="toward_zero.saturating()") == make(sf.FP16, rounding=zero)
    assert_bits(
        sf.block_quantize(np.ones(32) / 3, "e2m1", rounding="toward_zero").values(),
        sf.block_quantize(np.ones(32) / 3, sf.E2M1, rounding=sf.toward_zero).values(),
    )
    policy = sf.Policy(compute="bf16", rounding="toward_zero.saturating()")
    assert policy == sf.Policy(compute=sf.BF16, rounding=zero) and sf.Policy.from_dict(policy.to_dict()) == policy
    assert policy.override("head", rounding="stochastic(8)") == policy.override("head", rounding=drawn)
    assert sf.Policy(compute="bf16", update="stochastic(bits=4)") == sf.Policy(compute="bf16", update=sf.stochastic(4))
