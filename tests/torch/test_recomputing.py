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
    run, results = sf.torch.simulate(model, policy, 3, observer), []
    with run:
        for _ in range(steps):
            optimizer.zero_grad()
            x = torch.linspace(-1, 1, 20).reshape(5, 4).requires_grad_()
            model(x).square().sum().backward()
            optimizer.step()
            results += [x.grad, *(p.grad.clone() for p in model.parameters())]
    return results, run.state


@pytest.mark.parametrize("name", POLICIES)
def test_recomputation_sees_the_draws_and_the_scales_of_the_first_pass_and_is_counted_once(name):
    plain = sf.Recorder()
    expected, state = trained(POLICIES[name], None, observer=plain)
    for reentrant in (True, False):
        found, theirs = trained(POLICIES[name], reentrant, observer=(recorder := sf.Recorder()))
        assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
        assert theirs == state, "what follows draws as if nothing had run twice"
        assert recorder.counts() == plain.counts() and str(recorder.table()) == str(plain.table())


def test_checkpoints_outside_of_a_block_are_pytorchs_own():
    before = vars(torch.utils.checkpoint.CheckpointFunction)["forward"]
    trained("fp32", True, 1)
    assert vars(torch.utils.checkpoint.CheckpointFunction)["forward"] is before
    model, x = Model(True), torch.ones(2, 4, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None


class Parts(nn.Module):
    """What runs again next to a layer: a part within a part, and a recurrent layer."""

    def __init__(self, part):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.weight = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4))
        self.cells, self.part = nn.LSTM(4, 4, batch_first=True), part

    def run(self, part, x):
        return part(x) if self.reentrant is None else checkpoint(part, x, use_reentrant=self.reentrant)

    def forward(self, x, reentrant):
        self.reentrant = reentrant
        return self.run(lambda x: self.part(self, x), x)


def inner_slope(m, x):
    """A backward pass inside of what runs again."""
    with torch.enable_grad():
        inner = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((m.layer(inner) ** 2).sum(), inner)
    return x * slope


PARTS = {
    "layer first": (lambda m, x: m.layer(x) @ m.weight, "fp8-delayed"),
    "layer last": (lambda m, x: m.layer(x @ m.weight), "fp8-delayed"),
    "data made in it": (lambda m, x: torch.full((2, 3), 1.37) @ x, "fp8-delayed"),
    "a part within": (lambda m, x: m.cells(m.run(lambda x: torch.tanh(m.layer(x)), x) * 1.5)[0], "amp-bf16"),
    "a scaled part within": (lambda m, x: m.cells(m.run(lambda x: torch.tanh(m.layer(x)), x) * 1.5)[0], "fp8-delayed"),
    "a backward pass": (inner_slope, POLICIES["two roles"]),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_runs_again_next_to_the_layers_of_a_part_is_where_it_was_and_is_counted_once(name):
    part, policy = PARTS[name]
    results = []
    for reentrant in (None, False) if name == "a backward pass" else (None, False, True):
        model, recorder = Parts(part), sf.Recorder()
        x = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()
        with sf.torch.simulate(model, policy, observer=recorder) as run:
            for scale in (1.0, 3.0):
                model(x * scale, reentrant).square().sum().backward()
        gradients = [x.grad, *(p.grad for p in model.parameters())]
        results.append(([g for g in gradients if g is not None], recorder.table(), run.state))
    for other in results[1:]:
        assert all(map(torch.equal, results[0][0], other[0])) and len(results[0][0]) == len(other[0])
        assert str(other[1]) == str(results[0][1])
        if "casts" in other[2]:
            assert sorted(map(str, other[2]["casts"])) == sorted(map(str, results[0][2]["casts"]))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputation_under_another_policy_is_refused(reentrant):
    model, x = Model(reentrant), torch.ones(2, 4, requires_grad=True)
    with sf.torch.simulate(model, "bf16-standard") as run:
        loss = model(x).sum()
        run.policy = "fp32"
        with pytest.raises(ValueError, match="but the policy has changed since the forward pass"):
            loss.backward()
        model(x).sum().backward()
