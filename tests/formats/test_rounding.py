"""Rounding modes as values."""

import pickle

import pytest

import simfloat as sf
from tests.bits import DETERMINISTIC


@pytest.mark.parametrize("rounding", [*DETERMINISTIC, sf.stochastic(), sf.stochastic(8, "A")], ids=repr)
def test_repr_and_pickle_give_the_mode_back(rounding):
    for mode in (rounding, rounding.saturating()):
        assert eval(repr(mode), vars(sf)) == mode
        assert pickle.loads(pickle.dumps(mode)) == mode


def test_saturating_is_another_mode():
    assert sf.nearest_even.saturating() != sf.nearest_even
    assert sf.nearest_even.saturating().saturating() == sf.nearest_even.saturating()


def test_defaults_of_stochastic():
    assert sf.stochastic() == sf.stochastic(bits=32, variant="C")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: sf.stochastic(bits=0), "1 to 32 random bits, got bits=0"),
        (lambda: sf.stochastic(bits=33), "1 to 32 random bits, got bits=33"),
        (lambda: sf.stochastic(variant="D"), "variant must be 'A', 'B' or 'C'"),
        (lambda: sf.Rounding("upward"), "Unknown rounding mode 'upward'"),
        (lambda: sf.Rounding(["to_odd"]), "Unknown rounding mode \\['to_odd'\\]"),
        (lambda: sf.Rounding("to_odd", bits=3), "to_odd takes no random bits"),
        (lambda: sf.Rounding("to_odd", saturates="no"), "saturates must be True or False, got 'no'"),
    ],
)
def test_nonsense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
