"""Loss scaling: histograms, steps that overflow, and artificial results."""

from dataclasses import replace

import simfloat as sf
from experiments.catalog import EXPERIMENTS
from experiments.loss_scaling.findings import findings, lost_share
from experiments.loss_scaling.jobs import STEPS, damaged, jobs, moved, run
from experiments.loss_scaling.problems import PROBLEMS
from experiments.options import Options
from simfloat.studies.verdicts import EQUAL, NOT_REPRODUCED, REPRODUCED


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


def made_up(loss_of):
    """Results with this loss for each variant, and gradients of which a fifth is below the range of FP16."""
    gradients = {"activations": {"zero": 5, "-30": 80, "-25": 20, "-15": 400}, "parameters": {"zero": 1}}
    results = []
    for job in jobs(Options(tiny=True, seeds=4)):
        if job["kind"] == "overflow":
            results.append({**job, "damaged": 1.0, "moved": 0})
            continue
        loss = loss_of(job["variant"]) + 1e-3 * (job["seed"] % 7)
        result = {**job, "loss": [loss], "accuracy": [0.9], "gradients": gradients, "trace": {"skipped": [False]}}
        results.append(result)
    return results


def test_an_unscaled_run_that_falls_behind_and_scales_that_do_not_are_what_is_claimed():
    verdicts = [finding.verdict for finding in findings(made_up(lambda variant: 2.0 if variant == "unscaled" else 1.0))]
    # Of 100 gradients below 2^-24 twenty are rounded up to it: not all of them become zero.
    assert verdicts == [REPRODUCED, NOT_REPRODUCED, REPRODUCED, REPRODUCED, EQUAL, EQUAL, EQUAL, REPRODUCED]
    verdicts = [finding.verdict for finding in findings(made_up(lambda variant: 1.0))]
    assert verdicts[3] == NOT_REPRODUCED


def test_a_point_of_a_sweep_is_trained_with_its_scale_and_tells_nothing_of_gradients():
    point = {"problem": "classification", "policy": sf.policies["fp16-master"], "loss_scale": 8.0, "seed": 0}
    result = run({**EXPERIMENTS["loss-scaling"].grid.job(point, True), "steps": 1})
    assert result["trace"]["scale"] == [8.0] and "gradients" not in result
