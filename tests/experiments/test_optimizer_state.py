"""Moments that stall: counts, and the exact average."""

import pytest

import simfloat as sf
from experiments.optimizer_state.policies import VARIANTS
from experiments.optimizer_state.stall import DEFAULT, follow_moment, held_significands


@pytest.mark.parametrize("beta2, held", [(0.999, 128), (0.997, 38), (1 - 2.0**-8, 0), (0.95, 0)])
def test_so_many_of_bf16s_significands_are_their_product_with_beta2(beta2, held):
    assert held_significands(beta2, sf.BF16) == held


def test_a_moment_in_fp32_is_the_exact_average_and_one_in_e5m2_stalls():
    rows = {}
    for variant in VARIANTS:
        if variant.key in ("fp32", "e5m2"):
            job = {"policy": variant.policy.to_dict(), "beta2": DEFAULT, "seed": 3, "tiny": True}
            rows[variant.key] = follow_moment(job)
    assert [row["step"] for row in rows["fp32"]] == list(range(1, 61))
    for row in rows["fp32"]:
        assert row["moment"] == pytest.approx(row["exact"], rel=1e-5) and row["stalled"] < 0.01
    assert rows["e5m2"][-1]["stalled"] > 0.5 and rows["e5m2"][-1]["moment"] < rows["e5m2"][-1]["exact"]
