"""The experiment on lists of operations: one list at a time."""

import pytest

import simfloat as sf
from experiments.operation_lists.gradients import measure_gradients
from experiments.operation_lists.policies import ALLOW_ALONE, DENY_ALONE, DENY_WIDE_SUMS, INFER_ALONE

#: An operation of each list, and the result of it that a policy says.
LISTED = {"allow": "conv2d", "infer": "relu", "deny": "log_softmax"}


@pytest.mark.parametrize(
    "variant, narrow", [(ALLOW_ALONE, "allow"), (INFER_ALONE, "infer"), (DENY_ALONE, "deny"), (DENY_WIDE_SUMS, "deny")]
)
def test_one_list_is_in_fp16_and_the_others_are_in_fp32(variant, narrow):
    found = {name: variant.policy.recipe("", operation).activations for name, operation in LISTED.items()}
    assert found == {name: sf.FP16 if name == narrow else sf.FP32 for name in LISTED}
    assert variant.policy.recipe("", "linear").compute == (sf.FP16 if narrow == "allow" else sf.FP32)
    assert variant.policy.recipe("head.weight", "update").weights == sf.FP32


def test_sums_of_the_deny_list_are_in_fp16_or_in_fp32():
    assert DENY_ALONE.policy.recipe("", "batch_norm").reduce == sf.sequential(sf.FP16)
    assert DENY_WIDE_SUMS.policy.recipe("", "batch_norm").reduce == sf.sequential(sf.FP32)


def test_squares_of_large_errors_overflow_on_the_deny_list_in_fp16_only():
    found = measure_gradients("regression", seed=0, tiny=True)["stages"]["start"]
    assert found["amp"]["overflow"] == 0 < found["deny-narrow"]["overflow"] and found["deny-narrow"]["error"] < 1
