"""Delayed scaling: scales follow from earlier operands, with one history for each use at a place."""

import copy
import json

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.scalar_casts import clamped_quotient, elements, largest

POLICY = sf.Policy(
    compute=sf.scaled(sf.E4M3, sf.delayed(history=3, margin=1)),
    compute_gradients=sf.scaled(sf.E5M2, sf.delayed(history=2)),
    weights=sf.FP32, activations=sf.FP32, accumulate=sf.FP32,
)  # fmt: skip
X = [np.random.default_rng(n).standard_normal((5, 4)) * 2.0**e for n, e in enumerate((0, 5, -3, -4, -5, -6, -7, 2))]


class History:
    """A delayed scaling, written out: the scale of the next operand."""

    def __init__(self, format, length, margin):
        self.format, self.length, self.margin = format, length, margin
        self.amaxes, self.scale = [], 1.0

    def take(self, x):
        """The elements and the scale of an operand."""
        scale = self.scale
        self.amaxes = [*self.amaxes, float(largest(x))][-self.length :]
        amax = max(self.amaxes) if not np.isnan(self.amaxes).any() else np.nan
        if 0 < amax < np.inf:
            self.scale = clamped_quotient(self.format.max / 2**self.margin, amax)
        return elements(x, self.format, scale), scale


def product(a, b):
    """The product of two operands with their scales."""
    (q, s), (r, t) = a, b
    return sf.divide(sf.matmul(q, r, accumulate=sf.FP32), s * t, sf.FP32)


def step(model, x, g):
    """Output and gradients of one forward and one backward pass."""
    x = sf.Tensor(x, requires_grad=True)
    model.weight.grad = None
    y = model(x)
    y.backward(g)
    return y.data, x.grad, model.weight.grad


def test_every_use_has_a_history_of_its_own_and_starts_from_one():
    model, sim = sf.nn.Linear(4, 3, bias=False, rng=1), sf.simulate(POLICY)
    forward = [History(sf.E4M3, 3, 1) for _ in range(2)]
    to_x = [History(sf.E5M2, 2, 0), History(sf.E4M3, 3, 1)]
    to_w = [History(sf.E5M2, 2, 0), History(sf.E4M3, 3, 1)]
    for number, x in enumerate(X):
        g = np.cos(x[:, :3]) * 2.0**-number
        with sim:
            y, x_grad, w_grad = step(model, x, g)
        w = model.weight.data
        assert_bits(y, product(forward[0].take(x), forward[1].take(w.T)))
        assert_bits(x_grad, product(to_x[0].take(g), to_x[1].take(w)))
        assert_bits(w_grad, product(to_w[0].take(g.T), to_w[1].take(x)))
    assert len({forward[0].scale, to_x[0].scale, to_w[0].scale, forward[1].scale}) > 1


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e300])
def test_an_operand_that_is_not_finite_leaves_the_scale_while_it_is_remembered(bad):
    policy = sf.Policy(compute=sf.scaled(sf.E4M3, sf.delayed(history=2)), weights=sf.FP32, activations=sf.FP32)
    sim, history = sf.simulate(policy), History(sf.E4M3, 2, 0)
    for value in (2.0, bad, 64.0, 32.0, 0.0, 0.0, 1.0):
        with sim:
            got = sf.Tensor([[value]]) @ [[1.0]]
        entry = sim.state["casts"][0]
        q, s = history.take(np.array([[value]]))
        assert entry["greatest"] == (None if history.scale == 1.0 else 448.0 / history.scale)
        assert np.isnan(got.data) if np.isnan(value) else np.isfinite(got.data)
    assert [entry["factor"] for entry in sim.state["casts"]] == [0, 1]


def test_layers_that_share_an_array_have_histories_of_their_own():
    class Twins(sf.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = sf.nn.Linear(4, 3, rng=1), sf.nn.Linear(4, 3, rng=2)

        def forward(self, x):
            self.two(x)
            return self.one(x) + self.two(x)

    sim, model = sf.simulate(POLICY), Twins()
    with sim:
        model(sf.Tensor(X[0]))
    lengths = {(e["path"], e["factor"]): len(e["amaxes"]) for e in sim.state["casts"]}
    assert lengths == {("one", 0): 1, ("one", 1): 1, ("two", 0): 2, ("two", 1): 2}, "one amax for each use"


def test_a_simulation_continues_from_its_state_with_the_same_bits():
    def run(sim, model, data):
        out = []
        for x in data:
            with sim:
                out += step(model, x, np.sin(x[:, :3]))
        return out

    def made():
        return sf.nn.Linear(4, 3, bias=False, rng=1)

    sim, model = sf.simulate(POLICY, seed=5), made()
    run(sim, model, X[:4])
    state = json.loads(json.dumps(sim.state, allow_nan=False))
    restored, copied = sf.simulate(POLICY), copy.deepcopy(sim)
    restored.load_state(state)
    assert restored.state == state == copied.state
    rest = run(sim, model, X[4:])
    for other in (restored, copied):
        for got, want in zip(run(other, made(), X[4:]), rest, strict=True):
            assert_bits(got, want)
    # A simulation that has been under way forgets what the state does not tell of.
    sim.load_state({"seed": 0, "streams": []})
    assert "casts" not in sim.state
    for got, want in zip(run(sim, model, X[:1]), run(sf.simulate(POLICY), made(), X[:1]), strict=True):
        assert_bits(got, want)


def test_states_without_delayed_scalings_have_no_casts():
    sim = sf.simulate(sf.Policy(compute=sf.scaled(sf.E4M3, sf.per_tensor()), weights=sf.FP32))
    with sim:
        sf.Tensor(X[0]) @ X[0].T
    assert set(sim.state) == {"seed", "streams"}


GOOD = {"path": "", "phase": "forward", "operation": "linear", "operand": None, "factor": 0, "amaxes": [1.0],
        "greatest": 1.0}  # fmt: skip


@pytest.mark.parametrize("casts, message", [
    ({}, "casts in the state of a simulation must be a list"),
    ([{"path": ""}], "has the keys path, phase, operation, operand, factor, amaxes, greatest"),
    ([GOOD, GOOD], "contains two entries for one cast"),
    ([GOOD | {"factor": 2}], "its factor 0 or 1"),
    ([GOOD | {"amaxes": [-1.0]}], "numbers of at least zero or null"),
    ([GOOD | {"amaxes": [float("nan")]}], "numbers of at least zero or null"),
    ([GOOD | {"greatest": 0.0}], "greatest a positive number"),
    ([GOOD | {"amaxes": "1"}], "amaxes must be a list"),
])  # fmt: skip
def test_an_invalid_state_of_casts_is_refused_and_changes_nothing(casts, message):
    sim = sf.simulate(POLICY, seed=3)
    with sim:
        sf.Tensor(X[0]) @ X[0].T
    before = sim.state
    with pytest.raises(ValueError, match=message):
        sim.load_state({"seed": 1, "streams": [], "casts": casts})
    assert sim.state == before


def test_scales_that_no_cast_of_a_policy_uses_are_refused_and_change_nothing():
    sim, other = sf.simulate(POLICY, seed=3), sf.simulate("bf16-standard", seed=4)
    with sim:
        sf.Tensor(X[0]) @ X[0].T
    before = other.state
    with pytest.raises(ValueError, match="2 scales of delayed scaling, and the policy 'bf16-standard' has no cast"):
        other.load_state(sim.state)
    assert other.state == before
    sim.policy = "bf16-standard"
    sf.simulate("bf16-standard").load_state(sim.state)  # scales of an earlier policy


def test_the_largest_number_and_a_margin_may_lie_beyond_float32():
    cast = sf.scaled(sf.BF16, sf.delayed(margin=-3))
    with sf.simulate(sf.Policy(compute=cast, weights=sf.FP32, activations=sf.FP32, accumulate=sf.FP64)):
        _, result = [(sf.Tensor([[x]]) @ sf.Tensor([[48.0]])).item() for x in (100.0, 1.1)]
    scales = [float(np.float32(sf.BF16.max * 8 / amax)) for amax in (100.0, 48.0)]
    assert result == np.float32(sf.round(1.1 * scales[0], sf.BF16) * sf.BF16.max / np.prod(scales))
