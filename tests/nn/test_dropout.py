"""Dropout: the mask depends only on the seed, the place and the number of calls."""

from hashlib import blake2b

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.reference import draws

X = np.float32(np.arange(1, 13).reshape(3, 4))


class Net(sf.nn.Module):
    def __init__(self, extra=False):
        super().__init__()
        self.first = sf.nn.Dropout(0.5)
        self.second = sf.nn.Dropout(0.5)
        self.extra = sf.nn.Dropout(0.3) if extra else None

    def forward(self, x):
        x = self.first(x)
        x = x if self.extra is None else self.extra(x)
        return x, self.second(X)


def masks(model, policy="fp32", seed=0, runs=1, **options):
    with sf.simulate(policy, seed=seed, **options):
        return [[out.data != 0 for out in model(sf.Tensor(X))] for _ in range(runs)]


def test_the_mask_is_drawn_from_the_stream_of_dropout_at_the_layer():
    with sf.simulate("fp32", seed=5) as simulation:
        y = sf.nn.Sequential(sf.nn.Dropout(0.25))(sf.Tensor(X))
    [entry] = simulation.state["streams"]
    assert entry == {"path": "0", "phase": "forward", "operation": "dropout", "operand": None, "calls": 1}
    seed = int.from_bytes(blake2b(b'[5, "0", "forward", "dropout", null]', digest_size=8).digest(), "little")
    words = np.array(draws(12, sf.stochastic(32), seed)).reshape(3, 4)
    kept = words >= 2**30
    assert_bits(y.data, np.where(kept, sf.multiply(X, 1 / 0.75, sf.FP32), np.float32(0)))


def test_a_mask_depends_on_the_seed_and_the_place_alone():
    [[first, second]] = masks(Net())
    assert (first != second).any()
    [[same, also]] = masks(
        Net(extra=True), sf.Policy(compute=sf.BF16, rounding=sf.stochastic()), observer=sf.Recorder()
    )
    assert (same <= first).all() and (also == second).all(), "another layer, another policy, an observer"
    [[other, _]] = masks(Net(), seed=1)
    assert (other != first).any()
    runs = masks(Net(), runs=2)
    assert (runs[0][0] == first).all() and (runs[1][0] != first).any(), "every run draws anew"


def test_evaluation_and_a_probability_of_zero_change_nothing_and_one_drops_all():
    x = sf.Tensor(X)
    with sf.simulate("bf16-standard") as simulation:
        assert sf.nn.Dropout(0.5).eval()(x) is x and sf.nn.Dropout(0.0)(x) is x
        assert simulation.state["streams"] == []
        assert not sf.nn.Dropout(1.0)(x).data.any()


def test_gradients_pass_where_numbers_were_kept_and_the_share_is_the_probability():
    x = sf.Tensor(np.ones((200, 300)), requires_grad=True)
    with sf.simulate("bf16-standard"):
        y = sf.nn.Dropout(0.1)(x)
        y.backward(np.ones(y.shape))
    assert_bits(y.data, np.where(y.data != 0, sf.round(1 / 0.9, sf.BF16), 0.0))
    assert_bits(x.grad, y.data)
    assert abs((y.data == 0).mean() - 0.1) < 5 * np.sqrt(0.09 / 60000)


@pytest.mark.parametrize("p", [0.3, 1.0])
@pytest.mark.parametrize("policy, format", [("amp-bf16", sf.BF16), ("apex-o1", sf.FP16)])
def test_under_mixed_precision_a_dropout_keeps_the_format_of_its_input_and_so_does_its_gradient(policy, format, p):
    with sf.simulate(sf.Policy(compute=format)):
        x = sf.Tensor(X) * 1.0
    leaf = sf.Tensor(x, requires_grad=True)
    with sf.simulate(policy, seed=4):
        y = sf.nn.Dropout(p)(leaf)
        y.backward(sf.round(X[::-1], format))
    kept = y.data != 0
    assert y.format == format and (kept.any() or p == 1.0)
    assert_bits(y.data[kept], sf.multiply(x.data, 1 / (1 - p) if p < 1 else 0.0, format)[kept])
    assert_bits(leaf.grad, sf.round(leaf.grad, format))


@pytest.mark.parametrize("p", [-0.1, 1.5, np.nan, [0.5], "x"])
def test_an_invalid_probability_is_refused(p):
    with pytest.raises(ValueError, match="p (is a probability|must hold real numbers)"):
        sf.nn.Dropout(p)
