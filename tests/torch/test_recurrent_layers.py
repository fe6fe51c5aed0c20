"""The steps of a recurrent layer in one call have the bits and counts of single operations, up to any derivative."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import simfloat as sf
from tests.torch.compared import SingleOperations, assert_alike, entries, three_ways


def both_results(layer, x):
    """Outputs and last states."""
    outputs, ends = layer(x)
    return outputs.square().sum() + sum((end**3).sum() for end in (ends if isinstance(ends, tuple) else (ends,)))


def last_state(layer, x):
    """Nothing but the last state of all."""
    ends = layer(x)[1]
    return (ends[-1] if isinstance(ends, tuple) else ends).sum()


def twice(layer, x):
    """A layer whose weights serve two sequences, the second one from where the first one ended."""
    outputs, ends = layer(x)
    return (outputs[1:] * layer(2 * x, ends)[0][1:]).sum()


def again(layer, x):
    """A layer that runs again in the backward pass."""
    return checkpoint(lambda x: layer(x)[0], x, use_reentrant=False).square().sum()


def slope_of_slopes(layer, x):
    """Gradients of gradients of gradients, by the weights."""
    (g,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.square().sum(), x, create_graph=True)
    return h.square().sum()


def inner_step(layer, x):
    """A loss after a step of an inner training."""
    weights = list(layer.parameters())
    gradients = torch.autograd.grad(layer(x)[0].square().sum(), weights, create_graph=True)
    return sum(((w - 0.1 * g) ** 3).sum() for w, g in zip(weights, gradients, strict=True))


def inner_step_from_a_state(layer, x):
    """A loss after an inner step from a first state with a gradient; the inner backward pass also reads this state."""
    state = torch.cat([x[:1], x[:1, :, :1]], -1)
    gradients = torch.autograd.grad(layer(x, state)[0].square().sum(), list(layer.parameters()), create_graph=True)
    return sum(g.square().sum() for g in gradients)


LAYERS = {
    "LSTM": lambda: nn.LSTM(3, 4),
    "LSTM, deep, both ways": lambda: nn.LSTM(3, 4, 2, bidirectional=True, dropout=0.3),
    "GRU": lambda: nn.GRU(3, 4),
    "RNN": lambda: nn.RNN(3, 4, 2),
    "RNN with relu": lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False),
}

#: Gradients of weights and of activations in different formats.
ROLES = sf.Policy(compute=sf.FP32, activations=sf.BF16, activation_gradients=sf.BF16, weight_gradients=sf.FP16)


def found(make, loss, policy, **options):
    """The state after two steps, and the table of operations."""
    torch.manual_seed(0)
    layer, x = make(), torch.randn(3, 2, 3, requires_grad=True)
    optimizer, left = torch.optim.SGD(layer.parameters(), lr=0.1), []
    with sf.torch.simulate(layer, policy, **options) as run:
        for _ in range(2):
            optimizer.zero_grad()
            x.grad = None
            result = loss(layer, x)
            result.backward()
            left += [result.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())]
            optimizer.step()
    return left, {row[0] for row in run.table().rows}


def one_step(layer, x):
    """An infinite gradient for the output of the last step. Some gradients are missing: they are zero and not NaN."""
    return (layer(x)[0][-1] / 0).sum()


CASES = [
    ("LSTM, deep, both ways", one_step, "bf16-standard"),
    ("LSTM", both_results, "fp8-hybrid"), ("LSTM", last_state, "bf16-standard"), ("LSTM", again, "fp32"),
    ("LSTM", inner_step, ROLES), ("LSTM, deep, both ways", both_results, "bf16-standard"), ("GRU", twice, ROLES),
    ("GRU", slope_of_slopes, "bf16-standard"), ("GRU", inner_step_from_a_state, "bf16-standard"),
    ("RNN", inner_step, ROLES), ("RNN with relu", slope_of_slopes, ROLES),
]  # fmt: skip


@pytest.mark.parametrize(("name", "loss", "policy"), CASES)
def test_one_call_has_the_bits_and_counts_of_single_operations(name, loss, policy):
    observed, single = sf.Recorder(), sf.Recorder()
    together, table = found(LAYERS[name], loss, policy)
    counted, counted_table = found(LAYERS[name], loss, policy, observer=observed)
    with SingleOperations():
        apart, watched = found(LAYERS[name], loss, policy, observer=single)
    forward = {"aten.sigmoid_.default", "aten.tanh.default", "aten.relu.default"}
    # A GRU with a Recorder runs as single operations.
    assert not forward & table and bool(forward & counted_table) == (name == "GRU") and forward & watched
    assert_alike(together, counted, apart)
    assert entries(observed) == entries(single) and observed.first_nan == single.first_nan


class Each(sf.Observer):
    """An observer that may need every single operation."""

    def observe(self, events, operation, path="", phase="forward"):
        """Ignore the events."""


def test_an_observer_an_override_and_draws_meet_single_operations():
    plain, _ = found(LAYERS["GRU"], both_results, "bf16-standard")
    observed, table = found(LAYERS["GRU"], both_results, "bf16-standard", observer=Each())
    assert_alike(plain, observed)
    assert "aten.sigmoid_.default" in table
    for policy in (
        sf.policies["bf16-standard"].override(operation="sigmoid", activations=sf.FP32),
        sf.Policy(compute=sf.BF16, rounding=sf.stochastic()),
    ):
        assert "aten.sigmoid_.default" in found(LAYERS["GRU"], both_results, policy)[1]


def test_weights_that_are_written_between_both_passes_are_an_error_as_ever():
    layer = nn.RNN(3, 4)
    with sf.torch.simulate(layer, "fp32"):
        loss = layer(torch.ones(2, 1, 3))[0].sum()
        with torch.no_grad():
            layer.weight_hh_l0 += 1
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()


class Begun(nn.LSTM):
    """A layer whose first states are a parameter."""

    def __init__(self):
        super().__init__(3, 4)
        self.begin = nn.Parameter(torch.linspace(-1, 2, 8).reshape(1, 2, 4))

    def forward(self, x):
        return super().forward(x, (self.begin, self.begin))


def test_a_parameter_as_the_first_state_has_the_role_of_a_parameter():
    assert_alike(*(results for results, _ in three_ways(lambda o: found(Begun, both_results, ROLES, observer=o))))
