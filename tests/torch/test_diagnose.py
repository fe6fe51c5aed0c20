"""Faults of a PyTorch model are found and fixed as in simfloat.nn; model and optimizer do not change."""

import copy

import numpy as np
import pytest

import simfloat as sf
from tests.torch.compared import perceptron

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn

RNG = np.random.default_rng(0)
X, Y = (torch.tensor(RNG.standard_normal(shape), dtype=torch.float32) for shape in ((16, 4), (16, 1)))
IMAGES, SEQUENCES = (torch.tensor(RNG.standard_normal(s), dtype=torch.float32) for s in ((4, 1, 6, 6), (3, 6, 4)))


def mlp():
    return perceptron(nn.ReLU(), sizes=(4, 8, 1), seed=1)


def images():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1))


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.lstm, self.head = nn.LSTM(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3} | options)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1} | options)


MIXED = sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=sf.BF16)
#: Name: model, loss, batches, policy, optimizer, and what is found first: kind, phase, path, operation, role.
PLANTED = {
    "eps that underflows": (
        mlp, F.mse_loss, [(X, Y)], "fp16-standard", adamw, ("NaN", "update", "0.weight.update", "divide", "weights")
    ),
    "no loss scale": (
        mlp, lambda output, y: F.mse_loss(output, y) * 1e-7, [(X, Y)], "fp16-master", lambda model: sgd(model, lr=1e5),
        ("underflow", "backward", "", "divide", "activation_gradients"),
    ),
    "lost updates": (
        mlp, F.mse_loss, [(X, Y)], "bf16-standard", lambda model: sgd(model, lr=1e-4),
        ("lost updates", "update", "0.weight", "update", "weights"),
    ),
    "a variance of batch norm": (
        images, F.mse_loss, [(3000 * IMAGES, Y[:4])], "fp16-master", None,
        ("infinity", "forward", "1", "multiply", "activations"),
    ),
    "second moment stalled": (
        mlp, F.mse_loss, [(X, Y)], MIXED, lambda model: adamw(model, weight_decay=0.0),
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
        (mlp, (X, Y), "fp8-hybrid"), (images, (IMAGES, Y[:4]), "amp-bf16"),
        (Sequences, (SEQUENCES, Y[:6]), "fp8-hybrid"),
    ):  # fmt: skip
        model = make()
        found = sf.diagnose(model, F.mse_loss, [batch], policy, optimizer=adamw(model, lr=1e-2), steps=2)
        assert found.faults == ()


def test_data_that_are_nan_are_named():
    for dtype in (torch.float32, torch.bfloat16):
        good, bad, model = X.to(dtype), X.to(dtype, copy=True), mlp()
        bad[3, 1] = float("nan")
        model.register_forward_pre_hook(lambda _, args: (args[0].float(),))
        (fault,) = sf.diagnose(model, F.mse_loss, [(good, Y), (bad, Y)], "fp16-master", steps=2).faults
        assert fault.kind == "NaN in data" and "(3, 1)" in fault.why


def test_a_loss_scale_that_is_too_large_is_fixed_in_layers_without_parameters_too():
    model, scaler = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.amp.GradScaler("cpu", 2.0**40)
    found = sf.diagnose(model, F.mse_loss, [(X, Y)], "amp-fp16", optimizer=adamw(model), scaler=scaler, steps=3)
    assert ("1", "relu") in [(fault.path, fault.operation) for fault in found.faults]
    assert all(fault.verified for fault in found.faults) and found.first.also == "a loss scale of 65536"


def test_model_optimizer_schedule_and_random_numbers_do_not_change():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = adamw(model)
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


#: What is passed instead, and what is said.
WRONG = [
    ({"optimizer": 3}, "optimizer is one of torch.optim, got a int"),
    ({"optimizer": sgd(mlp())}, "parameters that are not in the model"),
    ({"scaler": 3, "optimizer": None}, "also pass optimizer="),
    ({"batches": [(X.numpy(), Y.numpy())]}, "must contain tensors, got a NumPy array"),
    ({"model": nn.Linear(4, 1).half()}, r"torch.float16, which only 'as-written' follows: pass .* or model.float\(\)"),
    ({"loss_fn": lambda output, y: output}, "must be a torch.Tensor with one element"),
]


def test_nonsense_another_block_and_a_loss_that_holds_the_model_itself_are_refused_and_leave_its_gradients():
    model = mlp()
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
