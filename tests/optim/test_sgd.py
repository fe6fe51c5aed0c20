"""SGD: its options, its state, and the update of weights."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


def parameter(values):
    return sf.Parameter(np.array(values, np.float32))


def run(policy, start, gradient, lr, steps, **options):
    w = parameter(start)
    optimizer = sf.optim.SGD([w], lr, **options)
    with sf.simulate(policy):
        for _ in range(steps):
            w.grad = np.array(gradient, np.float32)
            optimizer.step()
    return w, optimizer


# With w = 1 and a constant update u, the pure 16-bit sums stop: |u| below half a gap is lost by nearest rounding, and
# Kahan's compensation reaches to about 2^-2p (facts of arXiv 2010.06192's setting, checked with exact arithmetic).
@pytest.mark.parametrize("policy, exponent, moves", [
    ("bf16-standard", -8, False), ("bf16-standard", -7, True),
    ("bf16-kahan", -14, True), ("bf16-kahan", -16, False),
    ("bf16-fp32-weights", -16, True),
])  # fmt: skip
def test_small_updates_are_cancelled_or_not(policy, exponent, moves):
    w, _ = run(policy, [1.0], [-1.0], 2.0**exponent, 400)
    assert (w.data[0] > 1) == moves


def test_a_gradient_that_no_longer_fits_is_refused_before_anything_is_updated():
    model = sf.nn.Module()
    model.first, model.second = parameter([1.0, 2.0]), parameter([3.0, 4.0])
    model.first.grad, model.second.grad = np.ones(2), np.ones(2)
    model.second.data = [1.0, 2.0, 3.0]
    optimizer = sf.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    message = r"the gradient of second must have the parameter's shape \(3,\), got \(2,\)"
    with sf.simulate("fp32"), pytest.raises(ValueError, match=message):
        optimizer.step()
    assert model.first.data.tolist() == [1.0, 2.0] and optimizer.state == [{}, {}]


def test_a_state_that_no_longer_fits_is_refused_before_anything_is_updated():
    w, optimizer = run("fp32", [1.0], [1.0], 0.5, 1, momentum=0.5)
    w.grad, w.data = None, [1.0, 2.0]
    w.grad = np.ones(2)
    with sf.simulate("fp32"), pytest.raises(ValueError, match=r"the momentum_buffer of parameter 0 must .* got \(1,\)"):
        optimizer.step()
    assert w.data.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("option", ["lr", "momentum", "weight_decay", "dampening"])
def test_numbers_that_cannot_be_operands_are_refused(option):
    for value in (10**30, 10**400, 2**53 + 1, np.nan, np.inf, -np.inf, 1j, "0.1", True, None, [0.1]):
        with pytest.raises(ValueError, match=f"{option} must be a "):
            sf.optim.SGD([parameter([1.0])], **{"lr": 0.1, option: value})


def test_optimizers_print_as_the_call_that_makes_them_and_their_size():
    model = sf.nn.MLP([3, 2, 1])
    assert repr(sf.optim.SGD(model.parameters(), 0.1)) == "SGD(lr=0.1, 4 parameters)"
    again = sf.optim.SGD([model.head.bias], lr=0.5, momentum=0.9, nesterov=True)
    assert repr(again) == "SGD(lr=0.5, momentum=0.9, nesterov=True, 1 parameter)"


@pytest.mark.parametrize("make, message", [
    (lambda: sf.optim.SGD([], 0.1), "needs parameters; got none"),
    (lambda: sf.optim.SGD(parameter([1.0]), 0.1), "a list of parameters in their order, got a Parameter"),
    (lambda: sf.optim.SGD(sf.nn.MLP([2, 2]), 0.1), "takes model.parameters.. or a list .* got a MLP"),
    (lambda: sf.optim.SGD(parameter([1.0]) for _ in range(0)), "got none"),
    (lambda: sf.optim.SGD([parameter([1.0])], 0.1, momentum=-1), "momentum must not be negative"),
])  # fmt: skip
def test_bad_options_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_step_outside_simulate_is_refused():
    w = parameter([1.0])
    w.grad = np.ones(1)
    with pytest.raises(ValueError, match="inside `with simfloat.simulate"):
        sf.optim.SGD([w], 0.1).step()


def test_a_step_calls_the_closure_first_and_returns_its_loss_as_in_torch():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    x, w = np.array([1.0, 2.0, 3.0], np.float32), parameter([0.5, -1.0, 0.25])
    theirs = torch.nn.Parameter(torch.tensor([0.5, -1.0, 0.25]))
    optimizer, wanted = sf.optim.SGD([w], 0.125), torch.optim.SGD([theirs], 0.125)

    def closure():
        optimizer.zero_grad()
        loss = ((w * x) * (w * x)).sum()
        loss.backward()
        return loss

    def reference():
        wanted.zero_grad()
        loss = ((theirs * torch.tensor(x)) * (theirs * torch.tensor(x))).sum()
        loss.backward()
        return loss

    with sf.simulate("fp32"):
        for _ in range(3):
            assert optimizer.step(closure).item() == wanted.step(reference).item()
            assert_bits(w.data, theirs.detach().numpy())
        assert optimizer.step() is None
        with pytest.raises(ValueError, match="takes a function that computes the loss .* got a Tensor"):
            optimizer.step(closure())
