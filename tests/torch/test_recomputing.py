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


def test_a_recomputation_is_counted_once():
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


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    "part",
    [lambda m, x: m.layer(x) @ m.weight, lambda m, x: m.layer(x @ m.weight), lambda m, x: torch.full((2, 3), 1.37) @ x],
    ids=["layer first", "layer last", "data made in it"],
)
def test_what_runs_again_next_to_the_layers_of_a_part_is_where_it_was(part, reentrant):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.weight = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.randn(4, 4))

        def forward(self, x, again):
            return checkpoint(part, self, x, use_reentrant=reentrant) if again else part(self, x)

    found = []
    for again in (False, True):
        model, x = Model(), torch.arange(12.0).reshape(3, 4).requires_grad_()
        with sf.torch.simulate(model, "fp8-delayed") as run:
            for scale in (1.0, 3.0):
                model(x * scale, again).square().sum().backward()
        found.append(([x.grad, *(p.grad for p in model.parameters())], run.state))
    for plain, repeated in zip(found[0][0], found[1][0], strict=True):
        assert plain is repeated is None or torch.equal(plain, repeated)
    assert sorted(map(str, found[0][1]["casts"])) == sorted(map(str, found[1][1]["casts"]))


class Nested(nn.Module):
    """A part within a part, and a recurrent layer, whose states a list of operations rounds."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.cells = nn.Linear(4, 4), nn.LSTM(4, 4, batch_first=True)

    def inner(self, x):
        return torch.tanh(self.layer(x))

    def forward(self, x, again):
        def run(part, x):
            return checkpoint(part, x, use_reentrant=again == "reentrant") if again else part(x)

        return run(lambda x: self.cells(run(self.inner, x) * 1.5)[0], x)


@pytest.mark.parametrize("policy", ["amp-bf16", "fp8-delayed"])
@pytest.mark.parametrize("again", ["reentrant", "by hooks"])
def test_a_part_within_a_part_runs_again_as_in_a_forward_pass(policy, again):
    found = []
    for times in (None, again):
        model, recorder = Nested(), sf.Recorder()
        x = torch.linspace(-2, 2, 24).reshape(2, 3, 4).requires_grad_()
        with sf.torch.simulate(model, policy, observer=recorder):
            model(x, times).square().sum().backward()
        found.append(([x.grad, *(p.grad for p in model.parameters())], str(recorder.table())))
    assert all(map(torch.equal, found[0][0], found[1][0]))
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputation_under_another_policy_is_refused(reentrant):
    model, x = Model(reentrant), torch.ones(2, 4, requires_grad=True)
    with sf.torch.simulate(model, "bf16-standard") as run:
        loss = model(x).sum()
        run.policy = "fp32"
        with pytest.raises(ValueError, match="but the policy has changed since the forward pass"):
            loss.backward()
        model(x).sum().backward()


def test_a_backward_pass_inside_of_what_runs_again_is_counted_once():
    def part(x):
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad((layer(inner) ** 2).sum(), inner)
        return x * slope

    layer, tables = nn.Linear(4, 4), []
    for again in (False, True):
        recorder, x = sf.Recorder(), torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        with sf.torch.simulate(layer, POLICIES["two roles"], observer=recorder):
            (checkpoint(part, x, use_reentrant=False) if again else part(x)).sum().backward()
        tables.append(str(recorder.table()))
    assert tables[0] == tables[1]
