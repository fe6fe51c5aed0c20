"""A ReLU is one call where nobody looks at operations, with the bits of PyTorch's."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import simfloat as sf
from simfloat.torch import relu_layers

POLICIES = {
    "formats apart": sf.Policy(compute=sf.BF16, activations=sf.Format(3, 2), activation_gradients=sf.Format(4, 3)),
    "upwards": sf.Policy(compute=sf.Format(5, 3), rounding=sf.toward_positive),
}


def penalty(x):
    """A loss with the gradient's own square, for which the way back is recorded."""
    y = torch.relu(x).exp()
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y + g * g


CASES = {
    "numbers that a format lacks": lambda x: torch.relu(x),
    "a module": lambda x: nn.ReLU()(x * 1.0) * x,
    "what is read twice": lambda x: (y := torch.relu(x)) + torch.relu(y) * y,
    "a gradient without memory of its own": lambda x: torch.relu(x).sum(),
    "a gradient in other memory": lambda x: torch.relu(x).t() * torch.ones(6, 8),
    "columns that lie one behind the other": lambda x: torch.relu(x.t()).t(),
    "a part that runs again": lambda x: checkpoint(lambda x: torch.relu(x.exp() * x), x, use_reentrant=False),
    "a backward pass inside of one": lambda x: checkpoint(torch.relu, x, use_reentrant=True),
    "gradients of gradients": penalty,
    "an operand by its name": lambda x: torch.relu(input=x),
}
LEFT_TO_OPERATIONS = ("columns that lie one behind the other", "a part that runs again", "an operand by its name")


@pytest.fixture
def calls(monkeypatch):
    """What ReLUs as one call gave."""
    found, apply = [], relu_layers.apply
    monkeypatch.setattr(relu_layers, "apply", lambda *given: found.append(apply(*given)) or found[-1])
    return found


def numbers(case, policy, observer=None):
    """The result, and the gradient of what goes in: numbers of either sign, zeros, NaN, and some that underflow."""
    x = torch.linspace(-4, 4, 48).reshape(8, 6)
    x[0, :4] = torch.tensor([1e-9, -0.0, 0.0, torch.nan])
    x.requires_grad_()
    with sf.torch.simulate(nn.Identity(), policy, observer=observer):
        y = CASES[case](x)
        y.sum().backward()
    return y.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", CASES)
def test_the_bits_are_those_of_operations_as_an_observer_has_them(case, policy, calls):
    one_call = numbers(case, POLICIES[policy])
    count = len(calls)
    assert bool(count) == (case not in LEFT_TO_OPERATIONS)
    watched = numbers(case, POLICIES[policy], sf.Recorder())
    assert len(calls) == count
    for a, b in zip(one_call, watched, strict=True):
        assert np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a), np.signbit(b))


@pytest.mark.parametrize("observer, node", [(None, "ReluLayerBackward"), (sf.Recorder(), "ReluBackward0")])
def test_an_observer_has_an_operation_and_the_table_has_one_either_way(observer, node):
    with sf.torch.simulate(nn.Identity(), POLICIES["formats apart"], observer=observer) as run:
        y = torch.relu(torch.ones(2, requires_grad=True))
    assert type(y.grad_fn).__name__ == node
    assert ("aten.relu.default", "rule") in {(str(func), how) for func, how, _ in run.met}


def test_a_result_that_is_written_to_is_refused_on_the_way_back():
    x = torch.ones(3, requires_grad=True)
    with sf.torch.simulate(nn.Identity(), "bf16-standard"):
        y = torch.relu(x)
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
