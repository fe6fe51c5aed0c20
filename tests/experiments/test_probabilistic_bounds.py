"""Bounds on errors of sums."""

from experiments.probabilistic_bounds.findings import unit
from experiments.probabilistic_bounds.jobs import ROUNDINGS, errors
from simfloat.plots import deterministic_bound


def test_stochastic_rounding_counts_the_unit_roundoff_twice():
    assert unit("bf16", "nearest") == 2.0**-8 and unit("fp16", "stochastic") == 2.0**-10


def test_errors_of_a_job_are_within_the_deterministic_bound_and_depend_on_its_seed_alone():
    job = {"format": "bf16", "data": "uniform", "seed": 5, "tiny": True}
    rows = errors(job, 64)
    assert rows == errors(job, 64) and [row["rounding"] for row in rows] == list(ROUNDINGS)
    for row in rows:
        assert 0 < row["error"] <= row["greatest"] < deterministic_bound(64, unit("bf16", row["rounding"]))
