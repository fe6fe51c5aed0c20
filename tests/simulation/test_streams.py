"""Random streams belong to places: additions elsewhere change no bits, and a state continues them."""

import copy
import json
import pickle
import warnings

import numpy as np
import pytest

import simfloat as sf
from simfloat.simulation.streams import SAMPLES
from tests.bits import assert_bits

RANDOM = sf.Policy(
    compute=sf.BF16, rounding=sf.stochastic(), update="stochastic",
    accumulate=sf.sequential(sf.FP16, rounding=sf.stochastic()),
)  # fmt: skip
X, Y = np.random.default_rng(2).standard_normal((6, 4)), np.arange(6) % 3


class Model(sf.nn.Module):
    """A hidden layer and a head, and between them whatever one likes."""

    def __init__(self, between=None):
        super().__init__()
        self.hidden, self.head = sf.nn.Linear(4, 5, rng=1), sf.nn.Linear(5, 3, rng=2)
        self.between = between

    def forward(self, x):
        h = self.hidden(x)
        return self.head(h if self.between is None else self.between(h))


def trained(model, simulation, steps=3):
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        with simulation:
            optimizer.zero_grad()
            sf.nn.cross_entropy(model(X), Y).backward()
            optimizer.step()
    return model.state_dict()


def assert_same(a, b):
    for path in a:
        assert_bits(a[path], b[path])


class Aside(sf.nn.Module):
    """Computes something at random with a layer of its own, and hands its input on."""

    def __init__(self):
        super().__init__()
        self.layer = sf.nn.Linear(5, 5, rng=3)

    def forward(self, x):
        with sf.no_grad():
            self.layer(x).exp()
        return x


class PassThrough(sf.nn.Module):
    """Rounds at random what needs no rounding."""

    def forward(self, x):
        return x.negative().negative()


@pytest.mark.parametrize("between", [Aside, PassThrough])
def test_a_layer_or_a_rounding_more_changes_no_other_bits(between):
    plain = trained(Model(), sf.simulate(RANDOM, seed=9))
    more = trained(Model(between()), sf.simulate(RANDOM, seed=9))
    assert_same(plain, more)


def test_an_observer_changes_no_bits():
    plain = trained(Model(), sf.simulate(RANDOM, seed=9))
    assert_same(plain, trained(Model(), sf.simulate(RANDOM, seed=9, observer=sf.Recorder())))
    assert_same(plain, trained(Model(), sf.simulate(RANDOM, seed=9, observer=sf.Recorder(path="head.*"))))


def test_two_policies_of_one_seed_share_their_draws():
    updates = []
    for weights in (sf.BF16, sf.Format(8, 7, bias=120)):
        w = sf.Parameter(np.ones(1000))
        w.name, w.grad = "w", -np.full(1000, 2.0**-9)
        with sf.simulate(sf.Policy(compute=weights, update="stochastic"), seed=3):
            sf.optim.SGD([w], lr=1.0).step()
        updates.append(w.data)
    assert_bits(*updates)
    assert 100 < (updates[0] > 1).sum() < 400


def test_a_state_continues_with_the_same_bits_in_a_new_simulation():
    whole = trained(Model(), sf.simulate(RANDOM, seed=9), steps=4)
    model, first = Model(), sf.simulate(RANDOM, seed=9)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    second = sf.simulate(RANDOM, seed=0)
    for step in range(4):
        if step == 2:
            second.load_state(json.loads(json.dumps(first.state)))
            assert second.state == first.state and second.seed == 9
        with first if step < 2 else second:
            optimizer.zero_grad()
            sf.nn.cross_entropy(model(X), Y).backward()
            optimizer.step()
    assert_same(whole, model.state_dict())


def test_loading_an_earlier_state_draws_the_same_bits_again():
    with sf.simulate(RANDOM) as simulation:
        start = simulation.state
        a = sf.Tensor(X).exp()
        after = simulation.state
        simulation.load_state(start)
        b = sf.Tensor(X).exp()
        assert simulation.state == after
        c = sf.Tensor(X).exp()
    assert_bits(a.data, b.data)
    assert (a.data != c.data).any()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_of_a_simulation_continues_by_itself_in_the_same_state(duplicate):
    original = sf.simulate(RANDOM, seed=4)
    with original:
        sf.Tensor(X).exp()
    twin = duplicate(original)
    assert twin.state == original.state and twin.policy == original.policy
    with twin:
        a = sf.Tensor(X).exp()
    assert twin.state != original.state
    with original:
        assert_bits(sf.Tensor(X).exp().data, a.data)


GOOD = {"path": "", "phase": "forward", "operation": "exp", "operand": None, "calls": 1}


@pytest.mark.parametrize("state, message", [
    (None, "must have the keys 'seed' and 'streams', got None"),
    ({"seed": 1}, r"must have the keys 'seed' and 'streams', got \['seed'\]"),
    ({"seed": 1, "calls": 0}, r"got \['calls', 'seed'\]"),
    ({"seed": -1, "streams": []}, "A seed is an integer"),
    ({"seed": 1, "streams": {}}, "streams in the state of a simulation must be a list, got {}"),
    ({"seed": 1, "streams": [GOOD, {}]}, "has the keys path, phase, operation, operand, calls; got {}"),
    ({"seed": 1, "streams": [GOOD, {**GOOD, "calls": 5}]}, "contains two entries for one stream"),
    ({"seed": 1, "streams": [{**GOOD, "calls": -1}]}, "A stream's number of calls"),
    ({"seed": 1, "streams": [{**GOOD, "path": 1}]}, "path, phase and operation are texts"),
    ({"seed": 1, "streams": [{**GOOD, "operand": "a"}]}, "its operand an integer or null"),
])  # fmt: skip
def test_wrong_states_are_refused_and_change_nothing(state, message):
    simulation = sf.simulate(RANDOM, seed=7)
    with simulation:
        sf.Tensor(X).exp()
    before = simulation.state
    with pytest.raises(ValueError, match=message):
        simulation.load_state(state)
    assert simulation.state == before


def stochastic_step(w, simulation):
    w.grad = np.full(w.shape, -0.001)
    with simulation:
        sf.optim.SGD([w], lr=1.0).step()


def test_drawing_the_same_bits_for_a_parameter_again_is_warned_of_once():
    w, v = sf.Parameter(np.ones(3)), sf.Parameter(np.ones(3))
    w.name, v.name = "w", "v"
    stochastic_step(w, sf.simulate("bf16-stochastic"))
    stochastic_step(v, sf.simulate("bf16-stochastic"))
    again = sf.simulate("bf16-stochastic")
    with pytest.warns(
        UserWarning, match=r"update \(update\) at 'w' draws the same random bits as .* of seed 0"
    ) as caught:
        stochastic_step(w, again)
        stochastic_step(v, again)
    assert len(caught) == 1 and "sim = simfloat.simulate" in str(caught[0].message)
    assert caught[0].filename == __file__, "a warning points at the user's line"


def test_no_warning_where_the_bits_are_new_or_meant_to_be_the_same():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        w, one = sf.Parameter(np.ones(3)), sf.simulate("bf16-stochastic")
        stochastic_step(w, one)
        stochastic_step(w, one)
        stochastic_step(w, sf.simulate("bf16-stochastic", seed=1))
        w.data = np.ones(3)
        stochastic_step(w, sf.simulate("bf16-stochastic", seed=1))
        restored = sf.simulate("bf16-stochastic", seed=1)
        restored.load_state(one.state)
        stochastic_step(w, restored)
        stochastic_step(w, sf.simulate("bf16-standard"))


SUMS = sf.Policy(compute=sf.BF16, rounding=sf.stochastic())


def test_a_sum_that_continues_in_a_new_simulation_repeats_its_draws():
    total = sf.Tensor(1.0)
    with sf.simulate(SUMS):
        total = total + 2.0**-9
    with pytest.warns(UserWarning, match=r"add \(forward\) draws the same random bits"):
        with sf.simulate(SUMS):
            total = total + 2.0**-9
    kept = sf.simulate(SUMS, seed=1)
    for _ in range(3):
        with kept:
            total = total + 2.0**-9
    with sf.simulate(SUMS, seed=2):
        total = total * 2.0


def test_a_mistake_that_continues_from_simulation_to_simulation_is_reported_once():
    w, total = sf.Parameter(np.ones(3)), sf.Tensor(1.0)
    with pytest.warns(UserWarning) as caught:
        for _ in range(5):
            stochastic_step(w, sf.simulate("bf16-stochastic"))
            with sf.simulate(SUMS):
                total = total + 2.0**-9
    assert [str(one.message).split(" draws")[0] for one in caught] == ["update (update)", "add (forward)"]


def test_many_simulations_in_a_row_that_run_alike_repeat_the_draws_of_the_others():
    model, x = sf.nn.Sequential(sf.nn.Linear(3, 4, rng=0), sf.nn.Dropout()), np.ones((2, 3))

    def sampled(policy, run, seed=0):
        with sf.simulate(policy, seed=seed):
            run()

    for policy, run, place in (
        (SUMS, lambda: sf.Tensor(1.0) + 2.0**-9, r"add \(forward\)"),
        ("bf16-standard", lambda: model(x), r"dropout \(forward\) at '1'"),
    ):
        for _ in range(SAMPLES - 1):  # a check that a seed gives the same bits
            sampled(policy, run)
        with pytest.warns(UserWarning, match=place + " draws .* each of the 19 simulations before of seed 0") as caught:
            for _ in range(5):
                sampled(policy, run)
        assert len(caught) == 1 and caught[0].filename == __file__


def test_no_warning_where_seed_policy_model_or_numbers_are_others_or_trials_begin_anew():
    model, x = sf.nn.MLP([2, 4, 1], rng=0), np.ones((1, 2))
    first = model.state_dict()
    for number in range(5):
        with sf.simulate("fp32"):
            sf.Tensor(1.0) + 2.0**-9
        with sf.simulate(SUMS, seed=number):
            sf.Tensor(1.0) + 2.0**-9
    for number in range(5):
        with sf.simulate(SUMS):
            sf.Tensor(1.0) * number
    for number in range(5):
        with sf.simulate(SUMS):
            sf.nn.MLP([2, 4, 1], rng=number)(x)
    for _ in range(2):
        model.eval()
        with sf.simulate(SUMS), sf.no_grad():
            model(x)
    for lr in (0.5, 0.25, 0.125, 0.1):  # a sweep, in which each trial starts from the same numbers
        model.load_state_dict(first)
        optimizer = sf.optim.SGD(model.parameters(), lr)
        with sf.simulate("bf16-stochastic"):
            for _ in range(2):
                model.zero_grad()
                model(x).sum().backward()
                optimizer.step()


def test_a_training_in_a_new_simulation_for_every_step_drops_the_same_numbers():
    model, x = sf.nn.Sequential(sf.nn.Linear(3, 4, rng=0), sf.nn.Dropout()), np.ones((2, 3))
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)

    def step(simulation):
        with simulation:
            model(x).sum().backward()
            optimizer.step()

    step(sf.simulate("fp32"))
    with pytest.warns(UserWarning, match=r"dropout \(forward\) at '1' draws"):
        step(sf.simulate("bf16-standard"))
    resumed = sf.simulate("fp32")
    resumed.load_state(sf.simulate("fp32").state)
    step(resumed)
