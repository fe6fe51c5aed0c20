"""Policies that change between the steps of a run, and blocks in which it is paused."""

import pytest
import torch

import simfloat as sf
from tests.torch.compared import Perceptron, twins

X = torch.linspace(-1, 1, 12).reshape(4, 3)
WIDE, NARROW = "fp32", "bf16-standard"
BOTH_WAYS = [(NARROW, WIDE), (WIDE, NARROW)]


def model_of():
    return twins(Perceptron)[0]


def passes(model, x):
    z = model(x)
    (z * z).mean().backward()


def step(model, optimizer, x):
    optimizer.zero_grad()
    passes(model, x)
    optimizer.step()


def pair(policy):
    """A model, its optimizer, its run and its data in both packages."""
    theirs, ours = twins(Perceptron)
    optimizers = [
        package.SGD(list(model.parameters()), lr=0.1, momentum=0.9)
        for package, model in ((torch.optim, theirs), (sf.optim, ours))
    ]
    runs = sf.torch.simulate(theirs, policy, 3), sf.simulate(policy, 3)
    return list(zip((theirs, ours), optimizers, runs, (X, sf.Tensor(X.numpy())), strict=True))


def assert_equal(both):
    """Require the same parameters and moments in both packages."""
    (theirs, optimizer, *_), (ours, own_optimizer, *_) = both
    assert [p.tolist() for p in theirs.parameters()] == [p.data.tolist() for p in ours.parameters()]
    moments = [
        [state["momentum_buffer"].tolist() for state in each.state_dict()["state"].values()]
        for each in (optimizer, own_optimizer)
    ]
    assert moments[0] == moments[1]


def test_steps_under_changing_policies_have_the_bits_of_our_own():
    both = pair(NARROW)
    for policy in (NARROW, WIDE, "bf16-stochastic", NARROW):
        for model, optimizer, run, x in both:
            with run:
                run.policy = policy
                step(model, optimizer, x)
    assert_equal(both)
    assert both[0][2].switches == both[1][2].switches and both[0][2].policy == sf.policies[NARROW]


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("first, second", BOTH_WAYS)
def test_an_update_follows_a_switch_although_nothing_has_run_since(first, second, steps):
    """It reads the stored parameters, and a parameter without gradient keeps its moments."""
    both = pair(first)
    for model, optimizer, run, x in both:
        with run:
            for _ in range(steps):
                step(model, optimizer, x)
            passes(model, x)
            run.policy = second
            if steps:
                next(iter(model.parameters())).grad = None
            optimizer.step()
    assert_equal(both)


def test_a_rule_switches_and_its_state_is_the_runs():
    model, recorder = model_of(), sf.Recorder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    run = sf.torch.simulate(model, NARROW, observer=recorder)
    rule = sf.Switching(NARROW, WIDE, "unchanged", above=0.001, phase="update")
    with run:
        for number in range(2):
            step(model, optimizer, X)
            run.follow(rule, number)
    assert run.policy == sf.policies[WIDE] and [switch.step for switch in run.switches] == [0]
    other = sf.torch.simulate(model_of(), NARROW)
    other.load_state(run.state)
    assert other.policy == run.policy and other.state == run.state


def test_a_policy_is_switched_between_steps_and_to_one_that_parameters_hold():
    model = model_of()
    with sf.torch.simulate(model, WIDE) as run:
        for policy, message in (("fp64", "float64|double"), ("fp23", "Did you mean")):
            with pytest.raises(ValueError, match=message):
                run.policy = policy
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


@pytest.mark.parametrize("first, second", BOTH_WAYS)
def test_a_backward_pass_follows_the_policy_of_its_forward_pass(first, second):
    gradients = []
    for policy in (first, second):
        model = model_of()
        with sf.torch.simulate(model, first) as run:
            loss = model(X).square().sum()
            if policy == second:
                run.policy = second
            loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *gradients))


def test_a_paused_run_is_pytorchs_own_and_changes_nothing():
    def trained(pauses):
        model = model_of()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        run = sf.torch.simulate(model, "bf16-stochastic", seed=5, observer=(recorder := sf.Recorder()))
        with run:
            for _ in range(2):
                step(model, optimizer, X)
                if pauses:
                    enabled = torch.backends.mkldnn.enabled
                    with run.paused(), run.paused():
                        assert torch.backends.mkldnn.enabled is not enabled
                        stored = model_of()
                        stored.load_state_dict(model.state_dict())
                        inside.append((model(X), stored))
                    assert torch.backends.mkldnn.enabled is enabled
        return [p.detach().clone() for p in model.parameters()], run.state, recorder.counts()

    inside = []
    assert str(trained(True)) == str(trained(False))
    assert all(torch.equal(result, stored(X)) for result, stored in inside) and len(inside) == 2


def test_tensors_that_cross_a_pause_are_refused_or_rounded_again():
    model = model_of()
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
