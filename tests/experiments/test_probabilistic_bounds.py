"""Bounds on errors of sums, and claims about them on artificial results."""

from experiments.probabilistic_bounds.findings import findings, unit
from experiments.probabilistic_bounds.jobs import FORMATS, ROUNDINGS, errors
from simfloat.plots import deterministic_bound
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED


def test_stochastic_rounding_counts_the_unit_roundoff_twice():
    assert unit("bf16", "nearest") == 2.0**-8 and unit("fp16", "stochastic") == 2.0**-10


def test_errors_of_a_job_are_within_the_deterministic_bound_and_depend_on_its_seed_alone():
    job = {"format": "bf16", "data": "uniform", "seed": 5, "tiny": True}
    rows = errors(job, 64)
    assert rows == errors(job, 64) and [row["rounding"] for row in rows] == list(ROUNDINGS)
    for row in rows:
        assert 0 < row["error"] <= row["greatest"] < deterministic_bound(64, unit("bf16", row["rounding"]))


def made_up(power):
    """Errors that grow as this power of n: half the bound if it is the root."""
    return [
        {
            "kind": "sums",
            "format": format,
            "data": data,
            "seed": seed,
            "rows": [
                {"rounding": rounding, "length": n, "error": value / 3, "greatest": value}
                for rounding in ROUNDINGS
                for n in (16, 64, 256, 1024, 4096)
                for value in [(1 + 0.01 * seed) * n**power * FORMATS[format].unit_roundoff / 2]
            ],
        }
        for format in FORMATS
        for data in ("uniform", "normal")
        for seed in range(3)
    ]


def verdicts(results, word):
    return {finding.verdict for finding in findings(results) if word in finding.claim}


def test_growth_decides_on_the_claims():
    assert verdicts(made_up(0.5), "probabilistic bound") == {REPRODUCED}
    assert verdicts(made_up(0.5), "root of n") == {REPRODUCED}
    assert verdicts(made_up(0.9), "probabilistic bound") == verdicts(made_up(0.9), "root of n") == {NOT_REPRODUCED}
