"""PyTorch's optimizers have the bits of their formulas, and those of simfloat.optim if the formulas agree."""

import numpy as np
import pytest
import torch

import simfloat as sf
from tests.bits import assert_all_bits, assert_bits
from tests.torch.single_steps import SingleSteps

CASES = [
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    ("RMSprop", {"alpha": 0.25, "centered": True, "lr": 1.0, "maximize": True}),
    ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"betas": (0.25, 0.5), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.9, 0.8), "weight_decay": 0.1}),
    ("RAdam", {"betas": (0.5, 0.99), "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("Adamax", {"weight_decay": 0.1}),
    ("Adamax", {"betas": (0.25, 0.5), "maximize": True}),
    ("SGD", {"momentum": 0.9, "dampening": 2.0}),
    ("SGD", {"lr": 1.0, "weight_decay": 1.0}),
    ("SGD", {"lr": 0.1, "momentum": 1.0, "nesterov": True}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adadelta", {"lr": 0.3, "rho": 1.0, "maximize": True}),
]

#: A preset for all that have these roles of updates and of the products that give the gradients here.
ALIKE = {
    (r.weights, r.optimizer_state, r.update, r.rounding, r.activations, r.weight_gradients): name
    for name in sf.policies
    for r in (sf.policies[name].recipe("0", "multiply"),)
}

#: And formats of moments and weights of which neither holds the other, and directed modes.
POLICIES = {
    **{name: sf.policies[name] for name in (*ALIKE.values(), "bf16-fp32-weights")},
    "moments of their own": sf.Policy(
        compute=sf.FP16, weights=sf.BF16, optimizer_state=sf.Format(8, 3), update="kahan"
    ),
    "wide moments": sf.Policy(compute=sf.FP16, weights=sf.BF16, optimizer_state=sf.FP32, update="stochastic"),
    "wide gradients": sf.Policy(compute=sf.BF16, gradients=sf.FP32, weights=sf.BF16),
    "toward zero": sf.Policy(compute=sf.BF16, rounding=sf.toward_zero),
    "upward": sf.Policy(compute=sf.BF16, weights=sf.FP32, rounding=sf.toward_positive),
}

#: Of so many steps the rectified rate of RAdam begins with the sixth or later.
STEPS = 7


def numbers(policy):
    """The start, and the gradients of all steps."""
    rng, dtype = np.random.default_rng(3), np.float64 if policy == "fp64" else np.float32
    start = rng.standard_normal((3, 4)).astype(dtype)
    return start, [(rng.standard_normal((3, 4)) * 10.0 ** rng.integers(-3, 2)).astype(dtype) for _ in range(STEPS)]


def of_torch(kind, policy, options, **running):
    start, gradients = numbers(policy)
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.from_numpy(start.copy()))])
    optimizer, (parameter,) = getattr(torch.optim, kind)(model.parameters(), **options, **running), model
    with sf.torch.simulate(model, POLICIES[policy], 5):
        for gradient in gradients:
            optimizer.zero_grad()
            (parameter * torch.from_numpy(gradient)).sum().backward()
            optimizer.step()
    assert all(group.get("fused") == running.get("fused") for group in optimizer.param_groups)  # it stays what it is
    return parameter.detach().numpy(), optimizer.state_dict()["state"].get(0, {})


def of_ours(kind, policy, options):
    start, gradients = numbers(policy)
    parameter = sf.Parameter(start.copy())
    parameter.name = "0"
    optimizer = getattr(sf.optim, kind)([parameter], **options)
    with sf.simulate(POLICIES[policy], 5):
        for gradient in gradients:
            optimizer.zero_grad()
            (parameter * sf.Tensor(gradient)).sum().backward()
            optimizer.step()
    return parameter.data, optimizer.state_dict()["state"].get(0, {})


def states(kept):
    """The arrays of a state, by name."""
    return {name: np.asarray(value, np.float64) for name, value in kept.items() if value is not None}


#: PyTorch rounds the negated gradient of `maximize` to `weights`, which cannot represent it here.
NARROW_WEIGHTS = ("moments of their own", "wide moments", "wide gradients")


@pytest.mark.parametrize("number, case", list(enumerate(CASES)))
def test_an_optimizer_has_the_same_bits_and_the_same_state_under_both_front_ends(number, case):
    kind, options = case
    names = [name for name in POLICIES if not (options.get("maximize") and name in NARROW_WEIGHTS)]
    for policy in [names[(4 * number + i) % len(names)] for i in range(4)]:
        ours, own = of_ours(kind, policy, options)
        theirs, kept = of_torch(kind, policy, options, foreach=False)
        assert own.keys() == states(kept).keys()
        assert_all_bits([ours, *states(own).values()], [theirs, *(states(kept)[name] for name in own)], policy)


FUSED = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "maximize": True}),
    ("Adagrad", {"weight_decay": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.3}),
]


@pytest.mark.parametrize("kind, options", FUSED)
def test_a_fused_optimizer_is_its_unfused_formula(kind, options):
    for policy in ("bf16-kahan", "wide moments"):
        (fused, kept), (plain, known) = (
            of_torch(kind, policy, options, **running) for running in ({"fused": True}, {"foreach": False})
        )
        assert kept.keys() == known.keys()
        assert_all_bits([fused, *states(kept).values()], [plain, *states(known).values()], policy)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_a_fused_step_is_skipped_where_a_scaler_found_an_infinity(kind):
    model = torch.nn.Linear(2, 1)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.5, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before, weights = model.weight.detach().clone(), []
    with sf.torch.simulate(model, "fp16-master"):
        for factor in (1.0, float("inf")):
            optimizer.zero_grad()
            scaler.scale(model(torch.full((4, 2), factor)).mean()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            weights.append(model.weight.detach().clone())
        assert not torch.equal(weights[0], before) and torch.equal(weights[0], weights[1])
    if kind == "AdamW":
        assert float(optimizer.state[model.weight]["step"]) == 1


def options_in_pytorchs_list():
    """Every optimizer whose steps are elementwise, with every options that PyTorch tests it with."""
    # The import takes a second and a half, so it is in a function, and not done when tests are collected.
    optimizers = pytest.importorskip("torch.testing._internal.common_optimizers", reason="needs expecttest")
    for entry in optimizers.optim_db:
        if entry.name not in ("Adafactor", "LBFGS", "Muon", "SparseAdam"):
            yield from ((entry.optim_cls, given.kwargs) for given in entry.optim_inputs_func("cpu"))


def test_an_optimizer_under_fp32_is_its_formula_one_rounding_at_a_time():
    start, gradients = numbers("fp32")
    for kind, options in options_in_pytorchs_list():
        ends = []
        for simulates in (False, True):
            model = torch.nn.ParameterList([torch.nn.Parameter(torch.from_numpy(start[0, :2].copy()))])
            optimizer = kind(model.parameters(), foreach=False, **options)
            with sf.torch.simulate(model, "fp32") if simulates else SingleSteps():
                for gradient in gradients if kind is torch.optim.RAdam else gradients[:3]:
                    model[0].grad = torch.from_numpy(gradient[0, :2].copy())
                    optimizer.step()
            ends.append(model[0].detach().numpy())
        assert_bits(*ends, of=f"{kind} {options}")
