"""Initial values: torch's ranges, deviations and gains, and the random streams of layers."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

init = sf.nn.init
SHAPE = (60, 20, 3, 3)
FAN_IN, FAN_OUT = 180, 540


def parameter(shape=SHAPE):
    return sf.nn.Parameter(np.zeros(shape))


@pytest.mark.parametrize("fill, bound", [
    (lambda p: init.uniform_(p, -2.0, 2.0, rng=0), 2.0),
    (lambda p: init.xavier_uniform_(p, 1.5, rng=0), 1.5 * math.sqrt(6 / (FAN_IN + FAN_OUT))),
    (lambda p: init.kaiming_uniform_(p, rng=0), math.sqrt(6 / FAN_IN)),
    (lambda p: init.kaiming_uniform_(p, math.sqrt(5), rng=0), 1 / math.sqrt(FAN_IN)),
    (lambda p: init.kaiming_uniform_(p, 0, "fan_out", "tanh", rng=0), 5 / 3 * math.sqrt(3 / FAN_OUT)),
])  # fmt: skip
def test_uniform_values_fill_their_range(fill, bound):
    p = parameter()
    assert fill(p) is p
    # Of n uniform numbers the largest misses the bound by 1 / n of it on average, and by 10 / n once in e^10 times.
    assert bound * (1 - 20 / p.size) < np.abs(p.data).max() <= bound
    assert abs(p.data.mean()) < 5 * bound / math.sqrt(3 * p.size)


@pytest.mark.parametrize("fill, mean, std", [
    (lambda p: init.normal_(p, 3.0, 0.5, rng=0), 3.0, 0.5),
    (lambda p: init.xavier_normal_(p, 2.0, rng=0), 0.0, 2 * math.sqrt(2 / (FAN_IN + FAN_OUT))),
    (lambda p: init.kaiming_normal_(p, nonlinearity="relu", rng=0), 0.0, math.sqrt(2 / FAN_IN)),
    (lambda p: init.kaiming_normal_(p, 0.2, "fan_out", rng=0), 0.0, math.sqrt(2 / 1.04 / FAN_OUT)),
])  # fmt: skip
def test_normal_values_have_their_deviation(fill, mean, std):
    p = fill(parameter())
    # Five standard errors of a mean and of a standard deviation.
    assert abs(p.data.mean() - mean) < 5 * std / math.sqrt(p.size)
    assert abs(p.data.std() - std) < 5 * std / math.sqrt(2 * p.size)


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (6, 2, 2, 2), (4, 4)])
def test_orthogonal_rows_or_columns_are_orthonormal(shape):
    matrix = init.orthogonal_(parameter(shape), 2.0, rng=1).data.reshape(shape[0], -1)
    small = matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-13)


def test_constants_and_repeated_draws():
    assert_bits(init.constant_(parameter(), 0.5).data, np.full(SHAPE, 0.5))
    assert_bits(init.ones_(parameter()).data, np.ones(SHAPE))
    assert_bits(init.zeros_(init.ones_(parameter())).data, np.zeros(SHAPE))
    assert_bits(init.normal_(parameter(), rng=7).data, init.normal_(parameter(), rng=np.random.default_rng(7)).data)
    sf.nn.seed(3)
    first = init.normal_(parameter()).data
    assert (init.normal_(parameter()).data != first).any()
    sf.nn.seed(3)
    assert_bits(init.normal_(parameter()).data, first)


def test_gains_are_torchs():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    for name in (*init.GAINS, "leaky_relu"):
        assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


@pytest.mark.parametrize("call, message", [
    (lambda: init.uniform_(parameter(), 1.0, 0.0), "needs a <= b, the ends of the interval; got a=1.0, b=0.0"),
    (lambda: init.normal_(parameter(), 0.0, -1.0), "std must be a finite number from 0.0, got -1.0"),
    (lambda: init.constant_(parameter(), [1.0]), "val must be a finite number"),
    (lambda: init.kaiming_uniform_(parameter(), mode="fan"), "mode must be 'fan_in' or 'fan_out'"),
    (lambda: init.kaiming_uniform_(parameter(), nonlinearity="swish"), "Unknown nonlinearity 'swish'"),
    (lambda: init.xavier_uniform_(parameter((3,))), r"need weights \(outputs, inputs, ...\), got shape \(3,\)"),
    (lambda: init.orthogonal_(parameter((0, 3))), r"got shape \(0, 3\)"),
    (lambda: init.xavier_uniform_(parameter(), "wide"), "gain must hold real numbers"),
    (lambda: init.xavier_normal_(parameter(), np.nan), "gain must be a finite number, got nan"),
    (lambda: init.orthogonal_(parameter(), None), "gain must hold real numbers"),
    (lambda: init.kaiming_normal_(parameter(), a="x"), "param must hold real numbers"),
    (lambda: init.zeros_(np.zeros(3)), "fill a Parameter or a Tensor, got a ndarray"),
    (lambda: init.normal_(parameter(), rng="x"), "a NumPy generator or a seed"),
])  # fmt: skip
def test_bad_use_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


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
