"""Policies that change between the steps of a run, and blocks in which it is paused."""

import pytest
import torch

import simfloat as sf
from tests.torch.perceptrons import Ours, Theirs

X = torch.linspace(-1, 1, 12).reshape(4, 3)
WIDE, NARROW = "fp32", "bf16-standard"


def step(model, optimizer, x):
    optimizer.zero_grad()
    z = model(x)
    (z * z).mean().backward()
    optimizer.step()


def bits_of(model):
    return [p.detach().clone() for p in model.parameters()]


def test_steps_under_changing_policies_have_the_bits_of_our_own():
    model = Theirs(3, 4, 2, "tanh")
    own = Ours(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    own_optimizer = sf.optim.SGD(list(own.parameters()), lr=0.1, momentum=0.9)
    run, sim = sf.torch.simulate(model, NARROW, 3), sf.simulate(NARROW, 3)
    for policy in (NARROW, WIDE, "bf16-stochastic", NARROW):
        with run, sim:
            run.policy = sim.policy = policy
            step(model, optimizer, X)
            step(own, own_optimizer, sf.Tensor(X.numpy()))
    assert [p.tolist() for p in model.parameters()] == [p.data.tolist() for p in own.parameters()]
    assert run.switches == sim.switches and run.policy == sf.policies[NARROW]


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("first, second", [(NARROW, WIDE), (WIDE, NARROW)])
def test_an_update_follows_a_switch_although_nothing_has_run_since(first, second, steps):
    """It reads the stored parameters, and a parameter without gradient keeps its moments."""
    model = Theirs(3, 4, 2, "tanh")
    own = Ours(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    own_optimizer = sf.optim.SGD(list(own.parameters()), lr=0.1, momentum=0.9)
    run, sim = sf.torch.simulate(model, first), sf.simulate(first)
    with run, sim:
        for _ in range(steps):
            step(model, optimizer, X)
            step(own, own_optimizer, sf.Tensor(X.numpy()))
        for each, x in ((model, X), (own, sf.Tensor(X.numpy()))):
            z = each(x)
            (z * z).mean().backward()
        run.policy = sim.policy = second
        if steps:
            next(model.parameters()).grad = next(iter(own.parameters())).grad = None
        optimizer.step()
        own_optimizer.step()
    assert [p.tolist() for p in model.parameters()] == [p.data.tolist() for p in own.parameters()]
    moments = [state["momentum_buffer"].tolist() for state in optimizer.state.values()]
    assert moments == [state["momentum_buffer"].tolist() for state in own_optimizer.state_dict()["state"].values()]


def test_a_rule_switches_and_its_state_is_the_runs():
    model, recorder = Theirs(3, 4, 2, "tanh"), sf.Recorder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    run = sf.torch.simulate(model, NARROW, observer=recorder)
    rule = sf.Switching(NARROW, WIDE, "unchanged", above=0.001, phase="update")
    with run:
        for number in range(2):
            step(model, optimizer, X)
            run.follow(rule, number)
    assert run.policy == sf.policies[WIDE] and [switch.step for switch in run.switches] == [0]
    other = sf.torch.simulate(Theirs(3, 4, 2, "tanh"), NARROW)
    other.load_state(run.state)
    assert other.policy == run.policy and other.state == run.state


def test_a_policy_is_switched_between_steps_and_to_one_that_parameters_hold():
    model = Theirs(3, 4, 2, "tanh")
    with sf.torch.simulate(model, WIDE) as run:
        with pytest.raises(ValueError, match="float64|double"):
            run.policy = "fp64"
        with pytest.raises(ValueError, match="Did you mean"):
            run.policy = "fp23"
        assert run.policy == sf.policies[WIDE] and not run.switches

        def switch(*_):
            run.policy = NARROW

        handle = model.first.register_forward_pre_hook(switch)
        with pytest.raises(ValueError, match="not while the module 'first' runs"):
            model(X)
        handle.remove()
        result = model(X)
        result.register_hook(switch)
        with pytest.raises(ValueError, match="not while a backward pass"):
            result.sum().backward()


@pytest.mark.parametrize("first, second", [(NARROW, WIDE), (WIDE, NARROW)])
def test_a_backward_pass_follows_the_policy_of_its_forward_pass(first, second):
    def gradients(switches):
        model = Theirs(3, 4, 2, "tanh")
        with sf.torch.simulate(model, first) as run:
            loss = model(X).square().sum()
            if switches:
                run.policy = second
            loss.backward()
        return [p.grad for p in model.parameters()]

    assert all(map(torch.equal, gradients(True), gradients(False)))


def test_a_paused_run_is_pytorchs_own_and_changes_nothing():
    def trained(pauses):
        model = Theirs(3, 4, 2, "tanh")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        run = sf.torch.simulate(model, "bf16-stochastic", seed=5, observer=(recorder := sf.Recorder()))
        with run:
            for _ in range(3):
                step(model, optimizer, X)
                if pauses:
                    enabled = torch.backends.mkldnn.enabled
                    with run.paused(), run.paused():
                        assert torch.backends.mkldnn.enabled is not enabled
                        stored = Theirs(3, 4, 2, "tanh")
                        stored.load_state_dict(model.state_dict())
                        inside = model(X)
                    assert torch.backends.mkldnn.enabled is enabled
                    found.append((inside, stored))
        return bits_of(model), run.state, recorder.counts()

    found = []
    assert str(trained(True)) == str(trained(False))
    for inside, stored in found:
        assert torch.equal(inside, stored(X))


def test_tensors_that_cross_a_pause_are_refused_or_rounded_again():
    model = Theirs(3, 4, 2, "tanh")
    run = sf.torch.simulate(model, NARROW)
    with run.paused():  # outside of the block it is PyTorch's anyway
        plain = model(X)
    with run:
        inside = model(X)
        with run.paused():
            with pytest.raises(ValueError, match="paused"):
                inside.sum().backward()
            made = model(X)
            model.first.weight.data.fill_(0.1)
        assert torch.equal(made, plain)
        assert not torch.equal(model(X), inside)
        with pytest.raises(ValueError, match="outside the block"):
            made.sum().backward()
    assert torch.equal(model.first.weight, torch.full((4, 3), 0.1)), "the program wrote it, and no step has yet"
