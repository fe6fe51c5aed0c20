"""hardtanh and a ReLU in place run as one call, with the bits, counts and errors of single operations."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import simfloat as sf
from simfloat.torch import quick_formulas
from tests.torch.compared import SingleOperations, entries

POLICIES = (
    sf.Policy(compute=sf.BF16, activations=sf.Format(3, 2), activation_gradients=sf.Format(4, 3)),
    sf.Policy(compute=sf.Format(5, 3), rounding=sf.toward_positive),
)


class Calls(nn.Module):
    """A module that calls a function of itself and x; it has a linear layer."""

    def __init__(self, function):
        super().__init__()
        self.function, self.linear = function, nn.Linear(6, 6)

    def forward(self, x):
        return self.function(self, x)


def in_parts(x):
    """Write to a part of a tensor, which is a view."""
    y = x * 2
    torch.relu_(y[:4])
    return y


CASES = {
    "hardtanh": lambda m, x: functional.hardtanh(m.linear(x)) + nn.ReLU6()(x * 4) * nn.Hardtanh(-0.3, 0.7)(x),
    "in place": lambda m, x: nn.ReLU(inplace=True)(m.linear(x)) + torch.relu_(x.exp() - 1),
    "in place, read twice": lambda m, x: (y := torch.relu_(m.linear(x))) * y + y,
    "in place, on what an operation before reads": lambda m, x: torch.relu_(m.linear(x).neg() * x.exp()),
    "in place, on a view": lambda m, x: torch.relu_((x * 1).view(6, 8)).view(8, 6),
    "in place, on a part": lambda m, x: in_parts(x),
    "in place, without gradients": lambda m, x: x * torch.relu_(x.detach().clone()),
}


#: Parts of the names of the operations that are rows.
OF_ROWS = ("relu_", "hardtanh")


def trained(case, policy, observer, *, twice):
    """Return the result, the gradients of two backward passes (or gradients of gradients), and the calls of rows."""
    torch.manual_seed(0)
    model, x = Calls(CASES[case]), torch.linspace(-2, 3, 48).reshape(8, 6).sin().requires_grad_()
    with sf.torch.simulate(model, policy, observer=observer) as run:
        for _ in range(1 if twice else 2):
            y = model(x)
            loss = y.square().sum()
            if twice:
                gradients = torch.autograd.grad(loss, [x, *model.parameters()], create_graph=True, allow_unused=True)
                loss = sum(g.square().sum() for g in gradients if g is not None)
            loss.backward()
    return [y.detach(), *(p.grad for p in (x, *model.parameters()))], {
        each for each in run.met if any(name in str(each[0]) for name in OF_ROWS)
    }


@pytest.mark.parametrize("case", CASES)
def test_calls_of_rows_have_the_bits_and_counts_of_single_operations(case, monkeypatch):
    rows, apply = [], quick_formulas.apply_formula
    monkeypatch.setattr(
        quick_formulas, "apply_formula", lambda run, call, *rest: rows.append(call.name) or apply(run, call, *rest)
    )
    for policy in POLICIES:
        for twice in (False, True):
            if twice and policy is not POLICIES[0]:
                continue
            observed, single = sf.Recorder(), sf.Recorder()
            results = [trained(case, policy, observer, twice=twice) for observer in (None, observed)]
            with SingleOperations():
                results.append(trained(case, policy, single, twice=twice))
            assert entries(observed) == entries(single)
            (one_call, met), *others = results
            for other, theirs in others:
                assert met == theirs
                for a, b in zip(one_call, other, strict=True):
                    assert (a is None) == (b is None)
                    assert a is None or np.array_equal(a.numpy().view(np.int32), b.numpy().view(np.int32))
    assert rows


def test_a_relu_in_place_raises_the_errors_of_pytorch():
    for mode in (None, SingleOperations):
        leaf, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        with sf.torch.simulate(nn.Identity(), "bf16-standard"):
            with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
                torch.relu_(leaf)
            y = torch.sigmoid(x)
            torch.relu_(y)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
            z = torch.relu_(x * 1)
            z += 1
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()
        assert mode is None or leaf.eq(1).all()
