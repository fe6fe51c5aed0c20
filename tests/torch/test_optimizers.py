"""PyTorch's optimizers under a policy; some run as one program per parameter, with the same bits."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn, optim

import simfloat as sf
from simfloat.torch import quick_updates
from tests.torch.compared import perceptron, three_ways

KINDS = {
    "sgd": (optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": (optim.Adam, {"weight_decay": 0.1}),
    "amsgrad": (optim.Adam, {"amsgrad": True}),
    "adamw": (optim.AdamW, {}),
    "adagrad": (optim.Adagrad, {}),
    "rmsprop": (optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "nadam": (optim.NAdam, {}),
    "radam": (optim.RAdam, {"betas": (0.9, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "adamax": (optim.Adamax, {}),
    "adadelta": (optim.Adadelta, {"weight_decay": 0.1}),
    "asgd": (optim.ASGD, {"weight_decay": 0.1, "t0": 1.0}),
    "rprop": (optim.Rprop, {}),
    "adafactor": (optim.Adafactor, {}),
}

#: Optimizers that compute in another order on lists of tensors.
LISTS_APART = ("nadam", "radam", "asgd")


def block(model, policy, *arguments):
    """A block of a run, or none for plain PyTorch."""
    return nullcontext() if policy is None else sf.torch.simulate(model, policy, *arguments)


def trained(kind, policy, dtype=torch.float32, steps=3, **options):
    model = perceptron(nn.Tanh(), sizes=(4, 3, 2)).to(dtype)
    optimizer = kind(model.parameters(), lr=0.1, **options)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)
    x, y = torch.randn(5, 4, dtype=dtype), torch.randn(5, 2, dtype=dtype)
    with block(model, policy, 3):
        for _ in range(steps):
            optimizer.zero_grad()
            d = model(x) - y
            (d * d).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
    return model, optimizer


@pytest.mark.parametrize("name", KINDS)
def test_weights_under_fp64_are_plain_torchs_lists_have_the_bits_of_single_tensors_and_all_is_in_its_format(name):
    kind, options = KINDS[name]
    plain = trained(kind, None, torch.float64, **options)[0]
    for foreach in (False, True):
        simulated = trained(kind, "fp64", torch.float64, foreach=foreach, **options)[0]
        for a, b in zip(plain.parameters(), simulated.parameters(), strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-12, atol=1e-13)
    if name not in LISTS_APART:
        single, lists = (trained(kind, "bf16-stochastic", foreach=each, **options)[0] for each in (False, True))
        assert all(map(torch.equal, single.parameters(), lists.parameters()))
    policy = sf.Policy(compute=sf.FP16, weights=sf.BF16, optimizer_state=sf.Format(8, 3))
    model, optimizer = trained(kind, policy, steps=7 if name == "radam" else 3, **options)
    for parameter in model.parameters():
        assert np.array_equal(sf.round(parameter.detach().numpy(), sf.BF16), parameter.detach().numpy())
        for key, kept in optimizer.state[parameter].items():
            if key == "step":
                assert float(kept) == (7 if name == "radam" else 3)
            elif key not in ("mu_product", "mu", "eta") and kept is not None:
                assert np.array_equal(sf.round(kept.numpy(), policy.optimizer_state), kept.numpy()), key


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_which_calls_the_model_itself_is_plain_torchs_under_fp64(search):
    weights = []
    for policy, dtype in ((None, torch.float64), ("fp64", torch.float64), ("bf16-standard", torch.float32)):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1).to(dtype)
        x, y = torch.randn(8, 3, dtype=dtype), torch.randn(8, 1, dtype=dtype)
        optimizer = optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn=search)

        def closure(model=model, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        with block(model, policy):
            for _ in range(2):
                optimizer.step(closure)
        weights.append(model.weight.detach())
    plain, wide, narrow = weights
    np.testing.assert_allclose(plain, wide, rtol=1e-9)
    assert torch.equal(narrow, narrow.bfloat16().float())


def test_muon_updates_matrices():
    model = torch.nn.Linear(4, 3, bias=False)
    optimizer, before = optim.Muon(model.parameters(), lr=0.1), model.weight.detach().bfloat16().float()
    with sf.torch.simulate(model, "bf16-standard"):
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    assert not torch.equal(before, model.weight)
    assert torch.equal(model.weight, model.weight.bfloat16().float())


def test_a_kahan_update_keeps_what_was_lost_in_the_optimizers_state():
    model, optimizer = trained(optim.SGD, "bf16-kahan")
    assert all("compensation" in entry for entry in optimizer.state_dict()["state"].values())
    with sf.torch.simulate(model, "bf16-kahan"), torch.no_grad(), pytest.raises(ValueError, match="kahan"):
        next(model.parameters()).add_(1.0)


@pytest.mark.parametrize("way", ["add_", "+=", "data"])
def test_the_last_addition_of_an_update_by_hand_is_the_policys(way):
    model, recorder, step = torch.nn.Linear(50, 20, bias=False), sf.Recorder(), torch.full((20, 50), 2.0**-10)
    torch.nn.init.ones_(model.weight)
    with sf.torch.simulate(model, "bf16-stochastic", 1, recorder):
        if way == "data":
            model.weight.data.add_(step)
        else:
            with torch.no_grad():
                if way == "add_":
                    model.weight.add_(step)
                else:
                    model.weight += step
    # An eighth of a gap: it survives with the probability 1/8.
    assert 0.05 < float((model.weight > 1).float().mean()) < 0.25
    assert recorder.counts("weight", "update")["total"] == 1000


def test_an_epsilon_that_is_zero_in_the_weights_format_is_named_as_the_first_nan():
    recorder, model = sf.Recorder(), torch.nn.Linear(2, 1)
    optimizer, x = torch.optim.AdamW(model.parameters(), foreach=False), torch.full((4, 2), 1e-4)
    with sf.torch.simulate(model, "fp16-standard", observer=recorder):
        model(x).sum().backward()
        model.weight.grad *= 0.0
        optimizer.step()
    assert recorder.first_nan == (0, "weight.update", "divide", "update", "0 / 0")
    assert recorder.advise()[0].override == "policy.override('weight', weights=sf.FP32)"


def test_no_override_that_is_advised_proposes_more_than_the_models_tensors_can_represent():
    for dtype, update in ((torch.float32, "update='kahan'"), (torch.float64, "weights=sf.FP64")):
        recorder, model = sf.Recorder(), torch.nn.Linear(2, 1, bias=False, dtype=dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-12, foreach=False)
        policy = sf.Policy(compute=sf.BF16, weights=sf.FP32)
        with sf.torch.simulate(model, policy, observer=recorder):
            (model(torch.ones(4, 2, dtype=dtype)).sum() * 1e6).backward()
            optimizer.step()
        advice = {(each.path, each.operation): each.override for each in recorder.advise()}
        assert advice["weight", "update"] == f"policy.override('weight', {update})"
        # sqrt(v) + eps
        assert advice["weight.update", "add"] == ("" if dtype == torch.float32 else advice["weight", "update"])
        with sf.torch.simulate(model, eval(advice["weight", "update"], {"policy": policy, "sf": sf})):
            optimizer.step()


def test_a_moment_is_unchanged_only_where_an_addend_was_lost():
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=1.0)
    with sf.torch.simulate(model, "bf16-standard", observer=(recorder := sf.Recorder())):
        # The second step's addends: nothing, so little that it is lost, so much that what was there is lost, enough.
        for gradient in ([1.0, 1.0, 1.0, 1.0], [0.0, 2.0**-10, 2.0**10, 0.5]):
            model.weight.grad = torch.tensor([gradient])
            optimizer.step()
    assert recorder.counts("weight.momentum_buffer", "update")["unchanged"] == 1
    assert optimizer.state[model.weight]["momentum_buffer"].tolist() == [[1.0, 1.0, 2.0**10, 1.5]]


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adagrad"])
def test_moments_that_operations_on_lists_wrote_are_stored_with_their_scale(name):
    policy, results = (
        sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=sf.scaled(sf.E4M3, sf.block(4, sf.FP32))),
        [],
    )
    for foreach in (False, True):
        model, options = torch.nn.Linear(6, 3), {"momentum": 0.5} if name == "SGD" else {}
        torch.nn.init.ones_(model.weight)
        optimizer = getattr(optim, name)([model.weight], lr=0.01, foreach=foreach, **options)
        with sf.torch.simulate(model, policy):
            for step in range(3):
                model.weight.grad = torch.linspace(-1, 2 + step, 18).reshape(3, 6)
                optimizer.step()
        results.append([model.weight, *optimizer.state[model.weight].values()])
    assert all(map(torch.equal, *results))


PROGRAMS = [
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
UPDATE_POLICIES = {
    "moments of their own": sf.Policy(
        compute=sf.FP16, weights=sf.BF16, optimizer_state=sf.Format(8, 3), update="kahan"
    ),
    "wide weights": sf.Policy(compute=sf.BF16, weights=sf.FP32, rounding=sf.toward_positive),
    "draws": sf.Policy(compute=sf.BF16, optimizer_state=sf.E5M2, rounding=sf.stochastic(8)),
    "draws in one format": sf.Policy(compute=sf.FP16, rounding=sf.stochastic(8)),
    "apart": sf.policies["bf16-standard"].override("0.bias", optimizer_state=sf.FP32).override("2.*", update="kahan"),
    "as written": sf.policies["as-written"],
}


def steps(kind, options, policy, observer=None):
    """The parameters, and what the optimizer keeps of them, after three steps; one of them lacks a gradient."""
    model, x = perceptron(nn.Tanh()), torch.randn(5, 3)
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
    for number in range(len(PROGRAMS))
    for place, name in enumerate(UPDATE_POLICIES)
    if (place - 2 * number) % 5 < 2
]


@pytest.mark.parametrize(
    "number, policy",
    [*PAIRS, (4, "draws"), (0, "apart"), (1, "apart"), *((number, "as written") for number in (3, 4, 6))],
)
def test_bits_and_counts_are_those_of_single_operations(number, policy, programs):
    kind, options = PROGRAMS[number]
    whole, *others = three_ways(lambda observer: steps(kind, options, UPDATE_POLICIES[policy], observer))
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
