"""The error that each part of a policy causes in the gradient of a PyTorch model."""

import numpy as np
import pytest
import torch
from torch import nn

import simfloat as sf
from tests.torch.perceptrons import Ours, Theirs

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(4, 7)), RNG.normal(size=(4, 3))


def loss(z, y):
    return (z * z * y).mean()


@pytest.mark.parametrize("policy", ["fp8-hybrid", "bf16-stochastic", "fp8-hopper"])
def test_a_perceptron_has_the_table_of_our_own(policy):
    model = Theirs(7, 6, 3)
    theirs = sf.attribute(model, loss, (torch.from_numpy(X), torch.from_numpy(Y)), policy)
    ours = sf.attribute(Ours(model), loss, (X, Y), policy)
    assert theirs.total == ours.total
    assert set(theirs.costs) == set(ours.costs)


def test_composites_dropout_and_tied_weights_are_measured_and_the_model_does_not_change():
    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.norm, self.drop = nn.Embedding(9, 8), nn.LayerNorm(8), nn.Dropout(0.3)
            self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 9, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens):
            x = self.norm(self.drop(self.table(tokens)))
            return self.head(nn.functional.hardswish(self.attention(x, x, x)[0])).flatten(0, 1)

    torch.manual_seed(0)
    model, tokens = Generator(), torch.arange(8).reshape(2, 4)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    table = sf.attribute(model, nn.functional.cross_entropy, (tokens, tokens.flatten()), "bf16-standard")
    found = {(cost.operation, cost.layer) for cost in table.costs}
    assert {("linear", "head"), ("hardswish", "(model)"), ("exp", "attention"), ("layer_norm", "norm")} <= found
    assert all(0 <= cost.error < 1 for cost in table.costs)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())
    assert all(p.grad is None for p in model.parameters())
    by_layer = sf.attribute(
        model, nn.functional.cross_entropy, (tokens, tokens.flatten()), "bf16-standard", by=["layer"]
    )
    assert by_layer.total == table.total


def test_a_loss_without_a_gradient_and_what_is_no_model_are_refused():
    batch = torch.from_numpy(X), torch.from_numpy(Y)
    with pytest.raises(ValueError, match="one element and a gradient"):
        sf.attribute(Theirs(7, 6, 3), lambda z, y: z, batch, "fp32")
    with pytest.raises(ValueError, match=r"simfloat\.nn\.Module or a torch\.nn\.Module, got a int"):
        sf.attribute(3, loss, batch, "fp32")
    with pytest.raises(ValueError, match="Unknown policy"):
        sf.attribute(Theirs(7, 6, 3), loss, batch, "fp23")


def test_numpy_data_for_a_model_of_torch_is_refused_with_what_to_pass():
    for batch in ((X, torch.from_numpy(Y)), (torch.from_numpy(X), {"target": [Y]})):
        with pytest.raises(
            ValueError, match=r"must contain tensors, got a NumPy array of shape \(4, .*torch.as_tensor"
        ):
            sf.attribute(Theirs(7, 6, 3), loss, batch, "fp32")
    with pytest.raises(ValueError, match=r"Theirs cannot be called with these arguments \(list\): .* as tensors"):
        sf.attribute(Theirs(7, 6, 3), loss, ([1.0], torch.from_numpy(Y)), "fp32")


def test_policies_are_compared_on_a_perceptron_as_on_our_own():
    model, policies = Theirs(7, 6, 3), ["bf16-standard", "fp8-hybrid"]
    theirs = sf.compare(model, loss, (torch.from_numpy(X), torch.from_numpy(Y)), policies)
    assert theirs == sf.compare(Ours(model), loss, (X, Y), policies)
