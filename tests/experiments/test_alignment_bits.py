"""The loss by 14 bits of alignment: parts of an error, policies with different sums, and artificial results."""

from dataclasses import replace

import numpy as np

import simfloat as sf
from experiments.alignment_bits.findings import findings
from experiments.alignment_bits.jobs import FP32, HOPPER
from experiments.alignment_bits.problems import PROBLEMS
from experiments.alignment_bits.sums import BEYOND, DATA, LENGTHS, measure_sums, narrow
from simfloat.studies.verdicts import EQUAL, FITTED, NOT_REPRODUCED, REPRODUCED, WORSE


def test_numbers_are_scaled_by_a_power_of_two_so_that_the_greatest_fits():
    x = np.array([[1.0, -3.0, 0.3]])
    rounded, scale = narrow(x)
    assert scale == 128 and 224 < 3 * scale <= 448
    assert rounded.tolist() == [[1.0, -3.0, float(sf.round(0.3, sf.E4M3))]]


def test_sums_of_one_sign_lose_more_the_longer_they_are_and_operands_less():
    rows = measure_sums("one sign", 3, tiny=True)
    assert rows[-1]["sums"] > 10 * rows[0]["sums"] and rows[-1]["operands"] < rows[0]["operands"]


def test_policies_differ_in_their_sums_alone():
    assert replace(FP32.policy, accumulate=HOPPER.policy.accumulate) == HOPPER.policy != FP32.policy


def made_up(power, cost):
    """Sums whose errors grow by this power of the length, and trainings that cost so much more with each doubling."""
    results = []
    for seed in range(5):
        noise = 1 + 0.001 * (seed % 2 - 0.5)
        for data, factor in zip(DATA, (1e-4, 1e-1), strict=True):
            rows = [{"length": n, "operands": 1.0, "sums": noise * factor * n**power} for n in (*LENGTHS, BEYOND)]
            results.append({"kind": "sums", "data": data, "seed": seed, "rows": rows})
        for number, problem in enumerate(PROBLEMS):
            losses = {"fp32": 1.0, "hopper": noise * (1 + number * cost)}
            results += [
                {"kind": "training", "problem": problem, "variant": variant, "seed": seed, "loss": [loss]}
                for variant, loss in losses.items()
            ]
    return results


def test_claims_hold_for_a_power_of_the_length_and_for_trainings_that_are_equal():
    found = [finding.verdict for finding in findings(made_up(0.6, 0.0))]
    assert found[:6] == [REPRODUCED, REPRODUCED, FITTED, FITTED, REPRODUCED, EQUAL]
    measured = findings(made_up(0.5, 0.0))[2].measured
    assert measured.startswith("1e+08 products")
    found = [finding.verdict for finding in findings(made_up(1.2, 0.1))]
    assert found[0] == NOT_REPRODUCED and found[5:] == [WORSE, REPRODUCED]
