"""Loss scaling: states, copies and printed text."""

import copy
import json
import pickle

import numpy as np
import pytest

import simfloat as sf
from tests.optim.scalers import parameters, scales


@pytest.mark.parametrize("make", [
    lambda: sf.optim.StaticLossScale(1024.0),
    lambda: sf.optim.DynamicLossScale(growth_interval=3, hysteresis=2),
    sf.optim.LogNormalLossScale,
])  # fmt: skip
def test_a_state_goes_through_json_and_continues_with_the_same_scales(make):
    largest = [np.inf, 1.5, 0.0, 3.0, 7.0, np.inf, np.inf, 2.0] * 3
    whole, first, second = make(), make(), make()
    expected = scales(whole, largest)
    assert scales(first, largest[:11]) == expected[:11]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert scales(second, largest[11:]) == expected[11:]


def test_a_state_of_numpys_numbers_becomes_one_of_pythons():
    scaler = sf.optim.LogNormalLossScale()
    scales(scaler, [3.0, 5.0])
    other = sf.optim.LogNormalLossScale()
    other.load_state_dict({name: np.array(value)[()] for name, value in scaler.state_dict().items()})
    assert json.dumps(other.state_dict()) == json.dumps(scaler.state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda parts: pickle.loads(pickle.dumps(parts))])
def test_copies_of_a_scaler_in_the_middle_of_a_step_know_what_was_found(copied):
    scaler, optimizer = sf.optim.DynamicLossScale(8.0), sf.optim.SGD(parameters([1.0], [2.0]), lr=1.0)
    with sf.simulate("fp32"):
        for parameter, g in zip(optimizer.params, ([8.0], [np.inf]), strict=True):
            parameter.grad = np.float32(g)
        scaler.unscale_(optimizer)
        scaler, optimizer = copied((scaler, optimizer))
        assert optimizer.params[0].grad == 1 and scaler.is_skipping(optimizer)
        with pytest.raises(ValueError, match="unscale_ was already called for this optimizer since the last update"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.params[0].data == 1 and scaler.get_scale() == 4


def test_a_state_that_does_not_fit_is_refused_and_nothing_of_it_taken():
    scaler = sf.optim.DynamicLossScale()
    before = scaler.state_dict()
    for state, message in [
        (sf.optim.StaticLossScale(2.0).state_dict(), "The state is not DynamicLossScale's: missing .'growth_factor'"),
        ({**before, "speed": 1}, r"unknown \['speed'\]"),
        ({**before, "scale": 8.0, "_growth_tracker": -1}, "_growth_tracker must be an integer of at least 0, got -1"),
        ({**before, "scale": np.nan}, "init_scale must be a finite number"),
        ([], "takes a result of DynamicLossScale.state_dict, got a list"),
    ]:
        with pytest.raises(ValueError, match=message):
            scaler.load_state_dict(state)
        assert scaler.state_dict() == before


@pytest.mark.parametrize("text", [
    "StaticLossScale(8.0)", "DynamicLossScale(65536.0)", "DynamicLossScale(4.0, growth_interval=3, hysteresis=2)",
    "LogNormalLossScale()", "LogNormalLossScale(overflow=65536.0)", "LayerwiseLossScale(1.0, max_factor=4.0)",
])  # fmt: skip
def test_a_scaler_prints_as_the_call_that_makes_it(text):
    assert repr(eval(f"sf.optim.{text}")) == text


class WithMine(sf.optim.DynamicLossScale):
    """A subclass with an entry of its own, which passes the initial scale on by position."""

    state_names = {**sf.optim.DynamicLossScale.state_names, "mine": False}

    def __init__(self, scale=4.0, *, mine=3, **options):
        super().__init__(scale, **options)
        self.mine = mine


def test_entries_of_a_subclass_are_loaded():
    loaded = WithMine()
    loaded.load_state_dict(WithMine(8.0, mine=7, growth_interval=5).state_dict())
    assert (loaded.get_scale(), loaded.mine, loaded.growth_interval) == (8.0, 7, 5)
