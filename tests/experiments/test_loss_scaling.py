"""Loss scaling: histograms, and steps that overflow."""

from dataclasses import replace

import simfloat as sf
from experiments.catalog import EXPERIMENTS
from experiments.loss_scaling.findings import lost_share
from experiments.loss_scaling.jobs import STEPS, damaged, moved, run
from experiments.loss_scaling.problems import PROBLEMS


def test_steps_that_overflow_damage_all_weights_unless_they_are_skipped():
    problem = replace(PROBLEMS["regression"](0, True), steps=2 * STEPS)
    assert damaged(problem, 0) == 1.0 and moved(problem, 0) == 0


def test_the_lost_share_is_that_of_nonzero_values_below_the_scaled_format():
    histogram = {"zero": 50, -30: 1, -26: 2, -25: 3, -24: 4, 15: 10}
    assert lost_share(histogram) == 6 / 20
    assert lost_share(histogram, 1) == 3 / 20 and lost_share(histogram, 2) == 1 / 20


def test_the_regression_maps_images_onto_themselves():
    problem = PROBLEMS["regression"](3, True)
    assert problem.y is problem.x and problem.test[0] is problem.test[1]
    assert problem.x.shape == (1347, 64) and problem.test[0].shape == (450, 64)


def test_a_point_of_a_sweep_is_trained_with_its_scale_and_tells_nothing_of_gradients():
    point = {"problem": "classification", "policy": sf.policies["fp16-master"], "loss_scale": 8.0, "seed": 0}
    result = run({**EXPERIMENTS["loss-scaling"].grid.job(point, True), "steps": 1})
    assert result["trace"]["scale"] == [8.0] and "gradients" not in result
