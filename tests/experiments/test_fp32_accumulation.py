"""FP16 products accumulated in FP16 and in FP32: scenes, sums and gradients."""

from dataclasses import replace

import numpy as np
import pytest

import simfloat as sf
from experiments.fp32_accumulation.jobs import KINDS, VARIANTS, first_gradients
from experiments.fp32_accumulation.problems import INK, NOISE, PROBLEMS, predicted, scenes
from experiments.fp32_accumulation.sums import sums

#: What pointwise operations are rounded to.
ALIKE = {"mixed": sf.FP16, "pointwise": sf.FP32}


def test_ink_is_what_is_darker_than_any_noise_in_one_digit_a_scene():
    x, y = scenes(3, 20)
    assert x.shape == y.shape == (20, 1, 32, 32) and (x <= 1).all()
    assert ((x > NOISE) == (y == 1)).all() and INK == NOISE
    assert (y.sum(axis=(1, 2, 3)) <= 64).all() and 0.005 < y.mean() < 0.05


def test_expected_ink_is_that_of_the_probabilities():
    y = np.array([1.0, 1.0, 0.0, 0.0])
    assert predicted(None, np.array([0.0, 0.0, 0.0, 0.0]), y) == {"ink": 1.0}
    assert predicted(None, np.array([0.0, 0.0, -99.0, -99.0]), y)["ink"] == pytest.approx(0.5)


def test_held_out_scenes_are_others():
    problem = PROBLEMS["segmentation"](0, True)
    assert problem.x.shape[0] == 256 and problem.test[0].shape[0] == 64
    assert not (problem.x[:64] == problem.test[0]).all(axis=(1, 2, 3)).any()


def test_fp16_sums_lose_much_of_the_first_gradient_and_fp32_sums_do_not():
    errors = {row["under"]: row["error"] for row in first_gradients(0)}
    assert list(errors) == [variant.key for variant in VARIANTS]
    assert errors["fp32"] < 1e-5 < errors["mixed"] < 1e-3 < 0.1 < errors["products"]


def test_the_policies_differ_in_their_sums_alone():
    policies = {variant.key: variant.policy for variant in (*VARIANTS, *KINDS)}
    recipe = {key: policy.recipe("first", "conv2d") for key, policy in policies.items()}
    assert recipe["reductions"].accumulate == recipe["mixed"].accumulate == sf.sequential(sf.FP32)
    assert recipe["reductions"].reduce == sf.sequential(sf.FP16)
    assert replace(policies["pairs"], reduce=sf.FP16) == policies["reductions"]
    assert recipe["pairs"].reduce == sf.pairwise(sf.FP16)
    assert {
        key: policy.recipe("first", "relu").activations for key, policy in policies.items() if key in ALIKE
    } == ALIKE
    assert recipe["products"].accumulate == recipe["all"].accumulate == sf.sequential(sf.FP16)
    assert recipe["products"].reduce == recipe["mixed"].reduce == sf.sequential(sf.FP32)
    assert recipe["all"].reduce == sf.sequential(sf.FP16)
    assert {each.compute for key, each in recipe.items() if key != "fp32"} == {sf.FP16}


def test_the_averages_of_batch_norm_are_those_of_the_training_and_judging_leaves_them():
    problem = PROBLEMS["normalised"](0, True)
    model = problem.model()
    new = problem.evaluate(model)
    x, y = problem.test
    with sf.simulate("fp64"), sf.no_grad():
        for _ in range(300):
            model(x)
        model.eval()
        loss = sf.nn.cross_entropy(model(x), y).item()
    judged = problem.evaluate(model)
    assert judged == problem.evaluate(model) and judged["averaged"] == pytest.approx(loss, rel=1e-6)
    assert judged["loss"] == new["loss"] != new["averaged"], "only the averages moved"
    assert judged["averaged"] == pytest.approx(judged["loss"], rel=1e-3)


def test_errors_are_relative_to_the_sum_of_magnitudes():
    rows = sums("uniform", 0, tiny=True)["rows"]
    wide = [row for row in rows if row["accumulator"] == "fp32"]
    assert [row["length"] for row in wide] == [16, 64]
    assert all(0 < row["error"] <= sf.FP16.unit_roundoff for row in wide), "one rounding of a sum of positive products"
