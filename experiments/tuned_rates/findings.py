"""The claims, and their tests. Gaps are 100 log(loss / loss of FP32), which is about percent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import select
from experiments.options import FIRST_SEED
from experiments.precision_claims import repair_test
from experiments.tuned_rates.best import BEST
from experiments.tuned_rates.jobs import ARMS
from experiments.tuned_rates.problems import TUNED, rate_of
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import MATCH, difference_test, ratio_test

STANDARD, REMEDIES = "bf16-standard", ("bf16-stochastic", "bf16-kahan", "bf16-fp32-weights")


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim, problem by problem."""
    decided = [result for result in results if result.get("seed", 0) >= FIRST_SEED]
    has_repetitions = any(result.get("repeater") in TUNED["MLP"].repeating for result in results)
    return [
        *(finding for problem in TUNED for finding in _findings_on(select(decided, problem=problem), problem)),
        *(
            finding
            for problem, tuned in TUNED.items()
            if "cosine" in tuned.schedules
            for finding in (_decay_opens_gap(decided, problem), _decay_cancels(decided, problem))
        ),
        *(_best_rate_is_stable(results, "MLP", arm) for arm in ("fp32", STANDARD) if has_repetitions),
    ]


def _findings_on(results: list[Result], problem: str) -> list[Finding]:
    schedules, remedies = TUNED[problem].schedules, [arm for arm in REMEDIES if arm in TUNED[problem].arms]
    return [
        _earlier_is_slow(results, problem),
        _worse_at_earlier(results, problem),
        *(_worse_at_best(results, problem, schedule) for schedule in schedules),
        _tuning_closes_gap(results, problem),
        *(_remedy_at_earlier(results, problem, arm) for arm in remedies),
        *(_remedy_at_best(results, problem, schedule, arm) for schedule in schedules for arm in remedies),
    ]


def ends(results: list[Result], arm: str, rate: float, schedule: str = "constant", key: str = "loss") -> NDArray:
    """Return the values at the end of the runs at a rate, for every seed in order; NaN for a run that diverged."""
    runs = sorted(select(results, arm=arm, rate=rate, schedule=schedule), key=lambda run: run["seed"])
    return np.array([run[key] for run in runs], np.float64)


def best_rate(problem: str, arm: str, schedule: str = "constant") -> float:
    """Return the rate that is the best for a policy on the seeds that choose."""
    return rate_of(BEST[problem, schedule][arm])


def best_ends(results: list[Result], problem: str, arm: str, schedule: str = "constant", key: str = "loss") -> NDArray:
    """Return the values at the end of the runs of a policy at its best rate, for every seed in order."""
    return ends(results, arm, best_rate(problem, arm, schedule), schedule, key)


def gap(losses: NDArray, fp32: NDArray) -> NDArray[np.float64]:
    """Return 100 log(loss / loss of FP32); infinite if the run diverged."""
    return 100 * (np.log(np.where(np.isnan(losses), np.inf, losses)) - np.log(fp32))


def earlier_gap(results: list[Result], problem: str, arm: str) -> NDArray[np.float64]:
    """Return the gap of a policy at the earlier rate."""
    rate = TUNED[problem].earlier
    return gap(ends(results, arm, rate), ends(results, "fp32", rate))


def best_gap(results: list[Result], problem: str, arm: str, schedule: str = "constant") -> NDArray[np.float64]:
    """Return the gap of a policy at its best rate to FP32 at its best rate."""
    return gap(*(best_ends(results, problem, each, schedule) for each in (arm, "fp32")))


@claim("{problem}: the earlier rate is not the best for FP32", f"loss at {{rate:g}} / loss at the best rate > {MATCH}")
def _earlier_is_slow(results: list[Result], problem: str) -> Measured:
    rate, best = TUNED[problem].earlier, best_rate(problem, "fp32")
    slow, tuned = ends(results, "fp32", rate), ends(results, "fp32", best)
    text = f"{spread(slow / tuned, 3)}; the best rate is {best:.3g}"
    return text, ratio_test(slow, tuned, above=MATCH), {"rate": rate}


@claim("{problem}: at the earlier rate BF16 with nearest updates ends worse than FP32", "loss / FP32's loss > 1")
def _worse_at_earlier(results: list[Result], problem: str) -> Measured:
    rate, task = TUNED[problem].earlier, TUNED[problem].task
    loss, fp32 = (ends(results, arm, rate) for arm in (STANDARD, "fp32"))
    narrow, wide = (task.shown(ends(results, arm, rate, key="measure")) for arm in (STANDARD, "fp32"))
    text = f"{spread(loss / fp32, 3)}; {task.name} {spread(narrow)} against {spread(wide)}{' %' * task.is_share}"
    return text, ratio_test(loss, fp32, above=1)


@claim(
    "{problem}: BF16 with nearest updates at its best {schedule} rate ends worse than FP32 at its best",
    "loss / FP32's loss > 1",
)
def _worse_at_best(results: list[Result], problem: str, schedule: str) -> Measured:
    task = TUNED[problem].task
    loss, fp32 = (best_ends(results, problem, arm, schedule) for arm in (STANDARD, "fp32"))
    narrow, wide = (task.shown(best_ends(results, problem, arm, schedule, "measure")) for arm in (STANDARD, "fp32"))
    rates = " and ".join(f"{best_rate(problem, arm, schedule):.3g}" for arm in (STANDARD, "fp32"))
    text = f"{spread(loss / fp32, 3)} at {rates}; {task.name} {spread(narrow)} against {spread(wide)}"
    return text + " %" * task.is_share, ratio_test(loss, fp32, above=1)


@claim(
    "{problem}: tuning the rate of each policy closes most of the gap of nearest updates",
    "gap at the best rates, minus half of the gap at the earlier rate, < 0",
)
def _tuning_closes_gap(results: list[Result], problem: str) -> Measured:
    earlier, best = earlier_gap(results, problem, STANDARD), best_gap(results, problem, STANDARD)
    return f"gap {spread(earlier, 1)} %, tuned {spread(best, 1)} %", repair_test(earlier, best)


@claim(
    "{problem}: {name}: closes most of the gap at the earlier rate",
    "its gap, minus half of the gap of nearest updates, < 0",
)
def _remedy_at_earlier(results: list[Result], problem: str, arm: str) -> Measured:
    standard, rest = (earlier_gap(results, problem, each) for each in (STANDARD, arm))
    tuned = best_gap(results, problem, arm)
    text = f"gap {spread(standard, 1)} %, with it {spread(rest, 2)} %; tuned {spread(tuned, 2)} %"
    return text, repair_test(standard, rest), {"name": ARMS[arm].label}


@claim(
    "{problem}: {name}: closes most of the gap at the best {schedule} rates",
    "its gap, minus half of the gap of nearest updates, < 0, each policy at its best rate",
)
def _remedy_at_best(results: list[Result], problem: str, schedule: str, arm: str) -> Measured:
    standard, rest = (best_gap(results, problem, each, schedule) for each in (STANDARD, arm))
    text = f"gap {spread(standard, 1)} %, with it {spread(rest, 2)} %"
    return text, repair_test(standard, rest), {"name": ARMS[arm].label}


@claim(
    "{problem}: a decaying rate opens the gap of nearest updates", "gap with a cosine - gap with a constant rate > 0"
)
def _decay_opens_gap(results: list[Result], problem: str) -> Measured:
    runs = select(results, problem=problem)
    cosine, constant = (best_gap(runs, problem, STANDARD, schedule) for schedule in ("cosine", "constant"))
    return f"{spread(cosine, 1)} against {spread(constant, 1)} %", difference_test(cosine, constant, above=0)


@claim(
    "{problem}: a decaying rate cancels more updates in the late stage",
    "share of weights unchanged in the last fifth: cosine - constant > 0",
)
def _decay_cancels(results: list[Result], problem: str) -> Measured:
    runs = select(results, problem=problem)
    cosine, constant = (
        100 * best_ends(runs, problem, STANDARD, schedule, "late") for schedule in ("cosine", "constant")
    )
    return f"{spread(cosine, 1)} against {spread(constant, 1)} %", difference_test(cosine, constant, above=0)


@claim(
    "{problem}: on other seeds, the best constant rate of {name} is within half an octave of the chosen one",
    "log2(best rate of a seed / chosen rate) within 0.5",
)
def _best_rate_is_stable(results: list[Result], problem: str, arm: str) -> Measured:
    chosen = np.log2(best_rate(problem, arm))
    trials = select(results, problem=problem, arm=arm)
    bests = [best_of(trials, seed) for seed in TUNED[problem].repeating]
    shown = ", ".join(f"{rate:.3g}" for rate in bests)
    test = difference_test(np.log2(bests), chosen, above=-0.5, below=0.5)
    return f"{shown}; chosen {2**chosen:.3g}", test, {"name": ARMS[arm].label}


def best_of(trials: list[Result], seed: int) -> float:
    """Return the rate with the smallest loss among the runs of a seed that repeats the choice."""
    runs = select(trials, repeater=seed)
    return float(min(runs, key=lambda run: run["loss"] if np.isfinite(run["loss"]) else np.inf)["rate"])
