"""The experiment on switching layers: its rules, and the values read from a run."""

import numpy as np

import simfloat as sf
from experiments.layer_switching.findings import longest_row
from experiments.layer_switching.jobs import in_narrow
from experiments.layer_switching.policies import E4M3, HYBRID, WIDE, Switched, variance
from experiments.layer_switching.problems import LAYER
from simfloat.simulation.switching import Switch


def test_only_operands_of_the_layer_are_in_fp8():
    layer, other = HYBRID.recipe(LAYER, "linear"), HYBRID.recipe("hidden.0", "linear")
    assert (layer.compute, layer.compute_gradients, layer.activations) == (sf.E4M3, sf.E5M2, sf.FP16)
    assert vars(other) == vars(WIDE.recipe("hidden.0", "linear"))


def test_a_step_is_in_fp8_from_the_one_after_its_switch_on():
    rule = Switched("variance", "", HYBRID, "variance")
    assert in_narrow(rule, [Switch(2, WIDE), Switch(3, HYBRID)], 5) == [True, True, False, True, True]
    assert in_narrow(Switched("once", "", HYBRID, "once"), [Switch(4, HYBRID)], 5) == [False] * 4 + [True]


def test_a_rule_of_once_switches_after_three_quarters_of_the_steps():
    rule = Switched("once", "", E4M3, "once").switching(sf.nn.MLP([2, 2, 2, 2]), steps=8)
    assert [rule(step, None) == E4M3 for step in range(1, 9)] == [False] * 5 + [True] * 3


def test_a_gradient_that_is_not_finite_has_a_variance_above_any_threshold():
    model = sf.nn.MLP([2, 2, 2, 2], rng=0)
    weight = dict(model.named_parameters())[f"{LAYER}.weight"]
    weight.grad = np.array([[1.0, 3.0], [1.0, 3.0]])
    assert variance(model) == 1.0
    weight.grad = np.array([[1.0, np.inf], [1.0, 3.0]])
    assert np.isnan(variance(model))
    rule = Switched("variance", "", HYBRID, "variance").switching(model, steps=8)
    assert rule(1, None) == WIDE


def test_rows_of_skipped_steps_are_counted():
    assert [longest_row(row) for row in ([], [False], [True, False, True, True], [True] * 3)] == [0, 0, 2, 3]
