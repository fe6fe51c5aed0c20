"""Master weights: ratios of weights to updates."""

import simfloat as sf
from experiments.catalog import EXPERIMENTS
from experiments.master_weights.findings import share_below
from experiments.master_weights.jobs import WEIGHTS, run
from experiments.master_weights.problems import PROBLEMS
from experiments.master_weights.ratios import ratios


def test_no_update_is_lost_below_2048_and_all_are_from_4096_on():
    found = ratios(0)
    assert found["below_lost"] == 0 and found["above_lost"] == found["above_tried"] > 10**6
    assert 0 < found["between_lost"] < found["between_tried"] and found["largest"] == 4094


def test_the_share_below_is_one_of_all_gradients_zeros_included():
    histogram = {"zero": 10, -25: 2, -24: 3, -13: 4, -12: 1}
    assert share_below(histogram) == 2 / 20
    assert share_below(histogram, -12) == 9 / 20, "times 2^-12 the last alone is 2^-24 or more"


def test_the_weights_of_the_model_are_those_that_are_looked_at():
    names = [name for name, _ in PROBLEMS["digits"](0, True).model().named_parameters() if name.endswith("weight")]
    assert sorted(WEIGHTS) == sorted(names)


def test_a_point_of_a_sweep_is_trained_and_tells_nothing_more():
    point = {"problem": "digits", "policy": sf.policies["fp16-master"], "seed": 0}
    result = run({**EXPERIMENTS["master-weights"].grid.job(point, True), "steps": 1})
    assert len(result["loss"]) == 1 and "gradients" not in result and "vanished" not in result
