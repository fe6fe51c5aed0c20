"""Backoff and LogNormal: the effect of one overflow."""

from experiments.lognormal_scaling.jobs import COUNTED, steps_at_one


def test_an_overflow_that_counts_as_its_number_holds_the_scale_at_one_for_thousands_of_steps():
    assert steps_at_one(0, COUNTED["logarithm"]) == 0
    assert 11_000 < steps_at_one(0, COUNTED["number"]) < 13_000
