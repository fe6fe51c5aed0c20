"""The claims, and their tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.bfloat16_models.policies import FP32, FP32_WEIGHTS, KAHAN, STANDARD, STOCHASTIC
from experiments.bfloat16_models.problems import BOTTLENECK, PROBLEMS, TASKS
from experiments.measurement import FINAL, against_fp32, final, select
from experiments.precision_claims import SOURCE_MARGIN, gap_text, repair_test
from experiments.variants import Variant
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import Outcome, all_of, compare_shortfall, count_test, difference_test


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim; for a given policy, one for each problem."""
    if select(results, variant="given"):
        return against_fp32(results, PROBLEMS)
    return [
        *(standard_falls_short(results, problem) for problem in PROBLEMS),
        *(gap_grows(results, problem) for problem in BOTTLENECK),
        *(cancels_late(results, problem) for problem in PROBLEMS),
        *(matches(results, problem, FP32_WEIGHTS, "Table 1") for problem in BOTTLENECK),
        *(matches(results, problem, variant, "Table 2") for variant in (STOCHASTIC, KAHAN) for problem in PROBLEMS),
        *(closes_gap(results, problem, FP32_WEIGHTS) for problem in BOTTLENECK),
        *(closes_gap(results, problem, variant) for variant in (STOCHASTIC, KAHAN) for problem in PROBLEMS),
        *(trains_alike(results, variant) for variant in (STOCHASTIC, KAHAN)),
        kahan_pays(results),
        memory_doubles(results),
    ]


def shortfall(results: list[Result], problem: str, variant: Variant, prefix: str = "") -> NDArray[np.float64]:
    """Return by how many percent the final measure is worse than that of fp32, for each seed."""
    key = prefix + TASKS[problem].measure
    values, fp32 = (final(results, problem, each.key, key) for each in (variant, FP32))
    return TASKS[problem].shortfall(values, fp32)


@claim("{problem}: standard 16-bit training ends with a worse {name} than 32-bit (Tables 1, 2)", "{unit} > 0")
def standard_falls_short(results: list[Result], problem: str) -> Measured:
    """Test Tables 1 and 2: the standard algorithm validates worse than 32-bit training."""
    test = difference_test(shortfall(results, problem, STANDARD), 0, above=0)
    return measured(results, problem, STANDARD), test, {"name": TASKS[problem].name, "unit": unit(problem)}


@claim(
    "{problem}: the gap on training data grows in the middle and late stage (Figures 1, 3)",
    "gap in the last fifth - gap in the first fifth > 0",
)
def gap_grows(results: list[Result], problem: str) -> Measured:
    """Test Figure 3: the gap of training accuracy is small early, and larger late."""
    task, key = TASKS[problem], f"train_{TASKS[problem].measure}"
    early, late = (
        task.shortfall(*(means(results, problem, variant, key, part) for variant in (STANDARD, FP32)))
        for part in ends(results)
    )
    test = difference_test(late, early, above=0)
    return f"{spread(early)} % in the first fifth, {spread(late)} % in the last", test


@claim(
    "{problem}: standard 16-bit training cancels more updates in the late stage (section 3.1)",
    "share of weights in the last fifth - in the first fifth > 0",
)
def cancels_late(results: list[Result], problem: str) -> Measured:
    """Test section 3.1: nearest rounding cancels updates in the middle and late stage."""
    early, late = (means(results, problem, STANDARD, "unchanged", part) for part in ends(results))
    test = difference_test(late, early, above=0)
    return f"{spread(100 * early)} % in the first fifth, {spread(100 * late)} % in the last", test


def ends(results: list[Result]) -> tuple[slice, slice]:
    """Return the first and the last fifth of the records."""
    fifth = max(1, int(FINAL * len(results[0]["iteration"])))
    return slice(None, fifth), slice(-fifth, None)


def means(results: list[Result], problem: str, variant: Variant, key: str, part: slice) -> NDArray[np.float64]:
    """Return the mean of a part of a curve, for every seed in order."""
    return np.array([np.mean(run[key][part]) for run in select(results, problem=problem, variant=variant.key)])


@claim("{problem}: {variant.label} matches 32-bit training ({where})", f"{{unit}} within {SOURCE_MARGIN}")
def matches(results: list[Result], problem: str, variant: Variant, where: str) -> Measured:
    """Test if the variant validates as well as 32-bit training, within the margin of the paper."""
    test = compare_shortfall(shortfall(results, problem, variant), SOURCE_MARGIN)
    return measured(results, problem, variant), test, {"unit": unit(problem)}


@claim("{problem}: {variant.label} closes most of the gap", "{unit}, minus half of the gap of standard training, < 0")
def closes_gap(results: list[Result], problem: str, variant: Variant) -> Measured:
    """Test if the variant leaves less than half of the gap of the standard algorithm."""
    gap, rest = (shortfall(results, problem, each) for each in (STANDARD, variant))
    return gap_text(gap, rest), repair_test(gap, rest), {"unit": unit(problem)}


@claim(
    "{variant.label} fits training data as 32-bit training does, in every problem (Figure 5)",
    "equal within the margin of each",
)
def trains_alike(results: list[Result], variant: Variant) -> Measured:
    """Test Figure 5: on training data the variant differs negligibly from 32-bit training, in all problems."""
    falls = {problem: shortfall(results, problem, variant, "train_") for problem in PROBLEMS}
    tests = [compare_shortfall(falls[problem], TASKS[problem].margin) for problem in PROBLEMS]
    return ", ".join(f"{problem} {spread(values)} %" for problem, values in falls.items()), all_of(tests)._replace(
        text=shortest(tests)
    )


@claim(
    "clicks: Kahan summation in place of stochastic rounding raises AUC, for twice the memory (Figure 4)",
    "AUC with Kahan - AUC with stochastic rounding > 0 points",
)
def kahan_pays(results: list[Result]) -> Measured:
    """Test Figure 4: Kahan summation on all weights of DLRM instead of stochastic rounding raises AUC."""
    kahan, stochastic = (100 * final(results, "clicks", variant.key, "auc") for variant in (KAHAN, STOCHASTIC))
    return f"{spread(kahan)} against {spread(stochastic)} %", difference_test(kahan, stochastic, above=0)


@claim(
    "Kahan summation doubles the memory of 16-bit weights, to no more than 32-bit weights take",
    "bytes of weights and compensations: 2 times stochastic's, at most fp32's",
)
def memory_doubles(results: list[Result]) -> Measured:
    """Test section 3.2 and Figure 4: Kahan summation doubles the memory of weights, up to that of 32-bit training."""
    kept = {variant: held(results, variant) for variant in (STOCHASTIC, KAHAN, FP32)}
    wrong = sum(
        kept[KAHAN][problem] != 2 * kept[STOCHASTIC][problem] or kept[KAHAN][problem] > kept[FP32][problem]
        for problem in PROBLEMS
    )
    test = count_test(wrong, len(PROBLEMS))
    return ", ".join(
        f"{variant.label} {np.mean(list(each.values())):g}" for variant, each in kept.items()
    ) + " a weight", test


def held(results: list[Result], variant: Variant) -> dict[str, float]:
    """Return the bytes per weight of weights and corrections in each problem."""
    runs = {problem: select(results, problem=problem, variant=variant.key)[0] for problem in PROBLEMS}
    return {problem: run["weight_bytes"] + run["kahan_bytes"] for problem, run in runs.items()}


def measured(results: list[Result], problem: str, variant: Variant) -> str:
    """Return the final measure, compared with fp32, as text."""
    task = TASKS[problem]
    values, fp32 = (task.shown(final(results, problem, each.key, task.measure)) for each in (variant, FP32))
    return f"{spread(values)} against {spread(fp32)}" + (" %" if task.is_share else "")


def unit(problem: str) -> str:
    """Return the unit of a shortfall."""
    return "points below 32-bit" if TASKS[problem].is_share else "percent above 32-bit"


def shortest(tests: Sequence[Outcome]) -> str:
    """Return the intervals of several tests of one kind, with the kind once."""
    intervals = [test.text.removeprefix("shortfall: difference in ").split(":")[0] for test in tests]
    return f"shortfalls in {', '.join(intervals)}:{tests[0].text.split(':')[-1]}"
