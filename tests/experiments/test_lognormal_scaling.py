"""Backoff and LogNormal: the effect of one overflow, and artificial traces."""

import numpy as np

from experiments.lognormal_scaling.findings import findings, room
from experiments.lognormal_scaling.jobs import COUNTED, jobs, steps_at_one
from experiments.options import Options
from simfloat.studies.verdicts import EQUAL, INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED


def test_an_overflow_that_counts_as_its_number_holds_the_scale_at_one_for_thousands_of_steps():
    assert steps_at_one(0, COUNTED["logarithm"]) == 0
    assert 11_000 < steps_at_one(0, COUNTED["number"]) < 13_000


def made_up(skipped_of, scale_of):
    """Traces of 1000 steps with a largest gradient of 1, but where a step was skipped."""
    results = []
    for job in jobs(Options(tiny=True, seeds=4)):
        if job["kind"] == "overflow":
            results.append({**job, "number": 12_000 + job["seed"] % 5, "logarithm": 0})
            continue
        if job["kind"] == "long":
            skips = len(range(20_000)[skipped_of("log-normal")])
            results.append({"kind": "long", "seed": job["seed"], "skipped": skips, "steps": 20_000})
            continue
        skipped = np.zeros(1000, bool)
        skipped[skipped_of(job["variant"])] = True
        size = np.exp2(-np.arange(1000) / 500) * np.exp(0.1 * np.random.default_rng(job["seed"]).standard_normal(1000))
        largest = np.where(skipped, np.nan, size)
        scale = scale_of[job["variant"]] * np.exp2(np.arange(1000) // 500)
        trace = {"skipped": skipped.tolist(), "scale": scale.tolist(), "largest": largest.tolist()}
        results.append({**job, "loss": [1.0 + 1e-6 * job["seed"]], "trace": trace})
    return results


SCALES = {"fp32": 1.0, "backoff": 2.0**14, "log-normal": 2.0**12, "default": 2.0**14}


def test_a_backoff_that_overflows_and_statistics_that_do_not_are_what_is_claimed():
    every_window = {"backoff": slice(0, None, 125)}
    results = made_up(lambda variant: every_window.get(variant, slice(0)), SCALES)
    verdicts = [finding.verdict for finding in findings(results)]
    assert verdicts[:2] == [REPRODUCED, INCONCLUSIVE], "nothing overflowed that might have been skipped"
    assert verdicts[2:6] == [REPRODUCED, REPRODUCED, NOT_REPRODUCED, EQUAL]
    assert verdicts[6:] == [REPRODUCED, REPRODUCED, NOT_REPRODUCED, REPRODUCED, REPRODUCED, NOT_REPRODUCED]
    assert np.allclose(room(results, "backoff"), 2.5, atol=0.1)
    assert np.allclose(room(results, "log-normal"), 4.5, atol=0.1)


def test_statistics_that_overflow_as_often_are_not_what_is_claimed():
    verdicts = [finding.verdict for finding in findings(made_up(lambda variant: slice(0, None, 125), SCALES))]
    assert verdicts[:3] == [NOT_REPRODUCED, REPRODUCED, REPRODUCED]
