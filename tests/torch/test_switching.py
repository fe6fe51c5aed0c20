"""Policies that change between the steps of a run; pauses of it, and evaluations aside, which change no bit."""

import copy

import pytest
import torch

import simfloat as sf
from tests.torch.compared import Perceptron, bits_of, is_bf16, perceptron, step, twins

X = torch.linspace(-1, 1, 12).reshape(4, 3)
WIDE, NARROW = "fp32", "bf16-standard"
BOTH_WAYS = [(NARROW, WIDE), (WIDE, NARROW)]


def model_of():
    return twins(Perceptron)[0]


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
            z = model(x)
            (z * z).mean().backward()
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


def trained(policy, evaluate):
    """A training with dropout, and evaluations before and after its backward pass."""
    model = perceptron(torch.nn.Dropout())
    optimizer, recorder = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), sf.Recorder()
    with sf.torch.simulate(model, policy, seed=3, observer=recorder) as run:
        for _ in range(2):
            loss = model(X).square().mean()
            evaluate(run, model)
            optimizer.zero_grad()
            loss.backward()
            evaluate(run, model)
            optimizer.step()
    return run.state, str(recorder.table()), [p.tolist() for p in bits_of(model)]


def once(run, model):
    with run.aside(), torch.no_grad():
        model(3 * X)


def nested(run, model):
    with run.aside(), run.aside():
        model(X)


def interrupted(run, model):
    with pytest.raises(ValueError, match="addmm"), run.aside():
        model(X)
        model(X[:, :2])


def paused(run, model):
    model.eval()
    with run.paused(), run.paused():
        assert torch.backends.mkldnn.enabled
        assert torch.equal(model(X), copy.deepcopy(model)(X))
    model.train()
    assert not torch.backends.mkldnn.enabled


@pytest.mark.parametrize("policy", [
    sf.policies["fp8-delayed"], sf.Policy(compute=sf.BF16, rounding=sf.stochastic(), update="stochastic"),
], ids=["fp8-delayed", "stochastic"])  # fmt: skip
def test_an_evaluation_aside_or_in_a_pause_changes_no_bit_of_the_training_however_it_ends(policy):
    plain = trained(policy, lambda run, model: None)
    for evaluate in (once, nested, interrupted, paused):
        assert trained(policy, evaluate) == plain


def test_operations_in_aside_are_simulated_and_it_is_refused_while_a_module_runs():
    class Inner(torch.nn.Linear):
        def forward(self, x):
            with run.aside():
                return super().forward(x)

    layer, model = torch.nn.Linear(3, 1), Inner(3, 1)
    with sf.torch.simulate(layer, NARROW) as run, run.aside():
        assert is_bf16(layer(X))
    run = sf.torch.simulate(model, WIDE)
    with run, pytest.raises(ValueError, match="An evaluation runs aside between steps, not while the module"):
        model(X)


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
