"""torch.utils.checkpoint: a part of the forward pass that runs again has the bits of its first run."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import simfloat as sf

POLICIES = {
    "fp8-delayed": sf.policies["fp8-delayed"],
    "stochastic": sf.Policy(compute=sf.BF16, weights=sf.FP32, rounding=sf.stochastic(8)),
    "two roles": sf.Policy(compute=sf.FP32, activation_gradients=sf.BF16, weight_gradients=sf.E5M2),
}


class Model(nn.Module):
    """Two blocks, whose activation is one module, so that draws at its place are made several times in a pass."""

    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        tanh, self.reentrant = nn.Tanh(), reentrant
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), tanh, nn.Dropout(0.25), nn.Linear(4, 4), tanh) for _ in range(2)
        )
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


def trained(policy, reentrant, steps=2, observer=None):
    model = Model(reentrant)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = sf.torch.simulate(model, policy, 3, observer)
    found = []
    with run:
        for _ in range(steps):
            optimizer.zero_grad()
            x = torch.linspace(-1, 1, 20).reshape(5, 4).requires_grad_()
            model(x).square().sum().backward()
            optimizer.step()
            found += [x.grad, *(p.grad.clone() for p in model.parameters())]
    return found, run.state


@pytest.mark.parametrize("name", POLICIES)
def test_recomputation_sees_the_draws_and_the_scales_of_the_first_pass(name):
    expected, state = trained(POLICIES[name], None)
    for reentrant in (True, False):
        found, theirs = trained(POLICIES[name], reentrant)
        assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
        assert theirs == state, "what follows draws as if nothing had run twice"


def test_what_runs_again_is_counted_once():
    plain = sf.Recorder()
    trained(POLICIES["stochastic"], None, observer=plain)
    for reentrant in (True, False):
        checkpointed = sf.Recorder()
        trained(POLICIES["stochastic"], reentrant, observer=checkpointed)
        assert checkpointed.counts() == plain.counts()
        assert str(checkpointed.table()) == str(plain.table())


def test_checkpoints_outside_of_a_block_are_pytorchs_own():
    before = vars(torch.utils.checkpoint.CheckpointFunction)["forward"]
    trained("fp32", True, 1)
    assert vars(torch.utils.checkpoint.CheckpointFunction)["forward"] is before
    model, x = Model(True), torch.ones(2, 4, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None
