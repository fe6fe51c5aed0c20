"""The claims, and their tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import against_fp32, final, select
from experiments.precision_claims import SOURCE_MARGIN, repair_test
from experiments.update_cancellation.problems import COMPARED, diabetes
from experiments.update_cancellation.theorem2 import bound, squares
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import (
    FAR,
    MATCH,
    MOST,
    all_of,
    compare,
    compare_shares,
    count_test,
    difference_test,
    joint_test,
    ratio_test,
    search_test,
)

#: The remedies, which keep the bits that nearest rounding of the update loses.
REMEDIES = ("bf16-stochastic", "bf16-kahan", "bf16-fp32-weights")


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training = select(results, kind="training")
    if given := against_fp32(training, COMPARED):
        return given
    return [
        *(claim(training) for claim in CLAIMS),
        _theorem_1(select(results, kind="theorem-1")),
        _theorem_2(select(training, problem="noise-free", variant="theorem-2")),
    ]


def ratios_to_fp32(results: list[Result], problem: str, variant: str) -> NDArray[np.float64]:
    """Return the final losses of a variant over those of fp32, for every seed in order."""
    return final(results, problem, variant) / final(results, problem, "fp32")


@claim("synthetic: rounding the update to nearest saturates the loss far above fp32", f"loss / fp32 loss > {FAR:g}")
def _synthetic_saturates(results: list[Result]) -> Measured:
    update, fp32 = final(results, "synthetic", "update-only"), final(results, "synthetic", "fp32")
    standard = ratios_to_fp32(results, "synthetic", "bf16-standard")
    return f"{spread(update / fp32)} (all roundings: {spread(standard)})", ratio_test(update, fp32, above=FAR)


@claim(
    "synthetic: rounding forward and backward only comes close to fp32",
    f"loss / fp32 loss within a factor of {MATCH}; the data are not rounded",
)
def _synthetic_forward_backward(results: list[Result]) -> Measured:
    variant, rounded = "forward-backward-only", "bf16-fp32-weights"
    test = compare(final(results, "synthetic", variant), final(results, "synthetic", "fp32"))
    return (
        f"{spread(ratios_to_fp32(results, 'synthetic', variant), 3)}; with data in BF16, too (fp32-weights), "
        f"{spread(ratios_to_fp32(results, 'synthetic', rounded), 3)}"
    ), test


@claim(
    "synthetic: stochastic rounding and Kahan summation remedy the update",
    "loss: Kahan < stochastic < nearest; ratio of neighbours > 1",
)
def _synthetic_remedies(results: list[Result]) -> Measured:
    kahan, stochastic, nearest = (
        final(results, "synthetic", variant) for variant in ("bf16-kahan", "bf16-stochastic", "bf16-standard")
    )
    test = all_of([ratio_test(stochastic, kahan, above=1), ratio_test(nearest, stochastic, above=1)])
    fp32 = final(results, "synthetic", "fp32")
    return (
        f"Kahan {spread(kahan / fp32)}, stochastic {spread(stochastic / fp32)}, nearest {spread(nearest / fp32)} "
        "times fp32"
    ), test


@claim(
    "synthetic: updates are cancelled in the late stage of training",
    "share cancelled: more than half at the end, fewer at the start",
)
def _synthetic_cancels_late(results: list[Result]) -> Measured:
    runs = select(results, problem="synthetic", variant="update-only")
    early = np.array([np.mean(run["unchanged"][:2]) for run in runs])
    late = final(results, "synthetic", "update-only", "unchanged")
    test = all_of([difference_test(late, MOST, above=0), difference_test(late, early, above=0)])
    return f"{spread(100 * early, 0)} % at the start, {spread(100 * late, 0)} % at the end", test


@claim(
    "diabetes: rounding the update to nearest saturates the loss above fp32",
    "excess over the least-squares optimum / fp32's excess > 1",
)
def _diabetes_saturates(results: list[Result]) -> Measured:
    least = least_diabetes_loss()
    update, fp32 = (final(results, "diabetes", variant) - least for variant in ("update-only", "fp32"))
    test = ratio_test(update, fp32, above=1)
    return (
        f"{spread(update / fp32, 1)}; loss {spread(ratios_to_fp32(results, 'diabetes', 'update-only'))} times fp32's",
        test,
    )


@claim(
    "diabetes: the remedies and 32-bit weights come close to fp32",
    f"loss / fp32 loss within a factor of {MATCH} for each",
)
def _diabetes_remedies(results: list[Result]) -> Measured:
    variants = (*REMEDIES, "forward-backward-only")
    fp32 = final(results, "diabetes", "fp32")
    test = all_of([compare(final(results, "diabetes", variant), fp32) for variant in variants])
    return ", ".join(f"{_short(v)} {spread(ratios_to_fp32(results, 'diabetes', v), 3)}" for v in variants), test


@claim("digits: standard 16-bit training reaches a higher held-out loss than fp32", "loss / fp32 loss > 1")
def _digits_saturates(results: list[Result]) -> Measured:
    standard, fp32 = final(results, "digits", "bf16-standard"), final(results, "digits", "fp32")
    accuracies = [100 * final(results, "digits", variant, "accuracy") for variant in ("bf16-standard", "fp32")]
    test = ratio_test(standard, fp32, above=1)
    return f"{spread(standard / fp32, 3)}; accuracy {spread(accuracies[0])} against {spread(accuracies[1])} %", test


@claim(
    "digits: the remedies and 32-bit weights match fp32 accuracy",
    f"mean within {SOURCE_MARGIN} points of fp32 for each",
)
def _digits_remedies(results: list[Result]) -> Measured:
    fp32, *scores = (_accuracy(results, variant) for variant in ("fp32", *REMEDIES))
    test = all_of([compare_shares(score, fp32, margin=SOURCE_MARGIN) for score in scores])
    texts = (f"{_short(name)} {spread(score)} %" for name, score in zip(REMEDIES, scores, strict=True))
    return f"fp32 {spread(fp32)} %, " + ", ".join(texts), test


@claim(
    "digits: the remedies and 32-bit weights close most of the gap of nearest updates",
    "points below fp32, minus half of the gap, < 0 for each",
)
def _digits_gap(results: list[Result]) -> Measured:
    fp32, standard, *scores = (_accuracy(results, variant) for variant in ("fp32", "bf16-standard", *REMEDIES))
    test = all_of([repair_test(fp32 - standard, fp32 - score) for score in scores])
    texts = (f"{_short(name)} {spread(fp32 - score)}" for name, score in zip(REMEDIES, scores, strict=True))
    return f"gap {spread(fp32 - standard)} points, " + ", ".join(texts), test


def _accuracy(results: list[Result], variant: str) -> NDArray[np.float64]:
    return 100 * final(results, "digits", variant, "accuracy")


CLAIMS: tuple[Callable[[list[Result]], Finding], ...] = (
    _synthetic_saturates,
    _synthetic_forward_backward,
    _synthetic_remedies,
    _synthetic_cancels_late,
    _diabetes_saturates,
    _diabetes_remedies,
    _digits_saturates,
    _digits_remedies,
    _digits_gap,
)


def least_diabetes_loss() -> float:
    """Return the mean squared error of the least-squares solution."""
    data = diabetes(seed=0, tiny=True)
    weight = np.linalg.lstsq(data.x.astype(np.float64), data.y, rcond=None)[0]
    return float(np.mean((data.x @ weight - data.y) ** 2))


@claim(
    "theorem 1: inside the safe radius every update is cancelled",
    "no weight moves; the printed radius is too large by up to 2",
)
def _theorem_1(results: list[Result]) -> Measured:
    tried, moved = 10 * sum(result["tried"] for result in results), sum(result["moved"] for result in results)
    counterexample = all(result["counterexample"] for result in results)
    proof = "inside the safe radius every update is below half a gap"
    test = all_of([search_test(moved, tried, proof), count_test(int(not counterexample), 1)])
    return (
        f"{moved} of {tried} weights moved; the counterexample {'moves' if counterexample else 'does not move'}",
        test,
    )


@claim(
    "theorem 2: with exact updates |w - w*|^2 falls below exp(-alpha mu t (1 - 4 epsilon L / mu))",
    "mean of |w - w*|^2 / bound < 1 at every t",
)
def _theorem_2(results: list[Result]) -> Measured:
    ratios = np.array([squares(result) / bound(result) for result in results])
    test = joint_test(ratios, below=1.0)
    return (
        f"at most {ratios.mean(axis=0).max():.2g}; "
        f"|w - w*|^2 ends at {np.mean([squares(result)[-1] for result in results]):.1e}"
    ), test


def _short(name: str) -> str:
    return name.removeprefix("bf16-")
