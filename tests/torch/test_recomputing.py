"""torch.utils.checkpoint: a part of the forward pass that runs again has the bits of its first run."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import simfloat as sf

STOCHASTIC = sf.Policy(compute=sf.BF16, weights=sf.FP32, rounding=sf.stochastic(8))
TWO_ROLES = sf.Policy(compute=sf.FP32, activation_gradients=sf.BF16, weight_gradients=sf.E5M2)


class Model(nn.Module):
    """Two blocks with one activation, where draws are made several times in a pass; a layer, a weight, and an LSTM."""

    def __init__(self, program, reentrant):
        super().__init__()
        torch.manual_seed(0)
        tanh, self.program, self.reentrant = nn.Tanh(), program, reentrant
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), tanh, nn.Dropout(0.25), nn.Linear(4, 4), tanh) for _ in range(2)
        )
        self.layer, self.weight = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4))
        self.cells = nn.LSTM(4, 4, batch_first=True)

    def again(self, part, x):
        """A part that runs again in the backward pass, unless nothing does."""
        return part(x) if self.reentrant is None else checkpoint(part, x, use_reentrant=self.reentrant)

    def forward(self, x):
        return self.program(self, x)


def blocks(m, x):
    return m.layer(m.again(m.blocks[1], m.again(m.blocks[0], x)))


def part_within(m, x):
    return m.again(lambda x: m.cells(m.again(lambda x: torch.tanh(m.layer(x)), x) * 1.5)[0], x)


def inner_slope(m, x):
    """A backward pass inside of what runs again."""
    with torch.enable_grad():
        inner = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((m.layer(inner) ** 2).sum(), inner)
    return x * slope


def slope(m, x):
    """The gradient of a part that runs again, whose own gradients are wanted."""
    return torch.autograd.grad(m.layer(m.again(m.blocks[0], x)).tanh().sum(), x, create_graph=True)[0]


#: Programs, and a policy.
PROGRAMS = {
    "blocks with scales": (blocks, "fp8-delayed"),
    "blocks with draws": (blocks, STOCHASTIC),
    "blocks with two roles": (blocks, TWO_ROLES),
    "layer first": (lambda m, x: m.again(lambda x: m.layer(x) @ m.weight, x), "fp8-delayed"),
    "layer last": (lambda m, x: m.again(lambda x: m.layer(x @ m.weight), x), "fp8-delayed"),
    "data made in it": (lambda m, x: m.again(lambda x: torch.full((2, 3), 1.37) @ x, x), "fp8-delayed"),
    "a part within": (part_within, "amp-bf16"),
    "a scaled part within": (part_within, "fp8-delayed"),
    "a backward pass": (lambda m, x: m.again(lambda x: inner_slope(m, x), x), TWO_ROLES),
    "gradients of gradients": (slope, "fp8-hybrid"),
}
#: Programs that PyTorch does not run with use_reentrant=True.
NOT_REENTRANT = "a backward pass", "gradients of gradients"


def trained(program, policy, reentrant):
    """Gradients of two steps, the table of a recorder, and the state."""
    model, recorder, found = Model(program, reentrant), sf.Recorder(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sf.torch.simulate(model, policy, 3, recorder) as run:
        for scale in (1.0, 3.0):
            optimizer.zero_grad()
            x = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()
            model(x * scale).square().sum().backward()
            found += [None if leaf.grad is None else leaf.grad.tolist() for leaf in (x, *model.parameters())]
            optimizer.step()
    return found, str(recorder.table()), run.state


@pytest.mark.parametrize("name", PROGRAMS)
def test_recomputation_sees_the_draws_and_the_scales_of_the_first_pass_and_is_counted_once(name):
    program, policy = PROGRAMS[name]
    plain, counts, state = trained(program, policy, None)
    for reentrant in (False,) if name in NOT_REENTRANT else (False, True):
        found, same_counts, other = trained(program, policy, reentrant)
        assert found == plain and same_counts == counts
        assert sorted(map(str, other.get("casts", ()))) == sorted(map(str, state.get("casts", ())))
        assert program is not blocks or other == state, "what follows draws as if nothing had run twice"


def test_the_gradients_of_a_residual_connection_are_added_outside_of_a_reentrant_part():
    def residual(m, x):
        for block in m.blocks:
            x = x + m.again(block, x)
        return x

    for policy, is_same in (("bf16-standard", True), (STOCHASTIC, False)):
        plain, counts, _ = trained(residual, policy, None)
        assert trained(residual, policy, False)[:2] == (plain, counts)
        found, other_counts, _ = trained(residual, policy, True)
        assert (found == plain) is is_same and other_counts != counts


def test_checkpoints_outside_of_a_block_are_pytorchs_own():
    before = vars(torch.utils.checkpoint.CheckpointFunction)["forward"]
    trained(blocks, "fp32", True)
    assert vars(torch.utils.checkpoint.CheckpointFunction)["forward"] is before
    x = torch.ones(2, 4, requires_grad=True)
    Model(blocks, True)(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputation_under_another_policy_is_refused(reentrant):
    model, x = Model(blocks, reentrant), torch.ones(2, 4, requires_grad=True)
    with sf.torch.simulate(model, "bf16-standard") as run:
        loss = model(x).sum()
        run.policy = "fp32"
        with pytest.raises(ValueError, match="but the policy has changed since the forward pass"):
            loss.backward()
        model(x).sum().backward()
