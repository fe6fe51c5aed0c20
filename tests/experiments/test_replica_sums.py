"""Sums over replicas, compared with fractions, and claims about them on artificial results."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from experiments.replica_sums.findings import findings
from experiments.replica_sums.jobs import DATA, REPLICAS, WAYS, lost, run
from simfloat.studies.verdicts import EQUAL, NOT_REPRODUCED, REPRODUCED


@pytest.mark.parametrize("data", DATA)
def test_the_exact_sums_of_the_most_replicas_are_exact(data):
    parts = np.asarray(sf.round(DATA[data](np.random.default_rng(3), (REPLICAS[-1], 4)), sf.BF16), float)
    assert parts.sum(axis=0).tolist() == [float(sum(map(Fraction, column))) for column in parts.T.tolist()]


def test_ones_stop_where_bf16_does_in_a_ring_and_not_in_a_tree_or_in_fp32():
    found = {way: lost(np.ones((1024, 8)), way, seed=1)["mean"] for way in WAYS}
    assert found["ring"] == 0.25 and found["tree"] == found["ring in FP32"] == 1
    assert abs(found["ring, stochastic"] - 1) < 0.1


def test_a_job_depends_on_its_seed_alone():
    job = {"data": "noise", "seed": 5, "tiny": True}
    assert run(job) == run(job) and len(run(job)["rows"]) == 2 * len(WAYS)


def made_up(ring):
    """Results with these errors of a ring, and a tenth of them in a tree."""
    results, same = [], {"rounded": 1e-3, "greatest": 1e-3}
    for data in DATA:
        for seed in range(10):
            noise = 1 + 0.001 * seed
            rows = [
                {"replicas": n, "way": way, **same, "mean": noise * mean, "error": noise * error}
                for n in (128, 256, 512, 1024)
                for way, error, mean in (
                    ("ring", ring(n), 0.3), ("tree", ring(n) / 10, 1.0), ("ring, stochastic", 1, 1.0),
                    ("ring in FP32", 1e-3 / noise, 1.0),
                )
            ]  # fmt: skip
            results.append({"data": data, "seed": seed, "rows": rows})
    return results


def test_claims_hold_for_errors_that_grow_as_the_root_and_fail_for_others():
    found = [finding.verdict for finding in findings(made_up(lambda n: n**0.5))]
    assert found == [REPRODUCED] * 4 + [REPRODUCED] + [EQUAL] * 2
    assert findings(made_up(lambda n: n**0.9))[0].verdict == NOT_REPRODUCED
