"""Faults of PyTorch models, and of programs in their own dtypes, are found and fixed; the model does not change."""

import copy
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from tests.torch.compared import perceptron
from tests.torch.test_as_written import RMSNorm, WithAutocast

RNG = np.random.default_rng(0)
X, Y = (torch.tensor(RNG.standard_normal(shape), dtype=torch.float32) for shape in ((16, 4), (16, 1)))
IMAGES, SEQUENCES = (torch.tensor(RNG.standard_normal(s), dtype=torch.float32) for s in ((4, 1, 6, 6), (3, 6, 4)))


def perceptron_of(*inner):
    return perceptron(*inner, sizes=(4, 8, 1), seed=1)


def relu():
    return perceptron_of(nn.ReLU())


def images():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1))


def sgd(lr):
    """A function that makes the optimizer of a model."""
    return lambda model: torch.optim.SGD(model.parameters(), lr=lr)


def adamw(**options):
    return lambda model: torch.optim.AdamW(model.parameters(), **{"lr": 1e-3} | options)


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.lstm, self.head = nn.LSTM(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])


MIXED = sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=sf.BF16)
#: Name: model, loss, batches, policy, optimizer, and what is found first: kind, phase, path, operation, role.
PLANTED = {
    "eps that underflows": (
        relu, F.mse_loss, [(X, Y)], "fp16-standard", adamw(), ("NaN", "update", "0.weight.update", "divide", "weights")
    ),
    "no loss scale": (
        relu, lambda output, y: F.mse_loss(output, y) * 1e-7, [(X, Y)], "fp16-master", sgd(1e5),
        ("underflow", "backward", "", "divide", "activation_gradients"),
    ),
    "lost updates": (
        relu, F.mse_loss, [(X, Y)], "bf16-standard", sgd(1e-4),
        ("lost updates", "update", "0.weight", "update", "weights"),
    ),
    "a variance of batch norm": (
        images, F.mse_loss, [(3000 * IMAGES, Y[:4])], "fp16-master", None,
        ("infinity", "forward", "1", "multiply", "activations"),
    ),
    "second moment stalled": (
        relu, F.mse_loss, [(X, Y)], MIXED, adamw(weight_decay=0.0),
        ("stalled moments", "update", "0.weight.exp_avg_sq", "moment", "optimizer_state"),
    ),
    "an LSTM's operands": (
        Sequences, F.mse_loss, [(1e6 * SEQUENCES, Y[:6])], "fp16-master", None,
        ("infinity", "forward", "lstm", "cast_input", "compute"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_first_and_its_override_fixes_it(name):
    model, loss_fn, batches, policy, optimizer, expected = PLANTED[name]
    model = model()
    chosen = None if optimizer is None else optimizer(model)
    found = sf.diagnose(model, loss_fn, batches, policy, optimizer=chosen, steps=2)
    first = found.first
    assert (first.kind, first.phase, first.path, first.operation, first.role) == expected
    assert all(fault.verified for fault in found.faults)


def test_a_healthy_training_raises_no_alarm():
    for make, batch, policy in (
        (relu, (X, Y), "fp8-hybrid"), (images, (IMAGES, Y[:4]), "amp-bf16"),
        (Sequences, (SEQUENCES, Y[:6]), "fp8-hybrid"),
    ):  # fmt: skip
        model = make()
        found = sf.diagnose(model, F.mse_loss, [batch], policy, optimizer=adamw(lr=1e-2)(model), steps=2)
        assert found.faults == ()


def test_data_that_are_nan_are_named():
    for dtype in (torch.float32, torch.bfloat16):
        good, bad, model = X.to(dtype), X.to(dtype, copy=True), relu()
        bad[3, 1] = float("nan")
        model.register_forward_pre_hook(lambda _, args: (args[0].float(),))
        (fault,) = sf.diagnose(model, F.mse_loss, [(good, Y), (bad, Y)], "fp16-master", steps=2).faults
        assert fault.kind == "NaN in data" and "(3, 1)" in fault.why


def test_a_loss_scale_that_is_too_large_is_fixed_in_layers_without_parameters_too():
    model, scaler = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.amp.GradScaler("cpu", 2.0**40)
    found = sf.diagnose(model, F.mse_loss, [(X, Y)], "amp-fp16", optimizer=adamw()(model), scaler=scaler, steps=3)
    assert ("1", "relu") in [(fault.path, fault.operation) for fault in found.faults]
    assert all(fault.verified for fault in found.faults) and found.first.also == "a loss scale of 65536"


def test_model_optimizer_schedule_and_random_numbers_do_not_change():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = adamw()(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    F.mse_loss(model(X), Y).backward()
    optimizer.step()
    schedule.step()
    random = torch.random.get_rng_state()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]))
    sf.diagnose(model, F.mse_loss, [(X, Y)], "fp16-standard", optimizer=optimizer, steps=2)
    after = model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]
    assert repr(before[1]["param_groups"]) == repr(after[1]["param_groups"])
    assert all(torch.equal(x, after[0][name]) for name, x in before[0].items())
    for number, kept in before[1]["state"].items():
        assert all(torch.equal(x, after[1]["state"][number][name]) for name, x in kept.items())
    assert all(map(torch.equal, before[2], after[2]))
    assert torch.equal(random, torch.random.get_rng_state())


#: Invalid arguments, and the message.
WRONG = [
    ({"optimizer": 3}, "optimizer is one of torch.optim, got a int"),
    ({"optimizer": sgd(0.1)(relu())}, "parameters that are not in the model"),
    ({"scaler": 3, "optimizer": None}, "also pass optimizer="),
    ({"batches": [(X.numpy(), Y.numpy())]}, "must contain tensors, got a NumPy array"),
    ({"model": nn.Linear(4, 1).half()}, r"torch.float16, which only 'as-written' follows: pass .* or model.float\(\)"),
    ({"loss_fn": lambda output, y: output}, "must be a torch.Tensor with one element"),
]


def test_nonsense_another_block_and_a_loss_that_holds_the_model_itself_are_refused_and_leave_its_gradients():
    model = relu()
    given = {"model": model, "loss_fn": F.mse_loss, "batches": [(X, Y)], "policy": "fp32"}
    closure = {"optimizer": torch.optim.LBFGS(model.parameters())}, "LBFGS calls a closure"
    for change, words in (*WRONG, closure):
        with pytest.raises(ValueError, match=words):
            sf.diagnose(**given | change)
    with sf.torch.simulate(model, "fp32"):
        model(X)
        with pytest.raises(ValueError, match="call it outside the block of simfloat.torch.simulate"):
            sf.diagnose(**given)
    words = "loss_fn uses a parameter of shape .1, 8., which the copy of the model does not have"
    for call, batch in ((sf.diagnose, [(X, Y)]), (sf.cost, (X, Y))):
        with pytest.raises(ValueError, match=words):
            call(model, lambda output, y: F.mse_loss(output, y) + model[2].weight.sum(), batch, "fp32")
    assert all(parameter.grad is None for parameter in model.parameters())


RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(16, 4, generator=RANDOM)
PRODUCTS = INPUTS[:, :1] * INPUTS[:, 1:2]
TOKENS, TARGETS = INPUTS.reshape(4, 4, 4), PRODUCTS.reshape(4, 4, 1)


class Attention(nn.Module):
    """One head, which may be masked by a number."""

    def __init__(self, mask=None, gain=1.0, width=4):
        super().__init__()
        torch.manual_seed(1)
        self.q, self.k, self.v = nn.Linear(4, width), nn.Linear(4, width), nn.Linear(4, 1)
        self.mask, self.gain = mask, gain

    def forward(self, x):
        scores = (self.q(x) * self.gain) @ (self.k(x) * self.gain).mT / self.q.out_features**0.5
        if self.mask is not None:
            scores = scores.masked_fill(torch.ones(4, 4).tril(-1) == 0, self.mask)
        return torch.softmax(scores / self.gain**2, -1) @ self.v(x)


class Autocast(WithAutocast):
    """A program that runs a model under autocast, and has its results in float32."""

    def forward(self, x):
        return super().forward(x).float()


class Float8(nn.Module):
    """A layer whose operands are converted to a float8 type without a scale."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, 4), 0.5))

    def forward(self, x):
        x, w = (t.to(torch.float8_e4m3fn).bfloat16() for t in (x, self.weight))
        return (x @ w.T).float()


class HalfNorm(nn.Module):
    """A norm of float32 inputs that computes in FP16, so that a large row becomes zero."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        half = x.half()
        return (half * torch.rsqrt(half.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class LargeHead(nn.Module):
    """A program with one result beyond FP16, which the loss scales down in float32."""

    def __init__(self, *last):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.last = nn.Sequential(*last)
        nn.init.constant_(self.head.weight, 4e4)
        nn.init.constant_(self.head.bias, 4e4)

    def forward(self, x):
        return self.last(self.head(torch.tanh(self.inner(x))))


def scaled_down_loss(output, y):
    return (output.float() * 1e-6 - y.float()).square().mean()


def small_loss(output, y):
    return F.mse_loss(output, y) * 2.0**-21


HALF, BF16 = torch.float16, torch.bfloat16

#: Name: model, loss, batch, dtype of the program (None for autocast), optimizer, the fault that is found (kind, phase,
#: path, operation), and words of its remedy.
PROGRAMS = {
    "Adam's eps is 0 in FP16": (
        perceptron_of(nn.Tanh()), F.mse_loss, (INPUTS, PRODUCTS), HALF, adamw(lr=1e-2, weight_decay=0.0),
        ("infinity", "update", "0.weight", "update"), r"in the program: AdamW\(..., eps=1e-07\)",
    ),
    "a norm squares in FP16": (
        perceptron_of(RMSNorm()), F.mse_loss, (2000 * INPUTS, PRODUCTS), HALF, None,
        ("infinity", "forward", "1", "power"), r"run '1' in float32, .*\.float\(\).*\.to\(x.dtype\)",
    ),
    "a mask beyond FP16": (
        Attention(mask=-1e9), F.mse_loss, (TOKENS, TARGETS), HALF, None,
        ("infinity", "forward", "", "divide"), r"mask by torch.finfo\(x.dtype\).min or torch.where",
    ),
    "scores before their factor": (
        Attention(gain=60.0, width=1024), F.mse_loss, (TOKENS, TARGETS), HALF, None,
        ("infinity", "forward", "", "matmul"), r"scale q before its product, \(q \* 0.0625\)",
    ),
    "a loss that overflows": (
        perceptron_of(nn.Tanh()), F.mse_loss, (INPUTS, 1000 * PRODUCTS), HALF, None,
        ("infinity", "forward", "", "multiply"), r"compute the loss in float32, by loss_fn\(model\(x\).float\(\), y\)",
    ),
    "a result beyond FP16": (
        LargeHead(), scaled_down_loss, (INPUTS, PRODUCTS), HALF, None,
        ("infinity", "forward", "head", "add"), "run 'head' in float32 and keep its result in float32, .*without .to",
    ),
    "rows that a norm in FP16 makes zero": (
        nn.Sequential(HalfNorm(), perceptron_of(nn.Tanh())), lambda z, y: F.mse_loss(100 * z, y),
        (INPUTS * (1 + 2000 * (torch.arange(16) < 7))[:, None], PRODUCTS), None, None,
        ("infinity", "forward", "0", "power"), "run '0' in float32 .* in place of its own conversions",
    ),
    "updates that BF16 loses": (
        perceptron_of(nn.Tanh()), F.mse_loss, (INPUTS, PRODUCTS), BF16, sgd(1e-4),
        ("lost updates", "update", "0.weight", "update"), r"policy.override\('\*', update='kahan'\)",
    ),
    "weight decay that BF16 loses": (
        perceptron_of(nn.Tanh()), F.mse_loss, (INPUTS, PRODUCTS), BF16, adamw(lr=1e-2, weight_decay=1e-3),
        ("weight decay lost", "update", "0.weight", "update"), r"a master copy of the weights.*torch.autocast",
    ),
    "gradients below FP16, under autocast": (
        Autocast(perceptron_of(nn.Tanh()), HALF), small_loss, (INPUTS, PRODUCTS), None, sgd(1e3),
        ("underflow", "backward", "net.2", "linear"), r"a loss scale, torch.amp.GradScaler\(init_scale=\d+\)$",
    ),
    "all gradients below FP16, where autocast converts the results": (
        Autocast(perceptron_of(nn.Tanh()), HALF), lambda z, y: F.mse_loss(z, y) * 2.0**-26, (INPUTS, PRODUCTS), None,
        sgd(1e-2),
        ("underflow", "backward", "", "cast"), r"a loss scale, torch.amp.GradScaler\(init_scale=\d+\)$",
    ),
    "float8 numbers that saturate": (
        Float8(), F.mse_loss, (1024 * INPUTS.sign(), PRODUCTS), None, sgd(1e-9),
        ("saturation", "forward", "", "cast"), r"scale float8 tensors, s = x.abs\(\).amax\(\)",
    ),
    "gradients below FP16, with FP16 parameters": (
        perceptron_of(nn.Tanh()), small_loss, (INPUTS, PRODUCTS), HALF, sgd(1e3),
        ("underflow", "backward", "", "mse_loss"), r"a master copy .* and a loss scale, torch.amp.GradScaler",
    ),
}  # fmt: skip


def diagnosis_of(name, policy="as-written", steps=4):
    model, loss_fn, batch, dtype, make, *_ = PROGRAMS[name]
    model, batch = (model, batch) if dtype is None else (model.to(dtype), tuple(x.to(dtype) for x in batch))
    optimizer = None if make is None else make(model)
    return sf.diagnose(model, loss_fn, [batch], policy, optimizer=optimizer, steps=steps)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fault_of_a_program_has_a_verified_remedy_in_the_program(name):
    *_, expected, words = PROGRAMS[name]
    found = diagnosis_of(name)
    fault = next(fault for fault in found if fault[0] == expected[0])
    assert (fault.kind, fault.phase, fault.path, fault.operation) == expected and fault.verified
    assert re.search(words, fault.override), fault.override
    assert abs(found.losses["mended"][-1] / found.losses["reference"][-1] - 1) < 0.02
    assert type(found.policy) is sf.Policy


def test_a_remedy_that_leaves_the_loss_infinite_is_not_verified_and_a_mask_needs_a_mask():
    for last in (nn.Linear(1, 1), nn.GroupNorm(1, 1)):  # neither takes a result in float32
        found = sf.diagnose(
            LargeHead(last).half(), scaled_down_loss, [(INPUTS.half(), PRODUCTS.half())], "as-written", steps=1
        )
        assert not any(map(np.isfinite, found.losses["mended"] + found.losses["policy"]))
        (fault,) = found
        assert (fault.path, fault.operation, fault.verified) == ("head", "add", False)
        assert "mask" not in fault.override
    # A large factor of the loss is not the number of a mask.
    large = lambda z, y: (z * 1e6 - y).float().mean()  # noqa: E731
    (fault, *_) = sf.diagnose(nn.Linear(4, 1).half(), large, [(INPUTS.half(), PRODUCTS.half())], "as-written", steps=1)
    assert fault.override == "in the program: compute the loss in float32, by loss_fn(model(x).float(), y)"
    # A large factor of zeros and ones is.
    masked = lambda z, y: ((z + (1 - (y > 0).half()) * -1e9).softmax(1) * y).sum()  # noqa: E731
    (fault,) = sf.diagnose(nn.Linear(4, 1).half(), masked, [(INPUTS.half(), PRODUCTS.half())], "as-written", steps=1)
    assert fault.verified and "mask by torch.finfo(x.dtype).min" in fault.override


def test_a_healthy_program_raises_no_alarm():
    for policy, model, lr, batch in (
        ("as-written", perceptron_of(nn.LayerNorm(8), nn.GELU()).to(BF16), 1.0, (INPUTS.to(BF16), PRODUCTS.to(BF16))),
        ("as-written-cuda", Autocast(perceptron_of(RMSNorm())), 1e-2, (INPUTS, PRODUCTS)),
    ):
        before, optimizer = [p.clone() for p in model.parameters()], sgd(lr)(model)
        assert sf.diagnose(model, F.mse_loss, [batch], policy, optimizer=optimizer, steps=2).faults == ()
        assert all(map(torch.equal, before, model.parameters())) and not optimizer.state


def test_the_change_in_the_program_gives_the_losses_with_its_remedy():
    found = diagnosis_of("a norm squares in FP16")
    model = perceptron_of(RMSNorm(is_wide=True)).half()
    model[1].float()
    with sf.torch.simulate(model, "as-written"):
        output = model[0]((2000 * INPUTS).half())
        loss = F.mse_loss(model[2](model[1](output).half()), PRODUCTS.half())
    assert found.losses["mended"] == [loss.item()] * 4


def test_a_loss_scale_that_skips_all_steps_is_replaced_by_a_smaller_one():
    model = Autocast(perceptron_of(nn.Tanh()), HALF)
    optimizer, scaler = sgd(0.1)(model), torch.amp.GradScaler("cpu", init_scale=2.0**24)
    found = sf.diagnose(
        model, F.mse_loss, [(INPUTS, PRODUCTS)], "as-written", optimizer=optimizer, scaler=scaler, steps=3
    )
    assert found.first.override == "in the program: a loss scale, torch.amp.GradScaler(init_scale=65536)"
    assert found.first.verified and found.skipped == 3
