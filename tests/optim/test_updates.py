"""Properties of every optimizer: choices by path, kinds of updates, formats of state, untouched parameters."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.optim.kinds import COUNTERS, KINDS

every_kind = pytest.mark.parametrize("kind", KINDS)


class Model(sf.nn.Module):
    """Two matrices, which every optimizer can update."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(2)
        self.first, self.second = (sf.Parameter(rng.standard_normal((3, 2)).astype(np.float32)) for _ in range(2))


def optimizer_of(kind, params):
    return getattr(sf.optim, kind)(params, **KINDS[kind])


def train(optimizer, simulation, steps, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        for p in optimizer.params:
            p.grad = rng.standard_normal(p.shape).astype(np.float32)
        with simulation:
            optimizer.step()


def trained(kind, policy, model=None):
    model = Model() if model is None else model
    optimizer = optimizer_of(kind, model.parameters())
    train(optimizer, sf.simulate(policy, seed=3), 3)
    return model, optimizer


BASE = sf.Policy(compute=sf.BF16)


@every_kind
@pytest.mark.parametrize("role, value", [
    ("update", "kahan"), ("update", "stochastic"), ("optimizer_state", sf.E5M2), ("weights", sf.FP32),
])  # fmt: skip
def test_choices_by_path_hold_for_that_parameter_alone(kind, role, value):
    plain, other = trained(kind, BASE)
    everywhere, whole = trained(kind, sf.Policy(**{"compute": sf.BF16, role: value}))
    mixed, optimizer = trained(kind, BASE.override("second", **{role: value}))
    assert_bits(mixed.first.data, plain.first.data)
    assert_bits(mixed.second.data, everywhere.second.data)
    assert_bits(mixed.second.data, sf.round(mixed.second.data, value if role == "weights" else sf.BF16))
    assert ("compensation" in optimizer.state[1]) == (value == "kahan") and "compensation" not in optimizer.state[0]
    assert optimizer.state[1].keys() == whole.state[1].keys()
    moved = mixed.second.data != plain.second.data
    kept = [(optimizer.state[1][name] != array).any() for name, array in other.state[1].items()]
    assert moved.any() or any(kept), "the choice makes a difference here"


@every_kind
@pytest.mark.parametrize("policy", [
    "bf16-kahan", "fp16-master",
    sf.Policy(compute=sf.BF16, rounding=sf.stochastic(), optimizer_state=sf.FP16),
], ids=str)  # fmt: skip
def test_a_restored_state_continues_with_the_same_bits(kind, policy):
    whole = sf.simulate(policy, seed=3)
    model = Model()
    optimizer = optimizer_of(kind, model.parameters())
    train(optimizer, whole, 2)
    stopped, again, streams = optimizer.state_dict(), Model(), whole.state
    again.load_state_dict(model.state_dict())
    train(optimizer, whole, 3, seed=1)
    restored, resumed = sf.simulate(policy, seed=3), getattr(sf.optim, kind)(again.parameters(), lr=1.0)
    restored.load_state(streams)
    resumed.load_state_dict(stopped)
    train(resumed, restored, 3, seed=1)
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert_bits(p.data, q.data)
    for kept, taken in zip(optimizer.state, resumed.state, strict=True):
        assert kept.keys() == taken.keys()
        for name in kept:
            assert_bits(kept[name], taken[name])


@every_kind
def test_every_preset_updates_in_its_weights(kind):
    for policy in sf.policies.values():
        if kind == "Muon":  # whose iteration in E2M1 diverges
            policy = policy.override(operation="update", compute=sf.BF16, accumulate=sf.FP32)
        model = Model()
        optimizer = optimizer_of(kind, model.parameters())
        if "eps" in optimizer.options and kind != "Adafactor":
            optimizer.eps = 1e-3  # in FP16 the defaults are zero
        train(optimizer, sf.simulate(policy), 2)
        for p, state in zip(optimizer.params, optimizer.state, strict=True):
            recipe = policy.recipe(p.path)
            assert np.isfinite(p.data).all(), policy.name
            assert_bits(p.data, sf.round(p.data, recipe.weights))
            for name in state.keys() - {*COUNTERS, "compensation"}:
                assert_bits(state[name], sf.round(state[name], recipe.optimizer_state))


@every_kind
def test_parameters_without_a_gradient_stay_and_keep_nothing(kind):
    model = Model()
    optimizer = optimizer_of(kind, model.parameters())
    before = model.second.data.copy()
    model.first.grad = np.ones((3, 2))
    with sf.simulate("fp32"):
        optimizer.step()
    assert_bits(model.second.data, before)
    assert optimizer.state[1] == {} and optimizer.state[0] != {}
    optimizer.zero_grad()
    assert model.first.grad is None


@every_kind
def test_empty_parameters_are_stepped_over(kind):
    parameters = [sf.Parameter(np.zeros(shape, np.float32)) for shape in ((0, 3), (3, 0))]
    optimizer = optimizer_of(kind, parameters)
    for p in parameters:
        p.grad = np.zeros(p.shape)
    with sf.simulate("bf16-kahan"):
        optimizer.step()
        optimizer.step()
    assert [p.data.shape for p in parameters] == [(0, 3), (3, 0)]


@every_kind
def test_memory_order_and_type_of_gradients_change_no_bit(kind):
    results = []
    g = np.random.default_rng(5).standard_normal((3, 2)).astype(np.float32)
    strided = np.zeros((6, 4), np.float32)[::2, ::-2]
    strided[...] = g
    for gradient in (g, np.asfortranarray(g), strided, g.astype(np.float64)):
        model = Model()
        optimizer = optimizer_of(kind, [model.first])
        with sf.simulate("bf16-standard"):
            for _ in range(2):
                model.first.grad = gradient
                optimizer.step()
        results.append(model.first.data)
    for other in results[1:]:
        assert_bits(other, results[0])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Muon"])
def test_extreme_gradients_pass_as_ieee_says(kind):
    for value in (np.nan, np.inf, -0.0, 0.0, 1e-45, 3e38):
        p = sf.Parameter(np.ones((2, 2), np.float32))
        p.grad = np.full((2, 2), value, np.float32)
        optimizer = optimizer_of(kind, [p])
        with sf.simulate("bf16-standard"):
            optimizer.step()
        # Only NaN, and infinity over infinity, make NaN of a weight.
        assert np.isnan(p.data).any() <= (not np.isfinite(value) or value == np.float32(3e38))
        assert kind not in ("SGD", "Lion") or not np.isfinite(value) or np.isfinite(p.data).all()


def test_parameters_with_no_axes_have_arrays_for_state():
    for kind in sorted(KINDS.keys() - {"Muon"}):
        p = sf.Parameter(np.float32(2.0))
        optimizer = optimizer_of(kind, [p])
        train(optimizer, sf.simulate("bf16-kahan"), 2)
        assert all(type(array) is np.ndarray and array.shape == () for array in optimizer.state[0].values())
        optimizer.load_state_dict(optimizer.state_dict())


def test_a_kind_of_the_users_is_its_update():
    class Signs(sf.optim.Optimizer):
        def update(self, step, gradient, options):
            return step.multiply(-options.lr, np.sign(gradient))

    p = sf.Parameter(np.ones(2, np.float32))
    p.grad = np.array([0.5, -3.0])
    with sf.simulate("fp32"):
        Signs([p], 0.25).step()
        assert p.data.tolist() == [0.75, 1.25]
        with pytest.raises(ValueError, match="Optimizer has no update method; define one"):
            sf.optim.Optimizer([p], 0.25).step()
        for wrong, got in ((None, "a NoneType"), (np.ones((3, 2)), r"one of shape \(3, 2\)")):
            Signs.update = lambda *_, wrong=wrong: wrong
            with pytest.raises(ValueError, match=rf"Signs.update must give an array of \(2,\), got {got}"):
                Signs([p], 0.25).step()
    assert p.data.tolist() == [0.75, 1.25]


def test_the_products_of_muon_are_chosen_by_the_operation_update():
    wide, narrow = sf.Policy(compute=sf.FP32), sf.Policy(compute=sf.E4M3, weights=sf.FP32, activations=sf.FP32)
    chosen = narrow.override(operation="update", compute=sf.FP32)
    by_path = narrow.override("first", compute=sf.FP32)
    want, other, found, local = (trained("Muon", policy)[0] for policy in (wide, narrow, chosen, by_path))
    assert_bits(found.first.data, want.first.data)
    assert_bits(found.second.data, want.second.data)
    assert_bits(local.first.data, want.first.data)
    assert_bits(local.second.data, other.second.data)
    assert (other.first.data != want.first.data).any()
