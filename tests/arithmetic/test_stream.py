"""Streams: each stochastic call takes a number, and a stream can be written down and continued."""

import json

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

X = np.linspace(0.1, 1, 100)


def test_only_stochastic_calls_take_a_number():
    stream = sf.BitStream(4)
    sf.round(X, sf.FP16, stream=stream)
    assert stream.state == {"seed": 4, "calls": 0}
    first = sf.round(X, sf.FP16, sf.stochastic(), stream=stream)
    second = sf.round(X, sf.FP16, sf.stochastic(), stream=stream)
    assert stream.state["calls"] == 2
    assert (first != second).any()


def test_a_stream_continues_from_its_state():
    stream = sf.BitStream(2**64 - 1)
    sf.round(X, sf.FP16, sf.stochastic(), stream=stream)
    again = sf.BitStream.from_state(json.loads(json.dumps(stream.state)))
    assert repr(again) == repr(stream)
    want = sf.round(X, sf.FP16, sf.stochastic(), stream=stream)
    assert_bits(sf.round(X, sf.FP16, sf.stochastic(), stream=again), want)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "a"])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(ValueError, match="from 0 below 2"):
        sf.BitStream(seed)


@pytest.mark.parametrize("state", [{}, {"seed": 1}, {"seed": 1, "calls": 0, "x": 1}, [1, 2]])
def test_malformed_states_are_refused(state):
    with pytest.raises(ValueError, match="has the keys 'seed' and 'calls'"):
        sf.BitStream.from_state(state)
