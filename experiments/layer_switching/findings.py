"""The claims, and their tests."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from experiments.layer_switching.problems import PROBLEMS
from experiments.measurement import against_fp32, final, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import INCONCLUSIVE, MATCH, MOST, Outcome, all_of, compare, difference_test, every_test

#: More skipped steps in a row than this are a failure of the switch for the tutorial.
MOST_IN_A_ROW = 3

#: The rules that are tested against it.
RULES = ("variance", "variance-scaled", "variance-e4m3", "variance-late", "once", "once-e4m3")

#: The joint level of the verdicts on all rules.
LEVEL = 0.05


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    if given := against_fp32(results, PROBLEMS):
        return given
    digits, camera = select(results, problem="digits"), select(results, problem="camera")
    return [
        _fp8_suffices(digits),
        *(_few_in_a_row(digits, rule) for rule in RULES),
        _training_is_as_good(digits),
        *(_no_more_jitter(digits, rule) for rule in RULES),
        _e4m3_finds_no_room(digits),
        _fixed_fp8_fails(camera),
        _switching_rescues(camera),
    ]


def runs_of(results: list[Result], variant: str) -> list[Result]:
    """Return the runs of a variant, in the order of their seeds."""
    return sorted(select(results, variant=variant), key=lambda run: run["seed"])


def share(results: list[Result], variant: str, key: str) -> NDArray[np.float64]:
    """Return the share of steps that were skipped, or in FP8 ("narrow"), for each seed."""
    return np.array([np.mean(run["trace"][key]) for run in runs_of(results, variant)])


def longest_row(skipped: list[bool]) -> int:
    """Return the largest number of steps that were skipped in a row."""
    return max((sum(1 for _ in group) for was_skipped, group in groupby(skipped) if was_skipped), default=0)


def skipped_in_a_row(results: list[Result], variant: str) -> NDArray[np.int64]:
    """Return the largest number of steps that were skipped in a row, for each seed."""
    return np.array([longest_row(run["trace"]["skipped"]) for run in runs_of(results, variant)])


def _skipped_in_fp8(run: Result) -> float:
    trace = run["trace"]
    return float(
        np.mean([skipped for skipped, narrow in zip(trace["skipped"], trace["narrow"], strict=True) if narrow])
    )


def _ratios(results: list[Result], variant: str) -> NDArray[np.float64]:
    problem = results[0]["problem"]
    return final(results, problem, variant) / final(results, problem, "fp16")


def _as_fp16(results: list[Result], variant: str) -> Outcome:
    """Test if a variant ends with the loss of the layer in FP16."""
    loss, fp16 = (final(results, results[0]["problem"], each) for each in (variant, "fp16"))
    return compare(loss, fp16)


def _percent(values: NDArray) -> str:
    return f"{spread(100 * values, 1)} %"


@claim(
    "digits: the layer trains in FP8, E4M3 forward and E5M2 backward, as in FP16",
    f"loss / loss in FP16 within a factor of {MATCH}",
)
def _fp8_suffices(results: list[Result]) -> Measured:
    return f"{spread(_ratios(results, 'fp8'), 3)}; a switch has nothing to repair here", _as_fp16(results, "fp8")


@claim(
    f"digits, switched {{label}}: no more than {MOST_IN_A_ROW} overflow steps in a row",
    f"in every run no more than {MOST_IN_A_ROW} steps skipped in a row, or no more than with the layer in FP16",
)
def _few_in_a_row(results: list[Result], rule: str) -> Measured:
    longest, fixed = skipped_in_a_row(results, rule), skipped_in_a_row(results, "fp16")
    label = runs_of(results, rule)[0]["label"]
    test = every_test(int(((longest > MOST_IN_A_ROW) & (longest > fixed)).sum()), len(longest))
    skipped, narrow = share(results, rule, "skipped"), share(results, rule, "narrow")
    return (
        (
            f"at most {longest.max()}, in FP16 {fixed.max()}; {_percent(skipped)} of steps skipped, in FP16 "
            f"{_percent(share(results, 'fp16', 'skipped'))}; {_percent(narrow)} of steps in FP8"
        ),
        test,
        {"label": label},
    )


@claim(
    "digits: switching leaves the final loss equal to that in FP16",
    f"loss / loss in FP16 within a factor of {MATCH} for each rule",
)
def _training_is_as_good(results: list[Result]) -> Measured:
    test = all_of([_as_fp16(results, rule) for rule in RULES])
    return ", ".join(f"{rule} {spread(_ratios(results, rule), 3)}" for rule in RULES), test


def jitter(results: list[Result], variant: str) -> NDArray[np.float64]:
    """Return the standard deviation of the steps of the logarithm of the loss between records, for each seed."""
    return np.array([np.std(np.diff(np.log(run["loss"]))) for run in runs_of(results, variant)])


@claim(
    "digits, switched {label}: the loss curve has no more jitter than in FP16",
    f"standard deviation of the steps of log loss / that in FP16 within a factor of {MATCH}",
)
def _no_more_jitter(results: list[Result], rule: str) -> Measured:
    switched, fixed = jitter(results, rule), jitter(results, "fp16")
    one = compare(switched, fixed)
    joint = min(1.0, len(RULES) * (1.0 if one.p is None else one.p))
    verdict, level = (one.verdict, joint) if joint < LEVEL else (INCONCLUSIVE, 1.0)
    test = Outcome(verdict, f"{one.text}; corrected for {len(RULES)} rules (Bonferroni)", level)
    return spread(switched / fixed, 3), test, {"label": runs_of(results, rule)[0]["label"]}


@claim(
    "digits: gradients in E4M3 overflow under the loss scale that FP16 has reached",
    "share of steps in FP8 under one rule: E4M3 gradients - E5M2 gradients < 0",
)
def _e4m3_finds_no_room(results: list[Result]) -> Measured:
    e4m3, e5m2 = share(results, "variance-e4m3", "narrow"), share(results, "variance", "narrow")
    return f"{_percent(e4m3)} against {_percent(e5m2)}", difference_test(e4m3, e5m2, below=0)


@claim("camera: if activations overflow E4M3, no loss scale helps the layer in FP8", "more than half the steps skipped")
def _fixed_fp8_fails(results: list[Result]) -> Measured:
    skipped = share(results, "fp8", "skipped")
    test = difference_test(skipped, MOST, above=0)
    scales = [np.log2(run["trace"]["scale"][-1]) for run in runs_of(results, "fp8")]
    return f"{_percent(skipped)} skipped; the scale ends at 2^{np.mean(scales):.0f}", test


@claim(
    "camera: a layer that overflows is kept in FP16 by its overflow rate, and trains as in FP16",
    f"loss / loss in FP16 within a factor of {MATCH}",
)
def _switching_rescues(results: list[Result]) -> Measured:
    ratios, test = _ratios(results, "overflow"), _as_fp16(results, "overflow")
    skipped = [share(results, each, "skipped") for each in ("overflow", "fp16")]
    tried = np.array([_skipped_in_fp8(run) for run in runs_of(results, "overflow")])
    return (
        f"{spread(ratios, 3)}; {_percent(share(results, 'overflow', 'narrow'))} of steps in FP8, of which "
        f"{_percent(tried)} are skipped; {_percent(skipped[0])} in all, in FP16 {_percent(skipped[1])}"
    ), test
