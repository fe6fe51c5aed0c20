"""Operations are bound to their place once, and again if the policy, the place or the parameter changes."""

import copy

import numpy as np
import pytest

import simfloat as sf

X = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
BF16, FP16 = sf.policies["bf16-standard"], sf.policies["fp16-standard"]


class Pair(sf.nn.Module):
    """Two layers, called one after the other."""

    def __init__(self):
        super().__init__()
        self.first, self.second = sf.nn.Linear(4, 4, rng=1), sf.nn.Linear(4, 4, rng=2)

    def forward(self, x):
        return self.second(self.first(x))


def stepped(model):
    """The result and all gradients of one step, which are then removed."""
    y = model(X)
    (y * y).sum().backward()
    arrays = [y.data, *(p.grad for p in model.parameters())]
    model.zero_grad()
    return arrays


def alone(model, policy):
    """The arrays of one step in a new simulation, in which nothing is bound."""
    with sf.simulate(policy, seed=3):
        return stepped(model)


def assert_same(arrays, want):
    for a, b in zip(arrays, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_backward_pass_after_a_switch_has_the_policy_of_its_forward_pass():
    model = Pair()
    want = alone(model, BF16)
    with sf.simulate(BF16, seed=3) as sim:
        stepped(model)
        y = model(X)
        loss = (y * y).sum()
        sim.policy = FP16
        stepped(model)
        loss.backward()
        assert_same([y.data, *(p.grad for p in model.parameters())], want)


@pytest.mark.parametrize("change", ["swap", "replace", "tie", "untie"])
def test_overrides_by_path_follow_modules_and_parameters(change):
    """The override names one layer, so a layer that moves leaves it."""
    policy = BF16.override("first", compute=sf.E5M2).override("second", compute_gradients=sf.E4M3)
    model = Pair()
    if change == "untie":
        model.second.weight = model.first.weight
    with sf.simulate(policy, seed=3):
        stepped(model)
        if change == "swap":
            model.first, model.second = model.second, model.first
        elif change == "replace":
            model.first = sf.nn.Linear(4, 4, rng=5)
        elif change == "tie":
            model.second.weight = model.first.weight
        else:
            model.second.weight = sf.nn.Parameter(model.first.weight.data.T)
        arrays = stepped(model)
    assert_same(arrays, alone(model, policy))


def test_a_parameter_with_the_identity_of_a_dead_one_has_its_own_path():
    policy = BF16.override("*weight", weights=sf.E4M3)
    with sf.simulate(policy, seed=3):
        for seed in range(20):
            layer = sf.nn.Sequential(sf.nn.Linear(4, 4, rng=seed)) if seed % 2 else sf.nn.Linear(4, 4, rng=seed)
            assert_same(stepped(layer), alone(layer, policy))
            del layer


def test_copies_and_blocks_inside_are_bound_by_themselves():
    model = Pair()
    wide, narrow = alone(model, FP16), alone(model, BF16)
    with sf.simulate(BF16, seed=3) as sim:
        for _ in range(2):
            with sf.simulate(FP16, seed=3):
                assert_same(stepped(model), wide)
            with sim.aside():
                assert_same(stepped(model), narrow)
            assert_same(stepped(copy.deepcopy(model)), narrow)
            with sim.trial_run():
                assert_same(stepped(model), narrow)
            assert_same(stepped(model), narrow)
