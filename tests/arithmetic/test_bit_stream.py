"""Streams: each stochastic call has a number, and a stream can be saved and continued."""

import json

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.bits import assert_bits
from tests.checks import assert_refused
from tests.reference import operate

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


def test_given_bits_are_taken_one_an_element_in_c_order_zeros_and_nan_too():
    draws = sf.GivenBits([[0, 7, 7], [7, 0, 7]])
    x = np.array([[1 + 2.0**-11, 0.0, np.nan], [1 + 2.0**-11, 1 + 2.0**-11, 1.0]])
    got = sf.round(x.T.copy().T, sf.FP16, sf.stochastic(3), stream=draws)
    up = 1 + 2.0**-10
    assert_bits(got, [[1.0, 0.0, np.nan], [up, 1.0, 1.0]])


def test_given_bits_continue_where_the_last_call_stopped_and_deterministic_calls_take_none():
    draws, half = sf.GivenBits(np.array([0, 7, 0], np.int8)), [1 + 2.0**-11]
    sf.round(half, sf.FP16, stream=draws)
    results = [float(sf.round(half, sf.FP16, sf.stochastic(3), stream=draws)[0]) for _ in range(3)]
    assert results == [1.0, 1 + 2.0**-10, 1.0]


@pytest.mark.parametrize("variant", ["A", "B", "C"])
def test_given_bits_decide_as_the_definition_does(variant, rng):
    x, integers = rng.standard_normal(300), rng.integers(0, 2**5, 300)
    rounding = sf.stochastic(5, variant)
    want = [round_value(float(v), sf.E4M3, rounding, int(r)) for v, r in zip(x, integers, strict=True)]
    assert_bits(sf.round(x, sf.E4M3, rounding, stream=sf.GivenBits(integers)), want)
    sums = [operate("add", sf.E4M3, rounding, float(v), 0.3, random=int(r)) for v, r in zip(x, integers, strict=True)]
    assert_bits(sf.add(x, 0.3, sf.E4M3, rounding, stream=sf.GivenBits(integers)), sums)


def test_streams_and_draws_that_do_not_fit_are_refused():
    def use(draws, x=(1.0, 2.0)):
        return sf.round(x, sf.FP16, sf.stochastic(3), stream=sf.GivenBits(draws))

    drawing = dict(accumulate=sf.sequential("fp16", rounding=sf.stochastic(3)), stream=sf.GivenBits([1, 2]))
    full = sf.BitStream.from_state({"seed": 0, "calls": 2**44 - 2})
    sf.round([0.3], sf.E2M1, sf.stochastic(), stream=full)
    assert sf.BitStream.from_state(full.state).state == full.state
    assert_refused(
        (lambda: sf.round([0.3], sf.E2M1, sf.stochastic(), stream=full), "has served all its .* calls.*another seed"),
        (lambda: sf.GivenBits([0.5]), "takes an array of integers"),
        (lambda: sf.GivenBits([True]), "takes an array of integers"),
        (lambda: sf.GivenBits([]), "takes an array of integers"),
        (lambda: sf.GivenBits([[1], [2, 3]]), "takes an array of integers.*: row 1 has 2 elements, and row 0 has 1"),
        (lambda: sf.GivenBits([1, 10**5000]), "Draws are integers from 0 below"),
        (lambda: sf.GivenBits(np.ma.masked_array([1, 2], [0, 1])), "integers is a masked array"),
        (lambda: sf.GivenBits([1, -1]), "integers from 0 below 2\\^bits, bits being at most 32; got -1"),
        (lambda: sf.GivenBits([2**32]), "got 4294967296"),
        (lambda: use([8, 0]), "A draw of 3 bits lies below 8, got 8"),
        (lambda: use([1]), "A result of 2 elements takes 2 draws, and GivenBits has 1 of its 1 left"),
        (lambda: sf.sum([1, 2, 3], **drawing),
         "GivenBits has 2 of its 2 left; give it one integer for each element, or each rounding of a sum"),
        *((lambda seed=seed: sf.BitStream(seed), "from 0 below 2") for seed in (-1, 2**64, 1.5, "a")),
        *((lambda state=state: sf.BitStream.from_state(state), "has the keys 'seed' and 'calls'")
          for state in ({}, {"seed": 1}, {"seed": 1, "calls": 0, "x": 1}, [1, 2])),
        *((lambda calls=calls: sf.BitStream.from_state({"seed": 0, "calls": calls}), "number of calls")
          for calls in (-1, 1.5, True, 2**44, None)),
        *((lambda stream=stream: sf.round(1.0, sf.FP16, stream=stream),
           r"stream must be a simfloat.BitStream, for example simfloat.BitStream\(0\)")
          for stream in (0, np.random.default_rng(0), "0")),
    )  # fmt: skip
    assert repr(drawing["stream"]) == "GivenBits([1, 2])", "a refused call takes no draws"
