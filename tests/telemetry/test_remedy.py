"""Overrides in advice: their text can be run, and the fault is gone afterwards."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.telemetry.advice import remedy
from simfloat.telemetry.entries import Key

RNG = np.random.default_rng(5)
X, LABELS = RNG.standard_normal((16, 4)), np.arange(16) % 3


def trained(policy, scale=1.0, steps=6):
    recorder, model = sf.Recorder(), sf.nn.MLP([4, 8, 3], rng=0)
    optimizer = sf.optim.Adam(model.parameters(), lr=1e-2, eps=1e-4)
    with sf.simulate(policy, observer=recorder):
        for _ in range(steps):
            optimizer.zero_grad()
            (sf.nn.cross_entropy(model(X), LABELS) * scale).backward()
            optimizer.step()
    return recorder


@pytest.mark.parametrize("name, scale", [("bf16-standard", 1.0), ("fp16-standard", 2.0**-10)])
def test_with_all_overrides_nothing_is_left_to_advise(name, scale):
    policy = sf.policies[name]
    found = trained(policy, scale).advise()
    roles = {each.override.partition(", ")[2].partition("=")[0] for each in found}
    assert roles >= {"weights", "optimizer_state"} and len(found) > 5
    for call in dict.fromkeys(each.override for each in found):
        policy = eval(call, {"policy": policy, "sf": sf})
    left = trained(policy, scale).advise()
    assert {(each.path, each.operation, each.phase) for each in found}.isdisjoint(each[:3] for each in left), left


SEEN = [
    Key("head", "linear", "forward"), Key("head", "linear", "backward"), Key("head.weight", "linear", "backward"),
    Key("head.weight", "update", "update"),
]  # fmt: skip


@pytest.mark.parametrize("key, call", [
    (("head", "linear", "forward"), "'head', activations"),
    (("head", "cast_input", "forward"), "'head', compute"),
    (("head", "cast_weight", "forward"), "'head', compute_weights"),
    (("head", "cast_gradient", "backward"), "'head', compute_gradients"),
    (("head", "linear", "backward"), "'head', activation_gradients"),
    (("head.weight", "linear", "backward"), "'head.weight', weight_gradients"),
    (("head.weight", "update", "update"), "'head.weight', weights"),
    (("head.weight.update", "divide", "update"), "'head.weight', weights"),
    (("head.weight.unscale", "multiply", "update"), "'head.weight', weights"),
    (("clip", "multiply", "update"), "'*', weights"),
    (("head.weight.exp_avg_sq", "moment", "update"), "'head.weight', optimizer_state"),
    (("", "add", "forward"), "operation='add', activations"),
    (("", "add", "backward"), "operation='add', activation_gradients"),
])  # fmt: skip
def test_each_place_has_the_role_that_rounds_it(key, call):
    assert str(remedy(Key(*key), SEEN, is_fp32=False)) == f"policy.override({call}=sf.FP32)"
    assert str(remedy(Key(*key), SEEN[:3], is_fp32=True)) == f"policy.override({call}=sf.FP64)"


@pytest.mark.parametrize(
    "operation, phase, role",
    [("linear", "forward", "accumulate"), ("linear", "backward", "accumulate_gradients"), ("sum", "forward", "reduce")],
)
def test_sums_that_overflow_need_an_accumulator(operation, phase, role):
    assert str(remedy(Key("head", operation, phase), SEEN, is_fp32=False, sums=True)).endswith(f", {role}=sf.FP32)")


def test_results_outside_of_policies_have_no_override():
    recorder = sf.Recorder()
    sf.round([1e9], "fp16", observer=recorder)
    assert recorder.advise()[0].override == ""


@pytest.mark.parametrize("format, better", [("bf16", "FP32"), ("fp32", "FP64"), ("tf32", "FP32")])
def test_sums_need_more_than_the_precision_that_they_have(format, better):
    recorder = sf.Recorder()
    sf.add([1.0], [2.0**-60], format, observer=recorder)
    assert recorder.advise()[0].override.endswith(f"activations=sf.{better})")


@pytest.mark.parametrize("format, better", [("fp16", "FP32"), ("bf16", "FP64"), ("fp32", "FP64")])
def test_results_beyond_a_format_need_more_than_its_range(format, better):
    recorder = sf.Recorder()
    sf.multiply([1e38, 1e30], [1e38, 1e-30], format, observer=recorder)
    assert recorder.advise()[0].override.endswith(f"activations=sf.{better})")
