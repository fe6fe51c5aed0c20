"""Backoff and LogNormal: the effect of one overflow, and artificial traces."""

import numpy as np

from experiments.lognormal_scaling.findings import findings, room
from experiments.lognormal_scaling.jobs import COUNTED, jobs, steps_at_one
from experiments.options import Options
from simfloat.studies.verdicts import EQUAL, NOT_REPRODUCED, REPRODUCED


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
        skipped = np.zeros(1000, bool)
        skipped[skipped_of(job["variant"])] = True
        largest = np.where(skipped, np.nan, 1 + 1e-3 * (job["seed"] % 5))
        scale = np.full(1000, scale_of[job["variant"]])
        trace = {"skipped": skipped.tolist(), "scale": scale.tolist(), "largest": largest.tolist()}
        results.append({**job, "loss": [1.0 + 1e-6 * job["seed"]], "trace": trace})
    return results


SCALES = {"fp32": 1.0, "backoff": 2.0**14, "log-normal": 2.0**12, "default": 2.0**14}


def test_a_backoff_that_overflows_and_statistics_that_do_not_are_what_is_claimed():
    every_window = {"backoff": slice(0, None, 125)}
    results = made_up(lambda variant: every_window.get(variant, slice(0)), SCALES)
    verdicts = [finding.verdict for finding in findings(results)]
    assert verdicts == [*[REPRODUCED] * 3, EQUAL, NOT_REPRODUCED, NOT_REPRODUCED]
    assert (np.round(room(results, "backoff")) == 2).all() and (np.round(room(results, "log-normal")) == 4).all()


def test_statistics_that_overflow_as_often_are_not_what_is_claimed():
    verdicts = [finding.verdict for finding in findings(made_up(lambda variant: slice(0, None, 125), SCALES))]
    assert verdicts[0] == NOT_REPRODUCED and verdicts[1] == REPRODUCED
