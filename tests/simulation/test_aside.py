"""An evaluation in `aside` changes no bit of a training, whatever it computes and however it ends."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.simulation.simulation import current
from tests.bits import assert_bits

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 4)), np.arange(8) % 3
POLICIES = {
    "fp8-delayed": sf.policies["fp8-delayed"],
    "stochastic": sf.Policy(compute=sf.BF16, rounding=sf.stochastic(), update="stochastic"),
}


def trained(policy, evaluate):
    model = sf.nn.Sequential(sf.nn.Linear(4, 8, rng=0), sf.nn.Dropout(), sf.nn.Linear(8, 3, rng=1))
    optimizer, recorder = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), sf.Recorder()
    sim = sf.simulate(policy, seed=3, observer=recorder)
    with sim:
        for _ in range(3):
            loss = sf.nn.cross_entropy(model(X), Y)
            evaluate(sim, model)
            optimizer.zero_grad()
            loss.backward()
            evaluate(sim, model)
            optimizer.step()
    return sim.state, str(recorder.table()), model.state_dict()


def once(sim, model):
    with sim.aside():
        sf.nn.cross_entropy(model(3 * X), Y)


def nested(sim, model):
    with sim.aside() as copy:
        with copy.aside(), sf.no_grad():
            model(X)
        assert current() is copy
        model(X)
    assert current() is sim


def interrupted(sim, model):
    with pytest.raises(ValueError, match="linear"), sim.aside():
        model(X)
        model(X[:, :2])
    assert current() is sim


@pytest.mark.parametrize("evaluate", [once, nested, interrupted])
@pytest.mark.parametrize("policy", list(POLICIES))
def test_an_evaluation_changes_no_bit_of_the_training(policy, evaluate):
    plain = trained(POLICIES[policy], lambda sim, model: None)
    evaluated = trained(POLICIES[policy], evaluate)
    assert evaluated[:2] == plain[:2]
    for name, numbers in plain[2].items():
        assert_bits(evaluated[2][name], numbers)


def test_inside_is_the_policy_in_force_with_the_draws_to_come_and_paths_of_its_own():
    class Watched(sf.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = sf.nn.Linear(2, 2, rng=0)

        def forward(self, x):
            with current().aside() as copy:
                probe(x)
            seen.extend(place.path for place in copy.places() if place.operation == "linear")
            return self.inner(x)

    seen, probe, sim = [], sf.nn.Sequential(sf.nn.Linear(2, 2, rng=0)), sf.simulate("fp32")
    sim.policy = "bf16-standard"
    with sim:
        Watched()(np.ones((1, 2)))
    assert seen == ["0"]
    with sim.aside() as copy:
        assert copy.policy == sf.policies["bf16-standard"] and copy.seed == sim.seed and copy.observer is None
