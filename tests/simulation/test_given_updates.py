"""Given random bits in updates: one draw for each element of a parameter, in C order, step after step."""

import copy
import json
import pickle

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

FOUR = sf.stochastic(bits=4, variant="A")
POLICY = sf.Policy(compute=sf.BF16, update=FOUR)

DRAWS = np.random.default_rng(20).integers(0, 16, 60)


def trained(steps=3, policy=POLICY, observer=None, sim=None, model=None, **options):
    """A layer's weights after every step, and what was added to them."""
    model = model or sf.nn.Linear(4, 3, rng=0)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.01)
    sim = sim or sf.simulate(policy, observer=observer, **options)
    weights, updates, x = [], [], np.random.default_rng(1).standard_normal((5, 4))
    for _ in range(steps):
        with sim:
            optimizer.zero_grad()
            (model(x) * model(x)).sum().backward()
            before = sf.round(model.weight.data, sf.BF16)
            optimizer.step()
        updates.append((before, sf.multiply(-0.01, model.weight.grad, sf.BF16)))
        weights.append(model.weight.data.copy())
    return weights, updates


@pytest.mark.parametrize("observer", [None, sf.Recorder()], ids=["unobserved", "observed"])
def test_an_update_takes_a_draw_for_each_element_in_order(observer):
    weights, updates = trained(draws={"weight": sf.GivenBits(DRAWS)}, observer=observer)
    for step, (w, u) in enumerate(updates):
        want = sf.add(w, u, sf.BF16, FOUR, stream=sf.GivenBits(DRAWS[12 * step :]))
        assert_bits(weights[step], want)


def step(model, optimizer, simulation, x):
    """One step of a model, ours or PyTorch's."""
    with simulation:
        optimizer.zero_grad()
        (model(x) * model(x)).sum().backward()
        optimizer.step()


def test_both_front_ends_take_the_same_draws():
    torch = pytest.importorskip("torch")
    ours, theirs, x = sf.nn.Linear(4, 3, rng=0), torch.nn.Linear(4, 3), np.ones((5, 4), np.float32)
    theirs.load_state_dict({name: torch.tensor(numbers) for name, numbers in ours.state_dict().items()})
    draws = [{"weight": sf.GivenBits(DRAWS)} for _ in range(2)]
    here, there = sf.simulate(POLICY, draws=draws[0]), sf.torch.simulate(theirs, POLICY, draws=draws[1])
    for _ in range(3):
        step(ours, sf.optim.SGD(ours.parameters(), lr=0.01), here, x)
        step(theirs, torch.optim.SGD(theirs.parameters(), lr=0.01), there, torch.tensor(x))
    assert np.array_equal(ours.weight.data, theirs.weight.detach().numpy())
    assert draws[0]["weight"].taken == draws[1]["weight"].taken == 36


def test_other_parameters_draw_as_they_would():
    models = [sf.nn.Linear(4, 3, rng=0) for _ in range(2)]
    for model, draws in zip(models, (None, {"weight": sf.GivenBits(DRAWS[:12])}), strict=True):
        step(
            model, sf.optim.SGD(model.parameters(), lr=0.01), sf.simulate(POLICY, seed=5, draws=draws), np.ones((5, 4))
        )
    assert_bits(models[0].bias.data, models[1].bias.data)
    assert not np.array_equal(models[0].weight.data, models[1].weight.data)


def test_a_simulation_continues_with_the_next_draws():
    whole, _ = trained(4, draws={"weight": sf.GivenBits(DRAWS)})
    model, sim = sf.nn.Linear(4, 3, rng=0), sf.simulate(POLICY, draws={"weight": sf.GivenBits(DRAWS)})
    trained(2, sim=sim, model=model)
    state = json.loads(json.dumps(sim.state))
    assert state["draws"] == {"weight": 24}
    resumed = sf.simulate(POLICY, draws={"weight": sf.GivenBits(DRAWS)})
    resumed.load_state(state)
    for one in (resumed, copy.copy(sim), pickle.loads(pickle.dumps(sim))):
        weights, _ = trained(2, sim=one, model=copy.deepcopy(model))
        assert_bits(weights[-1], whole[-1])
    with sim, sim.aside():
        pass
    assert sim.state["draws"] == {"weight": 24}
    with pytest.raises(ValueError, match=r"needs a state with the same draws; this state has \{\}"):
        resumed.load_state(sf.simulate(POLICY).state)


@pytest.mark.parametrize("options, words", [
    (
        {"draws": {"wieght": sf.GivenBits(DRAWS)}},
        r"draws= names 'wieght', which was not used. Did you mean 'weight'",
    ),
    ({"draws": {"weight": [1, 2]}}, "draws must be a dictionary from paths of parameters to simfloat.GivenBits"),
    ({"draws": sf.GivenBits(DRAWS)}, "draws must be a dictionary from paths of parameters to simfloat.GivenBits"),
    ({"draws": {"weight": sf.GivenBits(DRAWS[:13])}}, "takes 12 draws, and GivenBits has 1 of its 13 left"),
    ({"draws": {"weight": sf.GivenBits(DRAWS + 16)}}, "A draw of 4 bits lies below 16"),
    ({"draws": {"weight": sf.GivenBits(DRAWS)}, "policy": "bf16-standard"}, "nothing is stochastic under this"),
    (
        {
            "draws": {"weight": sf.GivenBits(DRAWS)},
            "policy": sf.policies["bf16-kahan"].override("bias", update=FOUR),
        },
        "draws= are given for 'weight', but its update is kahan and uses none",
    ),
])  # fmt: skip
def test_draws_that_no_update_takes_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        trained(**options)
