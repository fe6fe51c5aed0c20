"""FlashAttention's rescaling: sums that stop, and ties that the rest decides."""

import numpy as np
import pytest

import simfloat as sf
from experiments.flash_attention.jobs import run
from experiments.flash_attention.maxima import REPEATS, draw, measure_bias
from experiments.flash_attention.online import exact, online, ordinary


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
