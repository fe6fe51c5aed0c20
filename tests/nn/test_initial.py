"""Initial values: the random streams of layers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


def test_two_layers_never_start_alike():
    with ThreadPoolExecutor(8) as pool:
        layers = list(pool.map(lambda _: sf.nn.Linear(4, 4), range(64)))
    rows = np.concatenate([layer.weight.data.reshape(-1) for layer in layers])
    assert len(set(rows.tolist())) == rows.size
    a, b = sf.nn.MLP([3, 2]), sf.nn.MLP([3, 2])
    assert (a.head.weight.data != b.head.weight.data).all()


def test_seed_restarts_the_generator_that_layers_share():
    sf.nn.seed(7)
    first = [sf.nn.Linear(3, 2), sf.nn.MLP([3, 2, 1])]
    sf.nn.seed(7)
    again = [sf.nn.Linear(3, 2), sf.nn.MLP([3, 2, 1])]
    for a, b in zip(first, again, strict=True):
        for path, array in a.state_dict().items():
            assert_bits(array, b.state_dict()[path])
    sf.nn.seed(8)
    assert (sf.nn.Linear(3, 2).weight.data != first[0].weight.data).all()
    assert_bits(sf.nn.Linear(3, 2, rng=7).weight.data, first[0].weight.data)


@pytest.mark.parametrize("call, message", [
    (lambda: sf.nn.seed(-1), "The seed of initial values must be an integer of at least 0, got -1"),
    (lambda: sf.nn.seed(0.5), "must be an integer of at least 0, got 0.5"),
    (lambda: sf.nn.Linear(2, 2, rng="1"), "a NumPy generator or a seed, an integer from 0; got '1'"),
    (lambda: sf.nn.Linear(0, 3), "in_features must be a positive integer, got 0"),
    (lambda: sf.nn.Linear(3, -1), "out_features must be a positive integer, got -1"),
    (lambda: sf.nn.Linear(2.0, 3), "in_features must be a positive integer, got 2.0"),
    (lambda: sf.nn.Sequential(sf.nn.Linear(2, 2), abs), "Sequential takes modules, got a builtin.* at 1"),
])  # fmt: skip
def test_bad_sizes_and_seeds_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
