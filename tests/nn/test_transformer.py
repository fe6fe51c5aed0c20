"""TransformerEncoderLayer."""

import numpy as np
import pytest

import simfloat as sf
from tests.nn.against_torch import compare

X = np.random.default_rng(6).standard_normal((4, 3, 6))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_equals_torchs(norm_first, activation, bias):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    options = dict(dim_feedforward=5, dropout=0.0, activation=activation, norm_first=norm_first, bias=bias)
    ours, theirs = sf.nn.TransformerEncoderLayer(6, 2, **options), torch.nn.TransformerEncoderLayer(6, 2, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    compare(ours, theirs, X)
    mask = np.triu(np.ones((4, 4), bool), 1)
    compare(ours, theirs, X, run=lambda layer, x: layer(x[0], src_mask=torch.tensor(mask)))


def test_a_causal_layer_has_the_mask_of_its_own():
    layer = sf.nn.TransformerEncoderLayer(6, 2, 5, dropout=0.0, batch_first=True)
    padding = np.zeros((4, 3), bool)
    padding[1, 2] = True
    with sf.simulate("bf16-standard"):
        causal = layer(X, is_causal=True, src_key_padding_mask=padding)
        masked = layer(X, src_mask=np.triu(np.ones((3, 3), bool), 1), src_key_padding_mask=padding)
    assert (causal.data == masked.data).all()


def test_four_places_of_a_layer_drop_numbers():
    layer = sf.nn.TransformerEncoderLayer(6, 2, 5, rng=0)
    with sf.simulate("fp32") as simulation:
        layer(X)
    assert {entry["path"] for entry in simulation.state["streams"]} == {"dropout", "dropout1", "dropout2", "self_attn"}
