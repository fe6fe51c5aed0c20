"""The experiment on lists of operations: one list at a time, and claims on artificial results."""

import pytest

import simfloat as sf
from experiments.operation_lists.findings import findings
from experiments.operation_lists.gradients import measure_gradients
from experiments.operation_lists.policies import ALLOW_ALONE, DENY_ALONE, DENY_WIDE_SUMS, INFER_ALONE, MEASURED
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED

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


def made_up(deny, jitter):
    errors = {variant.key: 0.01 for variant in MEASURED} | {"deny-alone": deny}
    training = [
        {"kind": "training", "problem": problem, "variant": variant, "seed": seed, "loss": [1.0], "accuracy": [0.9]}
        for problem in ("convolutional", "transformer", "regression")
        for variant in ("fp32", "amp", "deny-narrow")
        for seed in range(3)
    ]
    gradients = [
        {
            "kind": "gradients",
            "problem": problem,
            "seed": seed,
            "stages": {
                stage: {
                    key: {"error": error * (1 + jitter * seed), "overflow": int(key == "deny-narrow")}
                    for key, error in errors.items()
                }
                for stage in ("start", "middle")
            },
        }
        for problem in ("convolutional", "transformer", "regression")
        for seed in range(3)
    ]
    return {finding.claim: finding.verdict for finding in findings(training + gradients)}


def test_a_list_is_judged_by_the_error_that_it_costs():
    costly, free = made_up(deny=0.05, jitter=0.01), made_up(deny=0.01, jitter=0.01)
    claims = ("convolutional: the deny list in FP16 adds more error to the gradient than the other lists",
              "convolutional: large reductions should be left in FP32")  # fmt: skip
    assert [costly[claim] for claim in claims] == [REPRODUCED, REPRODUCED]
    assert [free[claim] for claim in claims] == [NOT_REPRODUCED, NOT_REPRODUCED]
    assert free["regression: the deny list keeps losses of large numbers from overflow"] == REPRODUCED
    assert free["transformer: with the deny list in FP16 training ends with a higher loss"] == NOT_REPRODUCED
