"""PyTorch's optimizers under a policy."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import optim

import simfloat as sf

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


def trained(kind, policy, dtype, steps=3, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).to(dtype)
    optimizer = kind(model.parameters(), lr=0.1, **options)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)
    x, y = torch.randn(5, 4, dtype=dtype), torch.randn(5, 2, dtype=dtype)

    def loop():
        for _ in range(steps):
            optimizer.zero_grad()
            d = model(x) - y
            (d * d).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()

    if policy is None:
        loop()
    else:
        with sf.torch.simulate(model, policy, 3):
            loop()
    return model, optimizer


#: Optimizers that compute in another order on lists of tensors.
LISTS_APART = ("nadam", "radam", "asgd")


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_weights_under_fp64_are_those_of_plain_torch(name, foreach):
    kind, options = KINDS[name]
    plain, simulated = (
        trained(kind, policy, torch.float64, foreach=foreach, **options)[0] for policy in (None, "fp64")
    )
    for a, b in zip(plain.parameters(), simulated.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in LISTS_APART])
def test_lists_of_tensors_have_the_bits_of_single_ones(name):
    kind, options = KINDS[name]
    single, lists = (
        trained(kind, "bf16-stochastic", torch.float32, foreach=foreach, **options)[0] for foreach in (False, True)
    )
    assert all(map(torch.equal, single.parameters(), lists.parameters()))


@pytest.mark.parametrize("name", ["sgd", "adam", "amsgrad", "adamw", "adagrad"])
def test_a_fused_optimizer_takes_the_steps_of_its_formula_and_stays_fused(name):
    kind, options = KINDS[name]
    single, fused = (trained(kind, "bf16-stochastic", torch.float32, fused=fused, **options) for fused in (False, True))
    assert all(map(torch.equal, single[0].parameters(), fused[0].parameters()))
    assert all(group["fused"] for group in fused[1].param_groups)


def test_a_scaler_unscales_the_gradients_of_a_fused_optimizer():
    weights = []
    for fused in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = optim.AdamW(model.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
        with sf.torch.simulate(model, "bf16-standard"):
            for _ in range(2):
                scaler.scale(model(torch.ones(2, 3)).square().mean()).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        weights.append(model.weight.detach())
        assert scaler.get_scale() == 16.0 and getattr(optimizer, "_step_supports_amp_scaling", False) == fused
    assert torch.equal(*weights)


@pytest.mark.parametrize("name", KINDS)
def test_weights_and_moments_have_their_formats_and_counters_are_exact(name):
    kind, options = KINDS[name]
    policy = sf.Policy(compute=sf.FP16, weights=sf.BF16, optimizer_state=sf.Format(8, 3))
    model, optimizer = trained(kind, policy, torch.float32, steps=9, **options)
    for parameter in model.parameters():
        assert np.array_equal(sf.round(parameter.detach().numpy(), sf.BF16), parameter.detach().numpy())
        for key, kept in optimizer.state[parameter].items():
            if key == "step":
                assert float(kept) == 9
            elif key not in ("mu_product", "mu", "eta") and kept is not None:
                assert np.array_equal(sf.round(kept.numpy(), policy.optimizer_state), kept.numpy()), key


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_which_calls_the_model_itself_is_plain_torchs_under_fp64(search):
    def trained(policy, dtype):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1).to(dtype)
        x, y = torch.randn(8, 3, dtype=dtype), torch.randn(8, 1, dtype=dtype)
        optimizer = optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn=search)

        def closure():
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        with nullcontext() if policy is None else sf.torch.simulate(model, policy):
            for _ in range(3):
                optimizer.step(closure)
        return model.weight.detach()

    plain = trained(None, torch.float64)
    np.testing.assert_allclose(plain, trained("fp64", torch.float64), rtol=1e-9)
    narrow = trained("bf16-standard", torch.float32)
    assert torch.equal(narrow, narrow.bfloat16().float())


def test_muon_updates_matrices():
    model = torch.nn.Linear(4, 3, bias=False)
    optimizer = optim.Muon(model.parameters(), lr=0.1)
    with sf.torch.simulate(model, "bf16-standard"):
        model(torch.ones(2, 4)).square().mean().backward()
        before = model.weight.detach().clone()
        optimizer.step()
    assert not torch.equal(before, model.weight)
    assert torch.equal(model.weight, model.weight.bfloat16().float())


def test_a_kahan_update_keeps_what_was_lost_in_the_optimizers_state():
    model, optimizer = trained(optim.SGD, "bf16-kahan", torch.float32)
    state = optimizer.state_dict()["state"]
    assert all("compensation" in entry for entry in state.values())
    parameter = next(model.parameters())
    with sf.torch.simulate(model, "bf16-kahan"), torch.no_grad(), pytest.raises(ValueError, match="kahan"):
        parameter.add_(1.0)


def test_the_last_addition_of_a_loop_of_ones_own_is_the_policys():
    model, recorder = torch.nn.Linear(50, 20, bias=False), sf.Recorder()
    torch.nn.init.ones_(model.weight)
    with sf.torch.simulate(model, "bf16-stochastic", 1, recorder), torch.no_grad():
        model.weight.add_(torch.full((20, 50), 2.0**-10))
    # A tenth of a gap: it survives with the probability 1/8.
    moved = float((model.weight > 1).float().mean())
    assert 0.05 < moved < 0.25
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


@pytest.mark.parametrize("name, options", [
    ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("RMSprop", {"centered": True, "momentum": 0.5}), ("NAdam", {}),
    ("RAdam", {}), ("Adam", {"amsgrad": True}), ("Adamax", {}), ("Adadelta", {}), ("Adagrad", {}),
])  # fmt: skip
def test_both_front_ends_count_moments_alike_each_element_once_a_step(name, options):
    torch.manual_seed(0)
    x, start = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32), torch.nn.Linear(8, 4)
    policy, found = sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=sf.E5M2), []
    ours = sf.nn.Linear(8, 4, rng=0)
    ours.load_state_dict({path: p.detach().numpy() for path, p in start.named_parameters()})
    for model, package in ((start, optim), (ours, sf.optim)):
        optimizer, recorder = getattr(package, name)(model.parameters(), lr=0.01, **options), sf.Recorder()
        is_torch = package is optim
        data = torch.tensor(x) if is_torch else x
        with sf.torch.simulate(model, policy, 0, recorder) if is_torch else sf.simulate(policy, 0, recorder):
            for _ in range(8):
                optimizer.zero_grad()
                (model(data) * model(data)).mean().backward()
                optimizer.step()
        moments = [(key.path, recorder.counts(key.path)) for key, _ in recorder.entries() if key.operation == "moment"]
        assert all(counts["total"] == 8 * (32 if "weight" in path else 4) for path, counts in moments)
        found.append({path: (counts["unchanged"], counts["subnormal"]) for path, counts in moments})
    assert found[0] == found[1] and sum(unchanged for unchanged, _ in found[0].values()) > 0


SAME_FORMULAS = [("SGD", {"momentum": 0.9, "nesterov": True}), ("RMSprop", {"momentum": 0.5}), ("NAdam", {})]
CAST_MOMENTS = [
    sf.cast(sf.BF16, sf.stochastic()),
    sf.scaled(sf.E4M3, sf.block(4, sf.FP32)),
    sf.cast(sf.E4M3, sf.stochastic(bits=4), scale=sf.block((2, 2), sf.E8M0)),
    sf.scaled(sf.E4M3, sf.delayed()),
]


@pytest.mark.parametrize("cast", CAST_MOMENTS, ids=str)
@pytest.mark.parametrize("name, options", SAME_FORMULAS)
def test_both_front_ends_cast_moments_alike(name, options, cast):
    rng, policy = np.random.default_rng(0), sf.Policy(compute=sf.FP32, optimizer_state=cast)
    start, gradients = rng.standard_normal((3, 6)).astype(np.float32), rng.standard_normal((3, 3, 6)).astype(np.float32)
    model, w, recorders = torch.nn.Module(), sf.Parameter(start.copy()), (sf.Recorder(), sf.Recorder())
    model.w, w.name = torch.nn.Parameter(torch.from_numpy(start.copy())), "w"
    theirs, ours = getattr(optim, name)([model.w], lr=0.1, **options), getattr(sf.optim, name)([w], lr=0.1, **options)
    with sf.torch.simulate(model, policy, 3, recorders[0]):
        for g in gradients:
            model.w.grad = torch.from_numpy(g.copy())
            theirs.step()
    with sf.simulate(policy, 3, recorders[1]):
        for g in gradients:
            w.grad = g.copy()
            ours.step()
    assert np.array_equal(model.w.detach().numpy(), w.data)
    moments = {name: m for name, m in ours.state[0].items() if name not in ("step", "mu_product")}
    assert moments and all(np.array_equal(theirs.state[model.w][name].numpy(), m) for name, m in moments.items())
    counts = [[recorder.counts(f"w.{name}") for name in moments] for recorder in recorders]
    assert counts[0] == counts[1] and {each["total"] for each in counts[0]} == {3 * 18}
