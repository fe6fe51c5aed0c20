"""Master weights: ratios of weights to updates, and artificial results."""

import pytest

import simfloat as sf
from experiments.catalog import EXPERIMENTS
from experiments.master_weights.findings import findings, share_below
from experiments.master_weights.jobs import WEIGHTS, jobs, run
from experiments.master_weights.problems import PROBLEMS
from experiments.master_weights.ratios import ratios
from experiments.options import Options
from simfloat.studies.verdicts import EQUAL, INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED


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


@pytest.mark.parametrize("narrow, verdict", [(1.5, REPRODUCED), (1.0, NOT_REPRODUCED)])
def test_narrow_weights_that_lag_are_distinguished_from_those_that_do_not(narrow, verdict):
    sums = {f"{name}_{what}": 80 for name in ("below", "between", "above") for what in ("tried", "lost")}
    results = []
    for job in jobs(Options(tiny=True, seeds=3)):
        if job["kind"] == "ratios":
            results.append({**job, **sums, "below_lost": 0, "largest": 2047.0})
            continue
        loss = (narrow if job["variant"] == "fp16-weights" else 1.0) * (1 + 1e-3 * (job["seed"] % 5))
        shares = {"unchanged": [0.6 if job["variant"] == "fp16-weights" else 0.0], "vanished": 0.1}
        gradients = {"zero": 10, "-30": 5, "-13": 5, "-5": 80}
        results.append({**job, "loss": [loss], "accuracy": [0.5 / loss], "gradients": gradients, **shares})
    verdicts = [finding.verdict for finding in findings(results)]
    assert verdicts == [verdict, EQUAL, *[REPRODUCED] * 4, INCONCLUSIVE], (
        "a search without a counterexample shows nothing"
    )


def test_a_point_of_a_sweep_is_trained_and_tells_nothing_more():
    point = {"problem": "digits", "policy": sf.policies["fp16-master"], "seed": 0}
    result = run({**EXPERIMENTS["master-weights"].grid.job(point, True), "steps": 1})
    assert len(result["loss"]) == 1 and "gradients" not in result and "vanished" not in result
