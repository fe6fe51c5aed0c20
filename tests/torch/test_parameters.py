"""Parameters are read as rounded to `weights`; stored values change only by a step or a write."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import simfloat as sf

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2))


def rounded(model, format):
    """The model, its parameters rounded."""
    for p in model.parameters():
        p.data = torch.from_numpy(sf.round(p.detach().numpy(), format))
    return model


def bits_of(model):
    return [p.detach().clone() for p in model.parameters()]


def loss_of(model, policy, training=True):
    with sf.torch.simulate(model, policy):
        z = model(X)
        loss = (z * z).mean()
        if training:
            loss.backward()
    return loss.detach(), [p.grad for p in model.parameters()]


@pytest.mark.parametrize("training", [True, False], ids=["training", "no_grad"])
def test_policies_can_be_compared_on_one_model_in_any_order(training):
    model, policies = model_of(), ("fp8-hybrid", "bf16-standard", "fp32")
    stored = bits_of(model)
    with torch.set_grad_enabled(training):
        there = [loss_of(model, policy, training)[0] for policy in policies]
        back = [loss_of(model, policy, training)[0] for policy in reversed(policies)]
    assert torch.equal(torch.stack(there), torch.stack(back[::-1])) and len(set(map(float, there))) == 3
    assert all(map(torch.equal, stored, bits_of(model)))


def test_rounded_copies_give_the_results_of_rounded_parameters():
    loss, gradients = loss_of(model_of(), "bf16-standard")
    expected, theirs = loss_of(rounded(model_of(), sf.BF16), "bf16-standard")
    assert torch.equal(loss, expected) and all(map(torch.equal, gradients, theirs))


def test_a_step_updates_what_was_used_and_stores_its_result():
    def stepped(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        with sf.torch.simulate(model, "bf16-standard"):
            for _ in range(2):
                optimizer.zero_grad()
                model(X).square().mean().backward()
                optimizer.step()
        return bits_of(model)

    found = stepped(model_of())
    assert all(map(torch.equal, found, stepped(rounded(model_of(), sf.BF16))))
    assert all(torch.equal(p, p.bfloat16().float()) for p in found)


def test_a_frozen_parameter_keeps_its_stored_value():
    model = model_of()
    model[0].requires_grad_(False)
    stored = model[0].weight.clone()
    loss, _ = loss_of(model, "bf16-standard")
    assert torch.equal(model[0].weight, stored)
    assert torch.equal(loss, loss_of(rounded(model_of(), sf.BF16), "bf16-standard")[0])


def by_data(w):
    w.data = torch.randn_like(w)


def by_pad(w):
    w.copy_(functional.pad(w[:, 1:], (1, 0), value=0.1))


WRITES = {
    "masked_fill": lambda w: w.copy_(w.masked_fill(w > 0, 0.1)),
    "masked_fill_": lambda w: w.masked_fill_(w > 0, 0.1),
    "pad": by_pad,
    "index_fill": lambda w: w.copy_(w.index_fill(0, torch.tensor([1]), 0.1)),
    "scatter": lambda w: w.copy_(w.scatter(0, torch.zeros(1, 3, dtype=torch.long), 0.1)),
    "where(out=)": lambda w: torch.where(w > 0, w, torch.tensor(0.1), out=w),
    "full(out=)": lambda w: torch.full(w.shape, 0.1, out=w),
    "a row": lambda w: w[1].fill_(0.1),
    "a product": lambda w: w.mul_(0.3),
    "data": by_data,
    "data in place": lambda w: w.data.fill_(0.1),
    "set_": lambda w: w.set_(torch.full(w.shape, 0.1)),
    "init": nn.init.normal_,
    "normal_": lambda w: w.normal_(),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_weights_keep_their_format_whatever_writes_them(name):
    model = rounded(model_of(), sf.BF16)
    weight = model[0].weight
    before = weight.detach().clone()
    with sf.torch.simulate(model, "bf16-standard"):
        with torch.no_grad():
            WRITES[name](weight)
        used = model[0](torch.eye(3)) - model[0].bias
        assert torch.equal(used, (model[0](torch.eye(3)) - model[0].bias).bfloat16().float())
    assert not torch.equal(weight, before)
    assert torch.equal(weight, weight.bfloat16().float())


def test_what_is_written_to_a_part_is_used_at_once_next_to_what_is_stored():
    model = model_of()
    stored = model[0].weight.detach().clone()
    with sf.torch.simulate(model, "bf16-standard"), torch.no_grad():
        model[0].weight[0].fill_(0.1)
        total = model[0].weight.sum(1)
    weight = model[0].weight.detach()
    assert torch.equal(weight[1:], stored[1:]) and torch.equal(weight[0], torch.full((3,), 0.1).bfloat16().float())
    exact = torch.cat([torch.full((1, 3), 0.1), stored[1:]]).bfloat16().float()
    with sf.torch.simulate(nn.Module(), "bf16-standard"):
        assert torch.equal(total, exact.sum(1))


@pytest.mark.parametrize("change, name", [
    (lambda m: m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True), "'weight' of '0'"),
    (lambda m: m.append(nn.Linear(2, 2)), "'4.weight' of 'Sequential'"),
], ids=["assigned", "appended"])  # fmt: skip
def test_parameters_that_came_after_the_block_began_are_refused_where_they_are_used(change, name):
    model = model_of()
    with sf.torch.simulate(model, "bf16-standard"):
        model[2] = nn.Sequential(nn.ReLU())  # without a parameter
        model(X)
        change(model)
        with pytest.raises(ValueError, match=f"The parameter {name} came after the block began"):
            model(X)


def test_the_storage_of_a_tied_parameter_follows_its_first_path():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    got = [
        loss_of(model, sf.policies["fp32"].override(path, **{role: sf.BF16}))[0]
        for path, role in (("0.weight", "weights"), ("1.weight", "compute"))
    ]
    assert got[0] != got[1] != loss_of(model, "fp32")[0]
    with pytest.raises(ValueError, match=r"'1.weight' sets weights, .* tied and stored once, as '0.weight'"):
        loss_of(model, sf.policies["fp32"].override("1.weight", weights=sf.BF16))
