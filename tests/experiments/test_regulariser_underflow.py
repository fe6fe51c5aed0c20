"""The underflow of the regulariser: measurements, and a given policy."""

import numpy as np
import pytest

import simfloat as sf
from experiments.options import Options
from experiments.regulariser_underflow.decay import Decay, optimizer_of, penalty, problem_of, run_decay, small_model
from experiments.regulariser_underflow.findings import findings
from experiments.regulariser_underflow.jobs import check, jobs
from experiments.regulariser_underflow.products import products


def test_the_gradient_of_the_penalty_and_the_weight_decay_are_both_twice_lambda_times_the_weight():
    model = small_model(0)
    with sf.simulate("fp64"):
        penalty(model, 0.25).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None if name.endswith("bias") else (parameter.grad == 0.5 * parameter.data).all()
    in_update, in_loss = (optimizer_of(model, Decay(0.25, is_in_loss)) for is_in_loss in (False, True))
    assert [group["weight_decay"] for group in in_update.param_groups] == [0.5, 0.0]
    assert [group["weight_decay"] for group in in_loss.param_groups] == [0.0, 0.0]


def test_dead_weights_decay_as_theory_says_where_nothing_is_lost():
    steps, rate = problem_of(0, True).steps, 2 * 1e-3
    found = run_decay(0, True, sf.policies["fp64"], Decay(1e-3, is_in_loss=False), None)
    weight, velocity = 1.0, 0.0
    for _ in range(steps):
        velocity = 0.9 * velocity + rate * weight
        weight -= 0.1 * velocity
    assert found["dead"][-1] == pytest.approx(weight, rel=1e-12) and found["unmoved"][-1] == 0


def test_products_are_zero_below_the_half_of_the_smallest_number():
    row = next(row for row in products(0)["rows"] if row["layer"] == "normal, 0.02" and row["lam"] == 1e-5)
    weights = sf.round(np.random.default_rng(0).normal(0, 0.02, 100_000), sf.FP16)
    weights = weights[weights != 0]
    assert row["zero"] == np.mean(np.abs(2e-5 * weights.astype(np.float64)) <= 2.0**-25)
    assert row["zero"] + row["subnormal"] > 0.99


def test_a_given_policy_is_held_to_the_decay_in_fp32():
    policy = sf.policies["bf16-standard"]
    check(policy)
    given = jobs(Options(tiny=True, seeds=2, policy=policy))
    assert {job["variant"] for job in given} == {"fp32", "given"} and len(given) == 12
    results = [{**job, "dead": [0.9], "unmoved": [0.0], "loss": [1.0]} for job in given]
    assert [finding.claim for finding in findings(results)] == [
        f"bf16-standard (given): weights decay as in FP32, lambda = {lam}" for lam in ("1e-5", "1e-4", "1e-3")
    ]
