"""Sums over replicas, compared with fractions."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from experiments.replica_sums.jobs import DATA, REPLICAS, WAYS, lost, run


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
