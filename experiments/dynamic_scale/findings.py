"""The claims, and their tests."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from experiments.dynamic_scale.problems import PROBLEMS
from experiments.measurement import against_fp32, final, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import Outcome, all_of, compare, difference_test, ratio_test, search_test

#: The small number of steps after which a scale grows, half of it, and the standard one.
FEW, HALF, MANY = 6, 3, 2000

#: The margin of losses: less than half of the effect in question, 4.9 % if a scale grows after FEW steps.
CLOSE = 1.02

#: The first steps of a run, in which the scale falls until nothing overflows.
FIRST_STEPS = 100

#: The tutorial's hypothesis fails if the perplexity rises by more than this.
PERPLEXITY = 2.0


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training, statements = select(results, kind="training"), select(results, kind="statements")
    if given := against_fp32(training, PROBLEMS):
        return given
    return [
        _first_skips(training),
        _interval_limits_skips(training),
        _few_skip_more(training),
        _as_fp32(training),
        _often_as_fp32(training),
        _convergence(training),
        _doubling_skips(training),
        _doubling_slows(training),
        *(_slows_from_one(training, *pair) for pair in ((MANY, FEW), (FEW, HALF))),
        *statement_findings(statements),
    ]


def skipped(results: list[Result], variant: str) -> NDArray[np.bool_]:
    """Return which steps were skipped (seeds, steps)."""
    runs = sorted(select(results, variant=variant), key=lambda run: run["seed"])
    return np.array([run["trace"]["skipped"] for run in runs])


def settled(steps: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the steps after the first ones; for a tiny run, its second half."""
    return steps[:, min(FIRST_STEPS, steps.shape[1] // 2) :]


@claim(
    "from 2^24 the scale comes down in fewer than ten skipped steps",
    "steps skipped before the first that is not: fewer than 10",
)
def _first_skips(results: list[Result]) -> Measured:
    numbers = np.array([sum(1 for _ in takewhile(bool, row)) for row in skipped(results, "start-24")], np.float64)
    return spread(numbers, 1), difference_test(numbers, 10.0, below=0)


@claim(
    "once the scale has settled no more than one step in N overflows",
    f"share of steps skipped, after the first {FIRST_STEPS}, below 1/N for N = {MANY} and N = {FEW}",
)
def _interval_limits_skips(results: list[Result]) -> Measured:
    found = {n: settled(skipped(results, f"interval-{n}")).mean(axis=1) for n in (MANY, FEW)}
    test = all_of([difference_test(share, 1 / n, below=0) for n, share in found.items()])
    return ", ".join(f"N = {n}: {spread(100 * share, 2)} %" for n, share in found.items()), test


@claim(
    "a higher threshold for growth reduces the steps that overflow",
    f"share of steps skipped: N = {FEW} - N = {MANY} > 0",
)
def _few_skip_more(results: list[Result]) -> Measured:
    return _skipped_beside(results, FEW, MANY)


def _skipped_beside(results: list[Result], few: int, many: int) -> Measured:
    """Test that a higher threshold for growth, `many` steps, has a smaller share of skipped steps."""
    more, fewer = (100 * skipped(results, f"interval-{n}").mean(axis=1) for n in (few, many))
    return f"{spread(more)} against {spread(fewer)} %", difference_test(more, fewer, above=0)


@claim(
    f"if few steps are skipped (N = {MANY}), FP16 under a dynamic scale trains as FP32",
    f"loss / FP32's within a factor of {CLOSE}, from 2^16 and from 2^24",
)
def _as_fp32(results: list[Result]) -> Measured:
    return _beside_fp32(results, f"interval-{MANY}", "start-24")


@claim(
    f"if one step in eight is skipped (N = {FEW}), FP16 under a dynamic scale trains as FP32",
    f"loss / FP32's within a factor of {CLOSE}",
)
def _often_as_fp32(results: list[Result]) -> Measured:
    return _beside_fp32(results, f"interval-{FEW}")


def _beside_fp32(results: list[Result], *variants: str) -> Measured:
    fp32 = final(results, "digits", "fp32")
    losses = {each: final(results, "digits", each) for each in variants}
    test = all_of([compare(loss, fp32, margin=CLOSE) for loss in losses.values()])
    return ", ".join(f"{each} {spread(loss / fp32, 3)}" for each, loss in losses.items()), test


@claim(
    "a higher threshold for growth slows convergence",
    f"exp(loss), the perplexity: N = {MANY} - N = {FEW} > 0 (the tutorial's criterion: {PERPLEXITY})",
)
def _convergence(results: list[Result]) -> Measured:
    return _perplexity_beside(results, FEW, MANY)


def _perplexity_beside(results: list[Result], few: int, many: int) -> Measured:
    """Test that a higher threshold for growth, `many` steps, has a larger perplexity."""
    lower, higher = (np.exp(final(results, "digits", f"interval-{n}")) for n in (few, many))
    return f"difference {spread(higher - lower, 4)}", difference_test(higher, lower, above=0)


@claim(
    f"doubling the threshold for growth from {HALF} to {FEW} steps reduces the steps that overflow",
    f"share of steps skipped: N = {HALF} - N = {FEW} > 0",
)
def _doubling_skips(results: list[Result]) -> Measured:
    return _skipped_beside(results, HALF, FEW)


@claim(
    f"doubling the threshold for growth from {HALF} to {FEW} steps slows convergence",
    f"exp(loss), the perplexity: N = {FEW} - N = {HALF} > 0 (the tutorial's criterion: {PERPLEXITY})",
)
def _doubling_slows(results: list[Result]) -> Measured:
    return _perplexity_beside(results, HALF, FEW)


@claim(
    "regression: from a scale of 1, a threshold for growth of {high} instead of {low} steps slows convergence",
    "loss / loss with the lower threshold > 1",
)
def _slows_from_one(results: list[Result], high: int, low: int) -> Measured:
    more, less, fp32 = (final(results, "regression", key) for key in (f"from-1-{high}", f"from-1-{low}", "fp32"))
    return f"{spread(more / less, 3)}; / FP32: {spread(more / fp32, 3)}", ratio_test(more, less, above=1)


def statement_findings(results: list[Result]) -> list[Finding]:
    """Return the findings on the statements, each with the correct fact."""
    n = {key: sum(run["counts"].get(key, 0) for run in results) for key in results[0]["counts"]}
    steps, runs = sum(run["steps"] for run in results), len(results)

    return [
        _statement(
            "gradients below 2^-11 are rounded to zero",
            "every such gradient is zero in FP16",
            f"{share(n['below-lost'], n['below'])} of the gradients below 2^-11 are zero; lost values are below 2^-25",
            search_test(n["below"] - n["below-lost"], n["below"]),
        ),
        _statement(
            "FP16 can only represent values down to 2^-14, so that 2^-18 underflows",
            "powers of two from 2^-24 to 2^-15 become zero",
            f"{n['powers-lost']} of {n['powers']} powers of two are not exact",
            search_test(n["powers"] - n["powers-lost"], n["powers"]),
        ),
        _statement(
            "when the least gradient touches 2^-11 the step is about to underflow",
            "no step has such a small gradient without a loss in FP16",
            f"{n['alarms']} of {steps} steps have such a gradient; {n['false-alarms']} of them lose nothing",
            search_test(n["false-alarms"], n["alarms"]),
        ),
        _statement(
            "a larger scale captures more of FP16's mantissa",
            "normal numbers are rounded differently under a scale of 2^10",
            f"{n['normal-changed']} of {n['normal']} normal numbers are; "
            f"{share(n['subnormal-better'], n['subnormal'])} of the subnormal ones become more accurate",
            search_test(n["normal"] - n["normal-changed"], n["normal"]),
        ),
        _statement(
            "a loss of NaN comes from gradients that underflow",
            "the loss is NaN if all gradients underflow, and never if they overflow",
            f"NaN in {n['nan-underflow']} steps after underflow, in {n['nan-overflow']} of {10 * runs} after overflow",
            search_test(10 * runs - n["nan-underflow"], 10 * runs),
        ),
        _statement(
            "the optimizer repeats a step that overflowed",
            "skipped steps are repeated with their batch",
            f"{n['skipped-repeated']} of {n['skipped']} are repeated; {n['skipped-changed']} changed a weight",
            search_test(n["skipped"] - n["skipped-repeated"], n["skipped"]),
        ),
        _statement(
            "the loss is computed in FP16 and then scaled",
            "losses from 1 to 3 times 2^16 are finite in FP16",
            f"{n['losses-overflow']} of {n['losses']} losses overflow in FP16, {n['losses-overflow-fp32']} in FP32",
            search_test(n["losses-overflow"], n["losses"]),
        ),
        _statement(
            "grad.min() is the least magnitude",
            "the minimum is positive in every step",
            f"the minimum is negative in {n['negative-minimum']} of {steps} steps",
            search_test(n["negative-minimum"], steps),
        ),
    ]


@claim("said: {said}", "{expected}")
def _statement(said: str, expected: str, measured: str, test: Outcome) -> Measured:
    return measured, test


def share(part: int, whole: int) -> str:
    """Return a share in percent as text."""
    return f"{100 * part / max(1, whole):.2f} %"
