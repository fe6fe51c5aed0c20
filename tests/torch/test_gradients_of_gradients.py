"""Gradients of gradients: a backward pass with create_graph=True has its own backward pass."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import simfloat as sf
from simfloat.formats import Format
from simfloat.policy import Policy

ROLES = {"activation_gradients": Format(8, 4), "weight_gradients": Format(8, 6)}


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def physics(model):
    """The residual of u'' + u = 0, as physics-informed networks have it."""
    x = torch.linspace(-1, 1, 5, dtype=next(model.parameters()).dtype).unsqueeze(1).requires_grad_()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    return ((bend + u) ** 2).mean()


def critic():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(4, 4, 3, stride=2), nn.LayerNorm([4, 2, 2])
    return nn.Sequential(*layers, nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 1))


def penalty(model):
    """WGAN-GP's: (norm of the critic's gradient - 1)^2."""
    x = torch.linspace(-1, 1, 50, dtype=next(model.parameters()).dtype).reshape(2, 1, 5, 5).sin().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return ((gradient.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


def recurrent():
    torch.manual_seed(0)
    return nn.LSTM(3, 4)


def outer(model):
    """A loss after a step of an inner training, as MAML has it."""
    x = torch.linspace(-1, 1, 18, dtype=next(model.parameters()).dtype).reshape(3, 2, 3)
    weights = list(model.parameters())
    gradients = torch.autograd.grad(model(x)[0].square().sum(), weights, create_graph=True)
    return sum(((w - 0.1 * g) ** 3).sum() for w, g in zip(weights, gradients, strict=True))


CASES = [(perceptron, physics), (critic, penalty), (recurrent, outer)]


def gradients(make, loss, policy, observer=None, dtype=torch.float32):
    model = make().to(dtype)
    if policy is None:
        loss(model).backward()
    else:
        with sf.torch.simulate(model, policy, observer=observer):
            loss(model).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(("make", "loss"), CASES)
def test_they_are_those_of_plain_pytorch_have_the_roles_of_gradients_and_watching_changes_no_bit(make, loss):
    plain, simulated = (gradients(make, loss, policy, dtype=torch.float64) for policy in (None, "fp64"))
    assert len(plain) == len(simulated) > 2
    for a, b in zip(plain, simulated, strict=True):  # up to the order of sums
        torch.testing.assert_close(b, a, rtol=1e-11, atol=1e-11)
    policy = Policy(compute=sf.FP32, **ROLES)
    found, watched = gradients(make, loss, policy), gradients(make, loss, policy, sf.Recorder())
    assert all(map(torch.equal, found, watched))
    for x in found:
        assert np.array_equal(sf.round(x.numpy(), ROLES["weight_gradients"]), x.numpy())
    assert any(not np.array_equal(sf.round(x.numpy(), ROLES["activation_gradients"]), x.numpy()) for x in found)


def test_every_rounding_is_that_of_the_formula_by_which_pytorch_computes_it():
    """tanh twice: g (1 - y y), then the gradient of that by its operands."""
    model, x = nn.Identity(), torch.linspace(-2, 2, 33, requires_grad=True)
    with sf.torch.simulate(model, "bf16-standard"):
        y = x.tanh()
        (slope,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        (bend,) = torch.autograd.grad(slope, x, torch.ones_like(y))

    def by_formula(g, y):
        return sf.multiply(g, sf.subtract(1.0, sf.multiply(y, y, sf.BF16), sf.BF16), sf.BF16)

    values, one = sf.tanh(x.detach().numpy(), sf.BF16), np.ones(33, np.float32)
    assert np.array_equal(y.detach().numpy(), values)
    assert np.array_equal(slope.detach().numpy(), by_formula(one, values))
    reached = sf.multiply(one, sf.multiply(sf.multiply(-2.0, values, sf.BF16), one, sf.BF16), sf.BF16)
    assert np.array_equal(bend.numpy(), by_formula(reached, values))


def test_no_operation_of_a_second_backward_pass_goes_unrounded_and_each_gradient_is_counted_once():
    class Looking(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **kwargs or {})
            is_made = isinstance(result, torch.Tensor) and "empty" not in str(func)
            if is_made and torch._C._current_autograd_node() is not None:
                Looking.made += 1
                assert torch.equal(result, result.to(torch.bfloat16).to(result.dtype)), func
            return result

    model, recorder = perceptron(), sf.Recorder()
    with sf.torch.simulate(model, "bf16-standard") as run, Looking():
        physics(model).backward()
    assert Looking.made > 100
    model.zero_grad()
    with sf.torch.simulate(model, "bf16-standard", observer=recorder):
        physics(model).backward()
    for path, parameter in model.named_parameters():  # whose gradient is one, however many passes lead to it
        if parameter.grad is not None:
            assert recorder.counts(path, "backward")["total"] == parameter.numel()
    assert [row[0] for row in run.table().rows if row[1] in ("PyTorch", "refused")] == ["aten.linspace.default"]  # data


def test_what_a_program_records_in_a_backward_pass_unasked_is_refused():
    class Recording(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(context, g):
            (x,) = context.saved_tensors
            with torch.enable_grad():
                return g * (x.detach().requires_grad_() * 2).detach()

    model, x = nn.Identity(), torch.ones(2, requires_grad=True)
    with sf.torch.simulate(model, "fp32"), pytest.raises(ValueError, match="enable_grad"):
        Recording.apply(model(x)).sum().backward()
