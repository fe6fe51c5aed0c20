"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import against_fp32, final, select
from experiments.operation_lists.problems import PROBLEMS
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, MATCH, all_of, compare, compare_shares, difference_test, ratio_test

#: Problems of classification, which have an accuracy.
CLASSIFIED = ("convolutional", "transformer")


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training, gradients = select(results, kind="training"), select(results, kind="gradients")
    if given := against_fp32(training, PROBLEMS):
        return given
    return [
        *(_lists_suffice(training, problem) for problem in PROBLEMS),
        *(_deny_costs_most(gradients, problem) for problem in CLASSIFIED),
        *(_sums_need_fp32(gradients, problem) for problem in CLASSIFIED),
        *(_infer_is_free(gradients, problem) for problem in PROBLEMS),
        _losses_overflow(gradients),
        *(_training_needs_the_deny_list(training, problem) for problem in CLASSIFIED),
    ]


def errors(results: list[Result], problem: str, variant: str, stage: str = "middle") -> NDArray[np.float64]:
    """Return the error of a gradient under a policy, for every seed in order."""
    return _measured(results, problem, variant, stage, "error")


def _measured(results: list[Result], problem: str, variant: str, stage: str, key: str) -> NDArray[np.float64]:
    runs = sorted(select(results, problem=problem), key=lambda run: run["seed"])
    return np.array([run["stages"][stage][variant][key] for run in runs], np.float64)


@claim(
    "{problem}: with the three lists FP16 trains as FP32", f"loss / fp32's loss within a factor of {MATCH}{{and_more}}"
)
def _lists_suffice(results: list[Result], problem: str) -> Measured:
    loss, fp32 = final(results, problem, "amp"), final(results, problem, "fp32")
    tests, measured = [compare(loss, fp32)], f"loss ratio {spread(loss / fp32, 3)}"
    if problem in CLASSIFIED:
        scores = [100 * final(results, problem, variant, "accuracy") for variant in ("amp", "fp32")]
        tests.append(compare_shares(*scores))
        measured += f"; accuracy {spread(scores[0])} against {spread(scores[1])} %"
    return measured, all_of(tests), {"and_more": ", accuracy within a point" if problem in CLASSIFIED else ""}


@claim(
    "{problem}: the deny list in FP16 adds more error to the gradient than the other lists",
    "error of the gradient, one list in FP16: deny / allow > 1, deny / infer > 1",
)
def _deny_costs_most(results: list[Result], problem: str) -> Measured:
    deny, allow, infer = (errors(results, problem, f"{each}-alone") for each in ("deny", "allow", "infer"))
    test = all_of([ratio_test(deny, allow, above=1), ratio_test(deny, infer, above=1)])
    return f"deny {percent(deny)}, allow {percent(allow)}, infer {percent(infer)}", test


@claim(
    "{problem}: large reductions should be left in FP32",
    f"error of the gradient, deny list in FP16: sums in FP16 / sums in FP32 > {ABOUT:g}",
)
def _sums_need_fp32(results: list[Result], problem: str) -> Measured:
    narrow, wide = errors(results, problem, "deny-alone"), errors(results, problem, "deny-wide-sums")
    return f"{percent(narrow)} against {percent(wide)}", ratio_test(narrow, wide, above=ABOUT)


@claim(
    "{problem}: operations on the infer list can run in either format",
    f"error of the gradient: infer list in FP16 / AMP within a factor of {MATCH}",
)
def _infer_is_free(results: list[Result], problem: str) -> Measured:
    narrow, amp = errors(results, problem, "infer-narrow"), errors(results, problem, "amp")
    return f"{percent(narrow)} against {percent(amp)}", compare(narrow, amp)


@claim(
    "regression: the deny list keeps losses of large numbers from overflow",
    "squared errors that overflow: deny list in FP16 - AMP > 0",
)
def _losses_overflow(results: list[Result]) -> Measured:
    amp, narrow = (_measured(results, "regression", each, "start", "overflow") for each in ("amp", "deny-narrow"))
    test = difference_test(narrow, amp, above=0)
    error = errors(results, "regression", "deny-narrow", "start")
    return (
        f"{spread(narrow, 1)} of 64 squares overflow and the loss is infinite, {spread(amp, 1)} under AMP; "
        f"the gradient does not pass through them: its error is {percent(error)}"
    ), test


@claim("{problem}: with the deny list in FP16 training ends with a higher loss", f"loss / fp32's loss > {MATCH}")
def _training_needs_the_deny_list(results: list[Result], problem: str) -> Measured:
    narrow, fp32 = final(results, problem, "deny-narrow"), final(results, problem, "fp32")
    test = ratio_test(narrow, fp32, above=MATCH)
    scores = [100 * final(results, problem, variant, "accuracy") for variant in ("deny-narrow", "fp32")]
    return f"{spread(narrow / fp32, 3)}; accuracy {spread(scores[0])} against {spread(scores[1])} %", test


def percent(errors: NDArray) -> str:
    """Return relative errors in percent, as mean and standard deviation over seeds."""
    return f"{spread(100 * errors)} %"
