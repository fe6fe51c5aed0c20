"""Policies that change between the steps of a training run."""

import copy
import json
import pickle

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

X, Y = np.random.default_rng(3).standard_normal((2, 6, 4)).astype(np.float32)
STOCHASTIC = sf.policies["bf16-stochastic"]


def start(policy, observer=None):
    model = sf.nn.MLP([4, 3, 4], rng=1)
    return model, sf.optim.SGD(model.parameters(), lr=0.1), sf.simulate(policy, seed=5, observer=observer)


def step(model, optimizer, sim):
    with sim:
        optimizer.zero_grad()
        loss = sf.nn.mse_loss(model(X), Y)
        loss.backward()
        optimizer.step()
    return loss


@pytest.mark.parametrize("after", ["fp16-master", "bf16-kahan", "amp-bf16", "fp8-hybrid", "fp64"])
@pytest.mark.parametrize("make", [sf.optim.SGD, sf.optim.Adam])
def test_a_step_after_a_switch_is_one_under_the_new_policy(make, after):
    model, _, sim = start("fp32")
    optimizer = make(model.parameters(), lr=0.1)
    step(model, optimizer, sim)
    other, _, other_sim = start(after)
    other.load_state_dict(model.state_dict())
    other_optimizer = make(other.parameters(), lr=0.1)
    other_optimizer.load_state_dict(optimizer.state_dict())
    sim.policy = after
    for _ in range(2):
        losses = [step(*run) for run in ((model, optimizer, sim), (other, other_optimizer, other_sim))]
        assert_bits(losses[0].data, losses[1].data)
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert_bits(mine.data, theirs.data)
    assert sim.policy == sf.policies[after] and [entry.step for entry in sim.switches] == [None]


def test_parameters_are_used_in_the_new_format_and_stored_in_it_from_the_next_step_on():
    model, optimizer, sim = start("fp32")
    step(model, optimizer, sim)
    before = model.head.weight.data.copy()
    sim.policy = "bf16-standard"
    with sim:
        used = model.head.weight.operand_in(sim)
    assert_bits(used.numbers, sf.round(before, sf.BF16))
    assert_bits(model.head.weight.data, before)
    step(model, optimizer, sim)
    assert model.head.weight.format == sf.BF16


def test_random_streams_continue():
    model, optimizer, sim = start(STOCHASTIC)
    step(model, optimizer, sim)
    calls = {tuple(entry.items())[0]: entry["calls"] for entry in sim.state["streams"]}
    sim.policy = STOCHASTIC.override("head", compute=sf.FP16)
    step(model, optimizer, sim)
    assert [entry["calls"] for entry in sim.state["streams"]] == [2] * len(sim.state["streams"]) and calls


def test_histories_of_delayed_casts_continue():
    delayed = sf.policies["fp8-delayed"]
    layer, sim = sf.nn.Linear(4, 4, bias=False, rng=1), sf.simulate(delayed)
    with sim:
        layer(X)
    sim.policy = "fp32"
    with sim:
        layer(100 * X)
    sim.policy = delayed
    with sim:
        y = layer(X)
    weight, saturating = layer.weight.data, sf.nearest_even.saturating()
    scales = [float(np.float32(448) / np.abs(a).max().astype(np.float32)) for a in (X, weight)]
    x, w = (sf.multiply(a, s, sf.E4M3, saturating) for a, s in zip((X, weight), scales, strict=True))
    total = sf.divide(sf.matmul(x, w.T, accumulate=sf.FP32), scales[0], sf.FP64)
    assert_bits(y.data, sf.divide(total, scales[1], sf.BF16)), "scaled by what was met under the first policy"
    assert [len(entry["amaxes"]) for entry in sim.state["casts"]] == [2, 2]


def test_a_state_continues_under_the_policy_that_was_switched_to():
    model, optimizer, sim = start(STOCHASTIC)
    assert "switches" not in sim.state
    step(model, optimizer, sim)
    sim.policy = STOCHASTIC.override("head", weights=sf.FP16)
    step(model, optimizer, sim)
    state = json.loads(json.dumps(sim.state))
    other = copy.deepcopy(model)
    again = sf.simulate(STOCHASTIC, seed=0)
    again.load_state(state)
    assert again.policy == sim.policy and again.switches == sim.switches and again.state == sim.state
    for same in (pickle.loads(pickle.dumps(sim)), copy.copy(sim)):
        assert same.state == sim.state and same.policy == sim.policy
    step(model, optimizer, sim)
    step(other, sf.optim.SGD(other.parameters(), lr=0.1), again)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert_bits(mine.data, theirs.data)
    again.load_state(sf.simulate(STOCHASTIC).state)
    assert again.policy == STOCHASTIC and again.switches == (), "a state without switches is one under the first policy"


def test_the_same_policy_is_no_switch():
    sim = sf.simulate("fp32")
    sim.policy = sf.Policy(compute=sf.FP32)
    assert sim.switches == ()


def test_an_argument_that_cannot_be_switched_to_is_refused():
    model, optimizer, sim = start("fp32")
    for wrong, message in (
        ("fp31", "Unknown policy 'fp31'.*Did you mean 'fp32'"),
        (sf.FP16, "takes a simfloat.Policy"),
    ):
        with pytest.raises(ValueError, match=message):
            sim.policy = wrong

    class Switcher(sf.nn.Module):
        def forward(self, x):
            sim.policy = "fp16-master"
            return x

    with pytest.raises(ValueError, match="Switch a policy between steps, not while the module '' runs"), sim:
        Switcher()(sf.Tensor(X))
    sim.policy = sf.policies["fp32"].override("hed", compute=sf.FP16)
    with pytest.raises(ValueError, match="'hed' matches no layer.*Did you mean 'head'"), sim:
        model(X)
        sim.policy = "fp32"


def test_an_override_may_have_met_its_layer_under_an_earlier_policy():
    model, optimizer, sim = start("fp32")
    step(model, optimizer, sim)
    sim.policy = (
        sf.policies["fp32"].override("head.weight", weights=sf.BF16).override(operation="linear", compute=sf.FP16)
    )
    with sim:
        pass


@pytest.mark.parametrize("change, message", [
    ({"switches": 1}, "switches in the state of a simulation must be a list, got 1"),
    ({"switches": [1]}, "has the keys step and policy; got 1"),
    ({"switches": [{"step": "a", "policy": {"compute": "fp32"}}]}, "step is an integer or null, got 'a'"),
    ({"switches": [{"step": 1, "policy": {}}]}, "A policy needs the key 'compute'"),
    ({"switch": []}, "must have the keys 'seed' and 'streams'"),
])  # fmt: skip
def test_a_state_that_is_wrong_changes_nothing(change, message):
    sim = sf.simulate("fp32", seed=3)
    with pytest.raises(ValueError, match=message):
        sim.load_state({"seed": 1, "streams": []} | change)
    assert sim.seed == 3 and sim.policy == sf.policies["fp32"]


def test_a_function_of_the_step_is_a_rule_and_the_log_says_when():
    model, optimizer, sim = start("fp16-master")
    for number in range(6):
        step(model, optimizer, sim)
        sim.follow(lambda n, recorder: "fp32" if n >= 3 else "fp16-master", number)
    assert [(entry.step, entry.policy.name) for entry in sim.switches] == [(3, "fp32")]
    with pytest.raises(ValueError, match="A rule for switching takes a simfloat.Policy or its name, got None"):
        sim.follow(lambda n, recorder: None, 7)
    with pytest.raises(
        ValueError, match="A rule must be a simfloat.Switching or a function of the step and the observer, got 3"
    ):
        sim.follow(3, 7)


class Counted:
    """An observer that returns given numbers of events and results."""

    def __init__(self):
        self.met = self.of = 0

    def counts(self, path=None, phase=None, operation=None):
        return {"total": self.of, "overflow": self.met}


def decisions(rule, rates, observer=None, each=100):
    observer = observer or Counted()
    taken = []
    for number, rate in enumerate(rates):
        observer.of += each
        observer.met += round(rate * each)
        taken.append("w" if rule(number, observer) == rule.wide else "n")
    return "".join(taken)


def test_switching_goes_to_the_wide_policy_above_a_rate_and_back_at_or_below_another():
    rule = sf.Switching("fp16-master", "fp32", above=0.1, below=0.02)
    assert decisions(rule, [0, 0.1, 0.11, 0.05, 0.03, 0.02, 0.05, 1.0]) == "nnwwwnnw"


def test_rates_are_those_of_a_window_and_the_wide_policy_stays_for_a_while():
    rule = sf.Switching("fp16-master", "fp32", above=0.1, window=3)
    assert decisions(rule, [0.9, 0, 0, 0, 0, 0, 0, 0.2, 0]) == "nnwwwnnnn"
    rule = sf.Switching("fp16-master", "fp32", above=0.1, hold=4)
    assert decisions(rule, [0.5, 0, 0, 0, 0, 0, 0.5, 0]) == "wwwwnnww"


def test_the_first_window_counts_nothing_of_what_was_before_the_rule():
    observer = Counted()
    observer.of, observer.met = 100, 100
    rule = sf.Switching("fp16-master", "fp32", above=0.1, window=2)
    rule.begin(observer)
    assert decisions(rule, [0, 0, 0, 0], observer) == "nnnn"
    rule.begin(observer)
    observer.met += 50
    rule.begin(observer)
    assert decisions(rule, [0, 0, 0.3, 0.3], observer) == "nnnw", "nor of what was between two trainings"


def test_fit_leaves_out_what_a_recorder_counted_before_its_first_step():
    recorder = sf.Recorder()
    sf.round(np.full(10_000, 1e9), sf.FP16, observer=recorder)
    model, optimizer, sim = start("fp16-master", recorder)
    rule = sf.Switching("fp16-master", "fp32", "overflow", above=1e-3)
    with sim:
        sf.train.fit(model, sf.nn.mse_loss, [(X, Y)] * 2, optimizer, switching=rule)
    assert not sim.switches


def test_a_function_can_be_the_measure_and_nan_is_too_high():
    values = iter([0.5, 2.0, 0.5, float("nan"), float("inf"), 1.0])
    rule = sf.Switching("fp16-master", "fp32", lambda: next(values), above=1.0)
    assert "".join("w" if rule(n, None) == rule.wide else "n" for n in range(6)) == "nwnwwn"


def test_a_rule_that_is_restored_decides_as_if_it_had_not_been_interrupted():
    rates = list(np.random.default_rng(0).choice([0, 0, 0.3], 40))
    options = dict(above=0.1, below=0.05, window=3, hold=4)
    whole = decisions(sf.Switching("fp16-master", "fp32", **options), rates)
    assert "nw" in whole and "wn" in whole
    for cut in (1, 7, 20):
        first, second = (sf.Switching("fp16-master", "fp32", **options) for _ in range(2))
        before = decisions(first, rates[:cut])
        second.load_state(json.loads(json.dumps(first.state)))
        assert before + decisions(second, rates[cut:]) == whole, "a new recorder counts from zero"


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_rule_that_is_restored_with_its_recorder_counts_none_of_the_steps_before_again(cut):
    class Restored(Counted):
        goes_on = True

    rates = list(np.random.default_rng(0).choice([0, 0, 0.3], 40))
    options = dict(above=0.1, below=0.05, window=3, hold=4)
    first, second, observer = *(sf.Switching("fp16-master", "fp32", **options) for _ in range(2)), Restored()
    before = decisions(first, rates[:cut], observer)
    second.load_state(json.loads(json.dumps(first.state)))
    assert before + decisions(second, rates[cut:], observer) == decisions(
        sf.Switching("fp16-master", "fp32", **options), rates
    )
    recorder = sf.Recorder()
    again = sf.Recorder()
    again.load_state_dict(recorder.state_dict())
    assert (recorder.goes_on, again.goes_on, copy.copy(recorder).goes_on) == (False, True, True)


def test_a_simulations_state_holds_that_of_the_rule_it_follows():
    model, optimizer, sim = start("fp16-master", sf.Recorder())
    rule = sf.Switching("fp16-master", "fp32", "underflow", above=-1.0, window=2)
    for number in range(3):
        step(model, optimizer, sim)
        sim.follow(rule, number)
    assert [entry.step for entry in sim.switches] == [1] and sim.policy == sf.policies["fp32"]
    state = json.loads(json.dumps(sim.state))
    assert state["rule"] == rule.state and rule.state["steps"] == 3
    again = sf.simulate("fp16-master", observer=sf.Recorder())
    again.load_state(state)
    assert again.state == state and again.policy == sf.policies["fp32"]
    rule = sf.Switching("fp16-master", "fp32", "underflow", above=-1.0, window=2)
    again.follow(rule, 3)
    assert rule.state["steps"] == 4 and rule.state["since"] == 2


def test_an_overflow_in_a_layer_switches_it_to_a_wider_format():
    narrow = sf.Policy(compute=sf.E4M3, activations=sf.FP16, weights=sf.FP32)
    wide = narrow.override("head", compute=sf.FP16)
    rule = sf.Switching(narrow, wide, above=0.0, path="head", operation="cast_input")
    model, optimizer, sim = start(narrow, sf.Recorder())
    for number in range(4):
        with sim:
            model.head(np.float32([[1, 2, 1000.0 if number == 2 else 3]]))
        sim.follow(rule, number)
    assert [(entry.step, entry.policy) for entry in sim.switches] == [(2, wide), (3, narrow)]


@pytest.mark.parametrize("make, message", [
    (lambda: sf.Switching("fp31", "fp32", above=1), "Unknown policy 'fp31'"),
    (lambda: sf.Switching("fp32", 3, above=1), "Switching takes a simfloat.Policy or its name, got 3"),
    (lambda: sf.Switching("fp32", "fp64", "overflw", above=1), "measure must be one of overflow, .*got 'overflw'"),
    (lambda: sf.Switching("fp32", "fp64", above=1, below=2), "below at most above; got 1 and 2"),
    (lambda: sf.Switching("fp32", "fp64", above=float("nan")), "above and below are numbers"),
    (lambda: sf.Switching("fp32", "fp64", above="1"), "above and below are numbers"),
    (lambda: sf.Switching("fp32", "fp64", above=1, window=0), "window must be an integer of at least 1"),
    (lambda: sf.Switching("fp32", "fp64", above=1, hold=-1), "hold one of at least 0; got 1, -1"),
    (lambda: sf.Switching("fp32", "fp64", above=1)(0, None), "needs a simulation whose observer counts"),
    (
        lambda: sf.Switching("fp32", "fp64", lambda: None, above=1)(0, None),
        "The function measure of Switching must return a number, got .*None",
    ),
    (lambda: sf.simulate("fp32").follow(lambda step, observer: "fp64", "x"), "follow takes the number .* got 'x'"),
    (
        lambda: sf.Switching("fp32", "fp64", above=1).load_state({"steps": 1}),
        "has the integers steps, since, met, of",
    ),
])  # fmt: skip
def test_an_invalid_rule_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_rule_prints_what_it_does():
    rule = sf.Switching("fp16-master", "fp32", above=0.1, path="head")
    assert repr(rule) == (
        "Switching('fp16-master', 'fp32', 'overflow', above=0.1, below=0.1, window=1, hold=0, path='head')"
    )
