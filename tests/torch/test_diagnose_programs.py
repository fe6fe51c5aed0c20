"""Diagnoses of programs in their own dtypes: a remedy is a change of the program, which a trial has verified."""

import re

import pytest

import simfloat as sf
from tests.torch.test_as_written import RMSNorm, WithAutocast

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn

RANDOM = torch.Generator().manual_seed(0)
X = torch.randn(16, 4, generator=RANDOM)
Y = X[:, :1] * X[:, 1:2]
TOKENS, TARGETS = X.reshape(4, 4, 4), Y.reshape(4, 4, 1)


def perceptron(*inner):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), *inner, nn.Linear(8, 1))


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


def sgd(lr):
    return lambda model: torch.optim.SGD(model.parameters(), lr=lr)


def adamw(**options):
    return lambda model: torch.optim.AdamW(model.parameters(), **{"lr": 1e-2, "weight_decay": 0.0} | options)


def small_loss(output, y):
    return F.mse_loss(output, y) * 2.0**-21


HALF, BF16 = torch.float16, torch.bfloat16

#: Name: model, loss, batch, dtype of the program (None for autocast), optimizer, the fault that is found (kind, phase,
#: path, operation), and words of its remedy.
PROGRAMS = {
    "Adam's eps is 0 in FP16": (
        perceptron(nn.Tanh()), F.mse_loss, (X, Y), HALF, adamw(),
        ("infinity", "update", "0.weight", "update"), r"in the program: AdamW\(..., eps=1e-07\)",
    ),
    "a norm squares in FP16": (
        perceptron(RMSNorm()), F.mse_loss, (2000 * X, Y), HALF, None,
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
        perceptron(nn.Tanh()), F.mse_loss, (X, 1000 * Y), HALF, None,
        ("infinity", "forward", "", "multiply"), r"compute the loss in float32, by loss_fn\(model\(x\).float\(\), y\)",
    ),
    "updates that BF16 loses": (
        perceptron(nn.Tanh()), F.mse_loss, (X, Y), BF16, sgd(1e-4),
        ("lost updates", "update", "0.weight", "update"), r"policy.override\('\*', update='kahan'\)",
    ),
    "weight decay that BF16 loses": (
        perceptron(nn.Tanh()), F.mse_loss, (X, Y), BF16, adamw(weight_decay=1e-3),
        ("weight decay lost", "update", "0.weight", "update"), r"a master copy of the weights.*torch.autocast",
    ),
    "gradients below FP16, under autocast": (
        Autocast(perceptron(nn.Tanh()), HALF), small_loss, (X, Y), None, sgd(1e3),
        ("underflow", "backward", "net.2", "linear"), r"a loss scale, torch.amp.GradScaler\(init_scale=\d+\)$",
    ),
    "all gradients below FP16, where autocast converts the results": (
        Autocast(perceptron(nn.Tanh()), HALF), lambda z, y: F.mse_loss(z, y) * 2.0**-26, (X, Y), None, sgd(1e-2),
        ("underflow", "backward", "", "cast"), r"a loss scale, torch.amp.GradScaler\(init_scale=\d+\)$",
    ),
    "float8 numbers that saturate": (
        Float8(), F.mse_loss, (1024 * X.sign(), Y), None, sgd(1e-9),
        ("saturation", "forward", "", "cast"), r"scale float8 tensors, s = x.abs\(\).amax\(\)",
    ),
    "gradients below FP16, with FP16 parameters": (
        perceptron(nn.Tanh()), small_loss, (X, Y), HALF, sgd(1e3),
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


def test_a_healthy_program_raises_no_alarm():
    for policy, model, lr, batch in (
        ("as-written", perceptron(nn.LayerNorm(8), nn.GELU()).to(BF16), 1.0, (X.to(BF16), Y.to(BF16))),
        ("as-written-cuda", Autocast(perceptron(RMSNorm())), 1e-2, (X, Y)),
    ):
        before, optimizer = [p.clone() for p in model.parameters()], sgd(lr)(model)
        assert sf.diagnose(model, F.mse_loss, [batch], policy, optimizer=optimizer, steps=2).faults == ()
        assert all(map(torch.equal, before, model.parameters())) and not optimizer.state


def test_the_change_in_the_program_gives_the_losses_with_its_remedy():
    found = diagnosis_of("a norm squares in FP16")
    model = perceptron(RMSNorm(is_wide=True)).half()
    model[1].float()
    with sf.torch.simulate(model, "as-written"):
        output = model[0]((2000 * X).half())
        loss = F.mse_loss(model[2](model[1](output).half()), Y.half())
    assert found.losses["mended"] == [loss.item()] * 4


def test_a_loss_scale_that_skips_all_steps_is_replaced_by_a_smaller_one():
    model = Autocast(perceptron(nn.Tanh()), HALF)
    optimizer, scaler = sgd(0.1)(model), torch.amp.GradScaler("cpu", init_scale=2.0**24)
    found = sf.diagnose(model, F.mse_loss, [(X, Y)], "as-written", optimizer=optimizer, scaler=scaler, steps=3)
    assert found.first.override == "in the program: a loss scale, torch.amp.GradScaler(init_scale=65536)"
    assert found.first.verified and found.skipped == 3
