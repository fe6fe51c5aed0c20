"""The experiment on switching layers: its rules, and the values read from a run."""

import numpy as np

import simfloat as sf
from experiments.layer_switching.findings import findings, longest_row
from experiments.layer_switching.jobs import in_narrow
from experiments.layer_switching.policies import E4M3, HYBRID, VARIANTS, WIDE, Switched, variance
from experiments.layer_switching.problems import LAYER
from simfloat.simulation.switching import Switch
from simfloat.studies.verdicts import INCONCLUSIVE, NOT_REPRODUCED


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


def made_up(in_a_row):
    def run(problem, variant, seed):
        count = in_a_row if variant == "once-e4m3" else 1
        skipped = [True] * count + [False] * (10 - count)
        if (problem, variant) == ("camera", "fp8"):
            skipped = [True] * 10
        trace = {"skipped": skipped, "narrow": [True] * 10, "scale": [1.0]}
        same = {"kind": "switching", "problem": problem, "variant": variant, "label": variant, "seed": seed}
        return {**same, "loss": [4.0, 2.0, 1.5, 1.0], "trace": trace}

    results = [
        run(problem, variant.key, seed)
        for problem, variants in VARIANTS.items()
        for variant in variants
        for seed in range(3)
    ]
    return {finding.claim: finding.verdict for finding in findings(results)}


def test_a_switch_fails_that_skips_more_than_three_steps_in_a_row():
    claim = "digits, switched once-e4m3: no more than 3 overflow steps in a row"
    assert [made_up(count)[claim] for count in (3, 4)] == [INCONCLUSIVE, NOT_REPRODUCED], (
        "three runs cannot show what is in every run"
    )
