"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.measurement import final, select
from experiments.optimizer_state.stall import DEFAULT, NEXT_TO_ONE, held_significands
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, FAR, MANY, MATCH, all_of, compare, count_test, difference_test, ratio_test

#: Betas, and the number of BF16's 128 significands to which their product with beta rounds back.
HELD = {DEFAULT: 128, 0.997: 38, NEXT_TO_ONE: 0}


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training, moments = select(results, kind="training"), select(results, kind="moment")
    if given := select(training, variant="given"):
        return [_trains(training, problem, "given", given[0]["label"]) for problem in ("long-memory", "short-memory")]
    return [
        _held(),
        _stalls(moments),
        _follows(moments, "bf16-stochastic", DEFAULT, "BF16 with stochastic rounding"),
        _follows(moments, "bf16", NEXT_TO_ONE, "BF16 with beta2 = 1 - 2^-8"),
        _follows(moments, "fp16", DEFAULT, "FP16, with three more bits,"),
        _too_low(moments),
        _follows(moments, "e5m2-stochastic", DEFAULT, "E5M2 with stochastic rounding"),
        _trains(training, "long-memory", "bf16", "BF16 moments, beta2 = 0.999"),
        _closes_gap(training, "short-memory", "bf16", "BF16 moments, beta2 = 0.95"),
        _closes_gap(training, "long-memory", "bf16-stochastic", "BF16 moments, beta2 = 0.999, stochastic rounding"),
        _unscaled(training),
    ]


@claim(
    "BF16: no number decays by a factor of 0.999, some do not by 0.997, all do by 1 - 2^-8",
    "significands x with round(beta2 x) = x: 128, 38 and 0 of 128",
)
def _held() -> Measured:
    found = {beta2: held_significands(beta2, sf.BF16) for beta2 in HELD}
    test = count_test(sum(found[beta2] != HELD[beta2] for beta2 in HELD), len(HELD))
    return ", ".join(f"{beta2:g}: {number}" for beta2, number in found.items()), test


def last(results: list[Result], key: str, variant: str, beta2: float = DEFAULT) -> NDArray[np.float64]:
    """Return the final measurement, one for each seed in order."""
    runs = sorted(select(results, variant=variant, beta2=beta2), key=lambda run: run["seed"])
    return np.array([run["rows"][-1][key] for run in runs], np.float64)


@claim(
    "beta2 = 0.999: a second moment in BF16 stays when gradients become ten times smaller",
    f"moment / exact average > {FAR:g}; more than {100 * (1 - MANY):g} % of the elements stall",
)
def _stalls(results: list[Result]) -> Measured:
    ratio = last(results, "moment", "bf16") / last(results, "exact", "bf16")
    stalled = last(results, "stalled", "bf16")
    test = all_of(
        [
            ratio_test(last(results, "moment", "bf16"), last(results, "exact", "bf16"), above=FAR),
            difference_test(stalled, 1 - MANY, above=0),
        ]
    )
    return f"{spread(ratio, 1)} times the exact one; {spread(100 * stalled, 1)} % stall", test


@claim(
    "a second moment in {what} follows the exact average",
    f"moment / exact average within a factor of {MATCH}, when gradients have become ten times smaller",
)
def _follows(results: list[Result], variant: str, beta2: float, what: str) -> Measured:
    found, exact = (last(results, key, variant, beta2) for key in ("moment", "exact"))
    return spread(found / exact, 3), ratio_test(found, exact, above=1 / MATCH, below=MATCH)


@claim(
    "beta2 = 0.999: a second moment in E5M2 stalls on its way up, far below the exact average",
    f"moment / exact average < {1 / ABOUT:g} before gradients become smaller",
)
def _too_low(results: list[Result]) -> Measured:
    ratio = risen(results, "e5m2", "moment") / risen(results, "e5m2", "exact")
    test = ratio_test(risen(results, "e5m2", "moment"), risen(results, "e5m2", "exact"), below=1 / ABOUT)
    return spread(ratio, 3), test


def risen(results: list[Result], variant: str, key: str) -> NDArray[np.float64]:
    """Return the measurement at the end of the first third, in which gradients are large."""
    runs = sorted(select(results, variant=variant, beta2=DEFAULT), key=lambda run: run["seed"])
    return np.array([run["rows"][len(run["rows"]) // 3 - 1][key] for run in runs], np.float64)


@claim("digits: {what}: training as with FP32 moments", f"loss / loss with FP32 moments within a factor of {MATCH}")
def _trains(results: list[Result], problem: str, variant: str, what: str) -> Measured:
    found, fp32 = final(results, problem, variant), final(results, problem, "fp32")
    return spread(found / fp32, 4), compare(found, fp32)


@claim(
    "digits: {what}: leaves less than half of the gap of beta2 = 0.999 to nearest",
    "log loss above FP32 moments, minus half of the gap, < 0",
)
def _closes_gap(results: list[Result], problem: str, variant: str, what: str) -> Measured:
    gap, rest = (_gap(results, *arm) for arm in (("long-memory", "bf16"), (problem, variant)))
    return f"gap {spread(gap)} %, here {spread(rest)} %", difference_test(rest, gap / 2, below=0)


def _gap(results: list[Result], problem: str, variant: str) -> NDArray[np.float64]:
    """Return the excess of the loss over the loss with FP32 moments, in percent, for every seed."""
    return 100 * np.log(final(results, problem, variant) / final(results, problem, "fp32"))


@claim(
    "digits: a second moment in FP16 or FP8 needs a scale: squares of small gradients are zero there",
    f"loss / loss with FP32 moments > {FAR:g}, with or without stochastic rounding",
)
def _unscaled(results: list[Result]) -> Measured:
    fp32 = final(results, "long-memory", "fp32")
    lost = {variant: final(results, "long-memory", variant) for variant in ("fp16", "e5m2", "e5m2-stochastic")}
    test = all_of([ratio_test(values, fp32, above=FAR) for values in lost.values()])
    return ", ".join(f"{variant} {_times(values / fp32)}" for variant, values in lost.items()), test


def _times(ratios: NDArray[np.float64]) -> str:
    """Return the geometric mean as text."""
    return f"{np.exp(np.mean(np.log(ratios))):.1e}" if np.isfinite(ratios).all() else "diverges"
