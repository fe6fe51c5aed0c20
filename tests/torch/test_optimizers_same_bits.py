"""PyTorch's optimizers have the bits of their formulas, and those of simfloat.optim if the formulas agree."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import simfloat as sf
from tests.bits import assert_all_bits, assert_bits
from tests.rounded import Rounded

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
    **{
        f"{name} moments": sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=cast)
        for name, cast in {
            "narrow": sf.E5M2,
            "random": sf.cast(sf.BF16, sf.stochastic()),
            "scaled": sf.scaled(sf.E4M3, sf.block(4, sf.FP32)),
            "random scaled": sf.cast(sf.E4M3, sf.stochastic(bits=4), scale=sf.block((2, 2), sf.E8M0)),
            "delayed": sf.scaled(sf.E4M3, sf.delayed()),
        }.items()
    },
    "wide gradients": sf.Policy(compute=sf.BF16, gradients=sf.FP32, weights=sf.BF16),
    "toward zero": sf.Policy(compute=sf.BF16, rounding=sf.toward_zero),
    "upward": sf.Policy(compute=sf.BF16, weights=sf.FP32, rounding=sf.toward_positive),
}

#: The number of steps; the rectified rate of RAdam begins with the sixth or later.
STEPS = 7


def numbers(policy):
    """The start, and the gradients of all steps."""
    rng, dtype = np.random.default_rng(3), np.float64 if policy == "fp64" else np.float32
    start = rng.standard_normal((3, 4)).astype(dtype)
    return start, [(rng.standard_normal((3, 4)) * 10.0 ** rng.integers(-3, 2)).astype(dtype) for _ in range(STEPS)]


def of_torch(kind, policy, options, observer=None, **running):
    start, gradients = numbers(policy)
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.from_numpy(start.copy()))])
    optimizer, (parameter,) = getattr(torch.optim, kind)(model.parameters(), **options, **running), model
    with sf.torch.simulate(model, POLICIES[policy], 5, observer):
        for gradient in gradients:
            optimizer.zero_grad()
            (parameter * torch.from_numpy(gradient)).sum().backward()
            optimizer.step()
    assert all(group.get("fused") == running.get("fused") for group in optimizer.param_groups)  # it stays what it is
    return parameter.detach().numpy(), optimizer.state_dict()["state"].get(0, {})


def of_ours(kind, policy, options, observer=None):
    start, gradients = numbers(policy)
    parameter = sf.Parameter(start.copy())
    parameter.name = "0"
    optimizer = getattr(sf.optim, kind)([parameter], **options)
    with sf.simulate(POLICIES[policy], 5, observer):
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


def moments_of(recorder):
    """The counts of every moment, by its path."""
    return {key.path: recorder.counts(key.path) for key, _ in recorder.entries() if key.operation == "moment"}


@pytest.mark.parametrize("number, case", list(enumerate(CASES)))
def test_an_optimizer_has_the_same_bits_and_state_under_both_front_ends_and_each_moment_is_counted_once(number, case):
    kind, options = case
    names = [name for name in POLICIES if not (options.get("maximize") and name in NARROW_WEIGHTS)]
    for policy in [names[(4 * number + i) % len(names)] for i in range(4)]:
        recorders = (sf.Recorder(), sf.Recorder()) if policy.endswith("moments") else (None, None)
        ours, own = of_ours(kind, policy, options, recorders[0])
        theirs, kept = of_torch(kind, policy, options, recorders[1], foreach=False)
        assert own.keys() == states(kept).keys()
        assert_all_bits([ours, *states(own).values()], [theirs, *(states(kept)[name] for name in own)], policy)
        if recorders[0]:
            counts = moments_of(recorders[0])
            assert counts == moments_of(recorders[1]) and {each["total"] for each in counts.values()} <= {12 * STEPS}


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
def test_a_scaler_unscales_the_gradients_of_a_fused_optimizer_and_skips_its_step_after_an_infinity(kind):
    weights = []
    for fused in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 1)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.5, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
        with sf.torch.simulate(model, "fp16-master"):
            for factor in (1.0, float("inf")):
                before = model.weight.detach().clone()
                optimizer.zero_grad()
                scaler.scale(model(torch.full((4, 2), factor)).mean()).backward()
                if kind == "SGD":
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
                assert torch.equal(before, model.weight) == (factor > 1)
        weights.append(model.weight.detach())
        assert scaler.get_scale() == 8.0 and getattr(optimizer, "_step_supports_amp_scaling", False) == fused
        if kind == "AdamW":
            assert float(optimizer.state[model.weight]["step"]) == 1
    assert torch.equal(*weights)


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


f = Rounded(sf.FP32)


def scaled(factor, x):
    """factor * x, which for a factor of 1 or -1 is no product."""
    return x if factor == 1 else np.negative(x) if factor == -1 else f.mul(factor, x)


def mixed(a, b, weight):
    """a + weight * (b - a), or from the other end."""
    difference = f.sub(b, a)
    return f.add(a, f.mul(weight, difference)) if weight < 0.5 else f.sub(b, f.mul(1 - weight, difference))


#: Operations in single steps, by their names in PyTorch.
SINGLE_STEPS = {
    "add": lambda a, b, alpha=1: f.add(a, scaled(alpha, b)),
    "sub": lambda a, b, alpha=1: f.sub(a, scaled(alpha, b)),
    "mul": f.mul,
    "div": f.div,
    "sqrt": f.sqrt,
    "reciprocal": lambda a: f.div(1.0, a),
    "addcmul": lambda a, b, c, value=1: f.add(a, f.mul(scaled(value, b), c)),
    "addcdiv": lambda a, b, c, value=1: f.add(a, f.div(scaled(value, b), c)),
    "lerp": mixed,
}


def _array(x):
    return x.numpy().astype(np.float64) if isinstance(x, torch.Tensor) else x


class SingleSteps(TorchDispatchMode):
    """A block in which these operations are carried out so; counters, which have no axes, are PyTorch's."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, options = func.overloadpacket.__name__, dict(kwargs or {})
        step = SINGLE_STEPS.get(name.rstrip("_"))
        if step is None or args[0].dtype != torch.float32 or not args[0].ndim:
            return func(*args, **options)
        out = args[0] if name.endswith("_") else options.pop("out", None)
        found = step(*map(_array, args), **{key: _array(x) for key, x in options.items()})
        result = torch.from_numpy(found.astype(np.float32))
        return result if out is None else out.copy_(result)
