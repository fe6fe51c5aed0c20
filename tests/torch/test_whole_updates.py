"""SGD, Adam, AdamW and RMSprop run as one program per parameter if nothing is watched, with the same bits."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

import simfloat as sf
from simfloat.torch import quick_updates
from tests.torch.compared import three_ways

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 1, "weight_decay": 1.0, "momentum": 0.5, "dampening": 2.0}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.01, "momentum": 0.9, "dampening": 0.1, "foreach": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "fused": True}),
    ("Adam", {"lr": 0.3, "weight_decay": 0.1, "betas": (0.5, 0.25), "eps": 1e-3}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "foreach": True}),
    ("RMSprop", {"lr": 0.1, "alpha": 0.25, "weight_decay": 0.1, "centered": True, "foreach": True}),
]
OTHERS = [
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}),  # which writes to the gradients
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("AdamW", {"lr": torch.tensor(0.01)}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.5}),
]
POLICIES = {
    "moments of their own": sf.Policy(
        compute=sf.FP16, weights=sf.BF16, optimizer_state=sf.Format(8, 3), update="kahan"
    ),
    "wide weights": sf.Policy(compute=sf.BF16, weights=sf.FP32, rounding=sf.toward_positive),
    "draws": sf.Policy(compute=sf.BF16, optimizer_state=sf.E5M2, rounding=sf.stochastic(8)),
    "draws in one format": sf.Policy(compute=sf.FP16, rounding=sf.stochastic(8)),
    "apart": sf.policies["bf16-standard"].override("0.bias", optimizer_state=sf.FP32).override("2.*", update="kahan"),
}


def steps(kind, options, policy, observer=None):
    """The parameters, and what the optimizer keeps of them, after three steps; one of them lacks a gradient."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(5, 3)
    model[0].weight.data = model[0].weight.data.t().contiguous().t()
    options = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    optimizer = getattr(torch.optim, kind)(model.parameters(), **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    with sf.torch.simulate(model, policy, observer=observer):
        for number in range(3):
            optimizer.zero_grad()
            (30 * model(x).square().mean()).backward()
            if number == 1:
                model[0].bias.grad = None
            optimizer.step()
            schedule.step()
    kept = optimizer.state_dict()["state"]
    known = {(i, name): x.numpy() for i, own in kept.items() for name, x in own.items() if x is not None}
    parameters = {i: p.detach().numpy() for i, p in enumerate(model.parameters())}
    return known | parameters | {"those of which something is kept": np.array(list(kept))}


@pytest.fixture
def programs(monkeypatch):
    """True for each update that was a program."""
    found, run = [], quick_updates.run_as_program

    def noted(*given):
        updated = run(*given)
        found.append(updated is not None)
        return updated

    monkeypatch.setattr(quick_updates, "run_as_program", noted)
    return found


#: Each case under two policies, and each policy with three cases or more.
PAIRS = [
    (number, name)
    for number in range(len(CASES))
    for place, name in enumerate(POLICIES)
    if (place - 2 * number) % 5 < 2
]


@pytest.mark.parametrize("number, policy", [*PAIRS, (4, "draws"), (0, "apart"), (1, "apart")])
def test_bits_and_counts_are_those_of_single_operations(number, policy, programs):
    kind, options = CASES[number]
    whole, *others = three_ways(lambda observer: steps(kind, options, POLICIES[policy], observer))
    assert programs[:11] == [True] * 11 and len(programs) == 22
    assert any(programs[11:]) == (not policy.startswith("draws"))
    for other in others:
        assert whole.keys() == other.keys()
        for name, x in whole.items():
            assert np.array_equal(x, other[name], equal_nan=True), name


@pytest.mark.parametrize("kind, options", OTHERS)
def test_updates_outside_of_the_formula_run_as_single_operations(kind, options, programs):
    found, *others = three_ways(lambda observer: steps(kind, options, "bf16-standard", observer))
    assert not programs
    assert all(np.array_equal(x, other[name]) for name, x in found.items() for other in others)


def test_gradients_that_a_function_on_lists_changes_have_the_values_of_pytorch():
    model, alone = nn.Linear(3, 2), nn.Linear(3, 2)
    alone.load_state_dict(model.state_dict())
    for each, policy in ((model, "fp32"), (alone, None)):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.5, momentum=0.5, nesterov=True, foreach=True)
        each.weight.grad, each.bias.grad = torch.ones(2, 3), torch.ones(2)
        with nullcontext() if policy is None else sf.torch.simulate(each, policy):
            optimizer.step()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), alone.parameters(), strict=True))
    assert model.bias.grad.tolist() == [1.5, 1.5]


def test_values_stay_in_their_memory_and_autograd_is_notified_of_the_change():
    model, x = nn.Linear(3, 2), torch.ones(4, 3, requires_grad=True)
    optimizer, places = torch.optim.Adam(model.parameters()), []
    with sf.torch.simulate(model, "bf16-standard"):
        for _ in range(2):
            loss = model(x).sum()
            loss.backward(retain_graph=True)
            optimizer.step()
            kept = [x for own in optimizer.state.values() for x in own.values()]
            places.append([x.data_ptr() for x in (*model.parameters(), *kept)])
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
    assert places[0] == places[1]
