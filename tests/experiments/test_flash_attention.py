"""FlashAttention's rescaling: sums that stop, ties that the rest decides, and claims on artificial results."""

import numpy as np
import pytest

import simfloat as sf
from experiments.flash_attention import findings
from experiments.flash_attention.jobs import BLOCKS, KERNELS, RISES, run
from experiments.flash_attention.maxima import CURES, REPEATS, draw, measure_bias
from experiments.flash_attention.online import exact, online, ordinary
from simfloat.studies.verdicts import EQUAL, NOT_REPRODUCED, REPRODUCED


def test_equal_scores_stop_where_bf16_does_unless_blocks_are_few_or_the_output_is_kept_in_fp32():
    scores, ones = np.zeros((1, 512)), np.ones((512, 2))
    found = {
        (block, kept.mantissa_bits): online(scores, ones, block, kept)[0, 0]
        for block in (1, 16)
        for kept in (sf.BF16, sf.FP32)
    }
    assert found == {(1, 7): 0.5, (1, 23): 1.0, (16, 7): 1.0, (16, 23): 1.0}
    assert ordinary(scores, ones).tolist() == exact(scores, ones).tolist() == [[1.0, 1.0]]


def test_a_far_higher_maximum_rescales_what_came_before_to_nothing():
    values = np.array([[3.0], [5.0], [7.0]])
    assert online(np.array([[0.0, 1.0, 1000.0]]), values, 1, sf.BF16).tolist() == [[7.0]]
    assert online(np.array([[1000.0, 1.0, 0.0]]), values, 2, sf.BF16).tolist() == [[3.0]]


@pytest.mark.parametrize(("rest", "bias"), [(-0.1, 2.015625), (0.1, 2.0)])
def test_a_tie_of_two_values_is_decided_by_the_sign_of_the_rest(rest, bias):
    scores, values = np.array([[2.0, 2.0, -8.0]]), np.array([[-1.0], [-1.0078125], [rest]])
    found = measure_bias(scores, sf.round(values, sf.BF16), "as it is")["bias"]
    assert found == pytest.approx((bias / 2.0078125 - 1) * 256, abs=1e-2)
    assert measure_bias(scores, sf.round(values, sf.BF16), "P V in FP32")["bias"] == pytest.approx(0, abs=1e-4)


def test_rows_have_as_many_maxima_as_asked_for_and_a_job_depends_on_its_seed_alone():
    for repeats in REPEATS:
        scores, values = draw(3, repeats, 4, (5, 16, 2))
        assert ((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) == repeats).all() and (values < 0).all()
    job = {"kind": "maxima", "seed": 5, "tiny": True}
    assert run(job) == run(job)


def made_up(seed, power, bias, cured):
    """Results with errors of O in BF16 that grow so, and these biases of two maxima and of a cure."""
    noise = 1 + 0.001 * (seed % 2 - 0.5)
    results = []
    for scores in RISES:
        rows = [
            {"keys": keys, "block": block, "blocks": keys // block, "kernel": kernel, "error": noise * size}
            for keys in (256, 1024, 4096)
            for block in BLOCKS
            for kernel, size in zip(KERNELS, (1e-3, np.hypot(1e-3, 1e-2 * (keys // block) ** power)), strict=True)
        ]
        rows += [
            {"keys": keys, "block": keys, "blocks": 1, "kernel": "ordinary", "error": 1e-3}
            for keys in (256, 1024, 4096)
        ]
        results.append({"kind": "online", "scores": scores, "seed": seed, "rows": rows})
    rows = [
        {"repeats": repeats, "gap": gap, "cure": cure, "rest": 1e-4, "output": 0.0,
         "bias": noise * (bias if cure == "as it is" else cured), "error": noise}
        for repeats in REPEATS for gap in (12, 14) for cure in CURES
    ]  # fmt: skip
    return [*results, {"kind": "maxima", "seed": seed, "rows": rows}]


def test_the_claims_hold_for_a_root_and_for_biases_that_cures_remove_and_fail_for_others():
    expected, other = (
        [result for seed in range(20) for result in made_up(seed, *made)]
        for made in ((0.5, 0.3, 0.01), (0.9, -0.3, 0.3))
    )
    found = [finding.verdict for finding in findings.findings(expected)]
    assert (
        found[:2] == [EQUAL] * 2
        and found[2:5] == [REPRODUCED] * 3
        and found[6:9] == [REPRODUCED] * 3
        and found[9] == NOT_REPRODUCED
    )
    other = [finding.verdict for finding in findings.findings(other)]
    assert other[2] == NOT_REPRODUCED and other[6:9] == [NOT_REPRODUCED] * 3
