"""The error that each part of a policy causes in the gradient of a PyTorch model."""

import numpy as np
import pytest
import torch
from torch import nn

import simfloat as sf
from tests.torch.compared import Perceptron, twins

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(4, 7)), RNG.normal(size=(4, 3))
BATCH = torch.from_numpy(X), torch.from_numpy(Y)


def loss(z, y):
    return (z * z * y).mean()


def test_a_perceptron_has_the_tables_and_the_comparison_of_our_own():
    theirs, ours = twins(Perceptron, 7, 6, 3)
    for policy in ("bf16-stochastic", "fp8-hopper"):
        table, own = sf.attribute(theirs, loss, BATCH, policy), sf.attribute(ours, loss, (X, Y), policy)
        assert table.total == own.total and set(table.costs) == set(own.costs)
    policies = ["bf16-standard", "fp8-hybrid"]
    assert sf.compare(theirs, loss, BATCH, policies) == sf.compare(ours, loss, (X, Y), policies)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.drop = nn.Embedding(9, 8), nn.LayerNorm(8), nn.Dropout(0.3)
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 9, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        x = self.norm(self.drop(self.table(tokens)))
        return self.head(nn.functional.hardswish(self.attention(x, x, x)[0])).flatten(0, 1)


def test_composites_dropout_and_tied_weights_are_measured_and_the_model_does_not_change():
    torch.manual_seed(0)
    model, tokens = Generator(), torch.arange(8).reshape(2, 4)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    given = model, nn.functional.cross_entropy, (tokens, tokens.flatten()), "bf16-standard"
    table = sf.attribute(*given, by=["layer", "operation"])
    found = {(cost.operation, cost.layer) for cost in table.costs}
    assert {("linear", "head"), ("hardswish", "(model)"), ("exp", "attention"), ("layer_norm", "norm")} <= found
    assert all(0 <= cost.error < 1 for cost in table.costs)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())
    assert all(p.grad is None for p in model.parameters())
    assert sf.attribute(*given, by=["layer"]).total == table.total


def test_a_loss_without_a_gradient_what_is_no_model_and_numpy_data_are_refused_with_what_to_pass():
    model, _ = twins(Perceptron, 7, 6, 3)
    arrays = r"must contain tensors, got a NumPy array of shape \(4, .*torch.as_tensor"
    for given, message in (
        ((model, lambda z, y: z, BATCH, "fp32"), "one element and a gradient"),
        ((3, loss, BATCH, "fp32"), r"simfloat\.nn\.Module or a torch\.nn\.Module, got a int"),
        ((model, loss, BATCH, "fp23"), "Unknown policy"),
        ((model, loss, (X, BATCH[1]), "fp32"), arrays),
        ((model, loss, (BATCH[0], {"target": [Y]}), "fp32"), arrays),
        (
            (model, loss, ([1.0], BATCH[1]), "fp32"),
            r"Perceptron cannot be called with these arguments \(list\): .* as tensors",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            sf.attribute(*given)
