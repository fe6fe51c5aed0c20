"""Parameters are read as rounded to `weights`; stored values change only by a step or a write, in shared memory too."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import simfloat as sf
from tests.torch.compared import bits_of, is_bf16, perceptron

X = torch.linspace(-1, 1, 12).reshape(4, 3)
BF16 = "bf16-standard"


def model_of():
    return perceptron(nn.LayerNorm(4), nn.Tanh())


def rounded(model, format=sf.BF16):
    """The model, its parameters rounded."""
    for p in model.parameters():
        p.data = torch.from_numpy(sf.round(p.detach().numpy(), format))
    return model


def loss_of(model, policy, training=True):
    with sf.torch.simulate(model, policy):
        z = model(X)
        loss = (z * z).mean()
        if training:
            loss.backward()
    return loss.detach(), [p.grad for p in model.parameters()]


@pytest.mark.parametrize("training", [True, False], ids=["training", "no_grad"])
def test_policies_can_be_compared_on_one_model_in_any_order(training):
    model, policies = model_of(), ("fp8-hybrid", BF16, "fp32")
    stored = bits_of(model)
    with torch.set_grad_enabled(training):
        there = [loss_of(model, policy, training)[0] for policy in policies]
        back = [loss_of(model, policy, training)[0] for policy in reversed(policies)]
    assert torch.equal(torch.stack(there), torch.stack(back[::-1])) and len(set(map(float, there))) == 3
    assert all(map(torch.equal, stored, bits_of(model)))


def test_rounded_copies_give_the_results_of_rounded_parameters_and_steps_update_what_was_used():
    loss, gradients = loss_of(model_of(), BF16)
    expected, theirs = loss_of(rounded(model_of()), BF16)
    assert torch.equal(loss, expected) and all(map(torch.equal, gradients, theirs))
    frozen = model_of()
    frozen[0].requires_grad_(False)
    stored = frozen[0].weight.clone()
    assert torch.equal(loss_of(frozen, BF16)[0], expected) and torch.equal(frozen[0].weight, stored)
    results = []
    for model in (model_of(), rounded(model_of())):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        with sf.torch.simulate(model, BF16):
            for _ in range(2):
                optimizer.zero_grad()
                model(X).square().mean().backward()
                optimizer.step()
        results.append(bits_of(model))
    assert all(map(torch.equal, *results)) and all(map(is_bf16, results[0]))


#: Statements that write to a weight w.
WRITES = """
w.copy_(w.masked_fill(w > 0, 0.1))
w.masked_fill_(w > 0, 0.1)
w.copy_(functional.pad(w[:, 1:], (1, 0), value=0.1))
w.copy_(w.index_fill(0, torch.tensor([1]), 0.1))
w.copy_(w.scatter(0, torch.zeros(1, 3, dtype=torch.long), 0.1))
torch.where(w > 0, w, torch.tensor(0.1), out=w)
torch.full(w.shape, 0.1, out=w)
w[1].fill_(0.1)
w.mul_(0.3)
w.data = torch.randn_like(w)
w.data.fill_(0.1)
w.set_(torch.full(w.shape, 0.1))
nn.init.normal_(w)
w.normal_()
"""


def test_weights_keep_their_format_whatever_writes_them():
    for write in WRITES.strip().split("\n"):
        model = rounded(model_of())
        weight = model[0].weight
        before = weight.detach().clone()
        with sf.torch.simulate(model, BF16):
            with torch.no_grad():
                exec(write, {"w": weight, "torch": torch, "nn": nn, "functional": functional})
            assert is_bf16(model[0](torch.eye(3)) - model[0].bias), write
        assert not torch.equal(weight, before) and is_bf16(weight), write


def test_what_is_written_to_a_part_is_used_at_once_next_to_what_is_stored():
    model = model_of()
    stored = model[0].weight.detach().clone()
    with sf.torch.simulate(model, BF16), torch.no_grad():
        model[0].weight[0].fill_(0.1)
        total = model[0].weight.sum(1)
    weight = model[0].weight.detach()
    assert torch.equal(weight[1:], stored[1:]) and torch.equal(weight[0], torch.full((3,), 0.1).bfloat16().float())
    exact = torch.cat([torch.full((1, 3), 0.1), stored[1:]]).bfloat16().float()
    with sf.torch.simulate(nn.Module(), BF16):
        assert torch.equal(total, exact.sum(1))


def test_parameters_that_came_after_the_block_began_are_refused_where_they_are_used():
    for change, name in (
        (
            lambda m: m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True),
            "'weight' of '0'",
        ),
        (lambda m: m.append(nn.Linear(2, 2)), "'4.weight' of 'Sequential'"),
    ):
        model = model_of()
        with sf.torch.simulate(model, BF16):
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


POLICY = sf.policies["bf16-standard"].override("2.bias", weights=sf.FP32)


def flatten(model):
    vector_to_parameters(parameters_to_vector(model.parameters()), model.parameters())


def flatten_gradients(model):
    sizes = [p.numel() for p in model.parameters()]
    for p, part in zip(model.parameters(), torch.zeros(sum(sizes)).split(sizes), strict=True):
        p.grad = part.view_as(p)


def trained(prepare=None, start=None, after=None):
    """All parameters and gradients after two steps, and the operations; parts are changed at three times."""
    model = perceptron(nn.Tanh())
    if prepare:
        prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    with sf.torch.simulate(model, POLICY) as run:
        for _ in range(2):
            optimizer.zero_grad()
            if start:
                start(model)
            model(torch.linspace(-1, 1, 12).reshape(4, 3)).square().mean().backward()
            optimizer.step()
            if after:
                after(model)
    return [x.detach().clone() for p in model.parameters() for x in (p, p.grad)], run.met


def test_parts_of_a_flat_tensor_are_trained_as_parameters_and_gradients_with_memory_of_their_own():
    expected, operations = trained()
    found, same = trained(prepare=flatten)
    assert all(map(torch.equal, found, expected)) and same == operations
    for options in ({"after": flatten}, {"start": flatten_gradients}):
        assert all(map(torch.equal, trained(**options)[0], expected))


def test_values_written_to_the_flat_vector_are_used_as_rounded():
    model, flat = nn.Linear(2, 1), torch.zeros(3)
    vector_to_parameters(flat, model.parameters())
    with sf.torch.simulate(model, "bf16-standard"), torch.no_grad():
        flat.fill_(0.1)
        assert model(torch.tensor([1.0, 0.0])).item() == 0.2001953125


def test_gradients_have_memory_of_their_own_and_come_to_it_by_no_operation_that_is_met():
    pair = nn.ParameterList([nn.Parameter(torch.full((2, 3), float(i))) for i in range(2)])
    with sf.torch.simulate(pair, "fp32") as run:
        total = pair[0] + pair[1]
        total.retain_grad()
        total.square().sum().backward()
        pair[0].grad.zero_()
    assert pair[1].grad.eq(2.0).all() and total.grad.eq(2.0).all()
    assert not {"aten.new_empty_strided.default", "aten.copy_.default"} & {str(func) for func, _, _ in run.met}
