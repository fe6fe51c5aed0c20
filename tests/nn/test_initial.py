"""Initial values: the random streams of layers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

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
