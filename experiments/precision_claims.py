"""Claims on training in 16 and 8 bits, compared with FP32, for any problem with a task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import FINAL, final, select
from experiments.mixed_precision import FP32
from experiments.precisions import FP8, NO_MASTER, STANDARD
from experiments.task import Task
from experiments.variants import Variant
from simfloat.studies import Measured, Result, claim, spread
from simfloat.studies.verdicts import INCONCLUSIVE, MATCH, WORSE, Outcome, compare_shortfall, difference_test

#: The margin of *Revisiting BFloat16 Training* for "matches": 0.1 points of a share, or percent of a perplexity.
SOURCE_MARGIN = 0.1


def measure(results: Sequence[Result], problem: str, task: Task, variant: Variant) -> NDArray[np.float64]:
    """Return the final measure of the task on held-out data, for every seed; shares in percent."""
    return task.shown(final(results, problem, variant.key, task.measure))


def shortfall(
    results: Sequence[Result], problem: str, task: Task, variant: Variant, reference: Variant = FP32
) -> NDArray[np.float64]:
    """Return by how many percent the final measure is worse than that of the reference, for every seed."""
    values, others = (final(results, problem, each.key, task.measure) for each in (variant, reference))
    return task.shortfall(values, others)


def beside_fp32(results: Sequence[Result], problem: str, task: Task, variant: Variant) -> str:
    """Return the measure and the loss, compared with FP32, as text."""
    found, fp32 = (spread(measure(results, problem, task, each)) for each in (variant, FP32))
    losses = final(results, problem, variant.key) / final(results, problem, FP32.key)
    return f"{found} against {fp32}{' %' * task.is_share}; loss {spread(losses, 3)} times FP32's"


def unit_of(task: Task) -> str:
    """Return the unit of a shortfall, which FP32 follows."""
    return "points below" if task.is_share else "percent above"


@claim("{problem}: BF16 with nearest updates ends with a worse {name} than FP32", "{unit} FP32 > 0")
def falls_short(results: Sequence[Result], problem: str, task: Task) -> Measured:
    """Test if the standard algorithm validates worse than FP32."""
    test = difference_test(shortfall(results, problem, task, STANDARD), 0, above=0)
    words = {"name": task.name, "unit": unit_of(task)}
    return beside_fp32(results, problem, task, STANDARD), test, words


@claim(
    "{problem}: BF16 with nearest updates cancels more of them in the late stage",
    "share of weights in the last fifth - in the first fifth > 0",
)
def cancels_late(results: Sequence[Result], problem: str) -> Measured:
    """Test if nearest rounding leaves more and more weights unchanged."""
    runs = select(results, problem=problem, variant=STANDARD.key)
    records = max(1, int(FINAL * len(runs[0]["unchanged"])))
    early, late = (
        np.array([np.mean(run["unchanged"][part]) for run in runs]) for part in (slice(records), slice(-records, None))
    )
    return f"{spread(100 * early)} % early, {spread(100 * late)} % late", difference_test(late, early, above=0)


@claim("{problem}: {variant.label}: matches the {name} of FP32", "mean within {margin} FP32")
def matches(results: Sequence[Result], problem: str, task: Task, variant: Variant) -> Measured:
    """Test if the variant validates as well as FP32, within a margin."""
    words = {"name": task.name, "margin": "a point of" if task.is_share else f"a factor of {MATCH} of"}
    test = compare_shortfall(shortfall(results, problem, task, variant), task.margin)
    return beside_fp32(results, problem, task, variant), test, words


@claim("{problem}: FP8 matches the {name} of FP16", "mean within {margin} FP16")
def fp8_matches_fp16(results: Sequence[Result], problem: str, task: Task, fp16: Variant) -> Measured:
    """Test if FP8 validates as well as FP16 with a master copy."""
    words = {"name": task.name, "margin": "a point of" if task.is_share else f"a factor of {MATCH} of"}
    narrow, wide = (measure(results, problem, task, each) for each in (FP8, fp16))
    test = compare_shortfall(shortfall(results, problem, task, FP8, fp16), task.margin)
    return f"{spread(narrow)} against {spread(wide)}{' %' * task.is_share}", test, words


@claim("{problem}: {variant.label}: matches the {name} of FP32", "mean within {margin} FP32")
def matches_closely(results: Sequence[Result], problem: str, task: Task, variant: Variant) -> Measured:
    """Test if a remedy validates as well as FP32, within the margin of the paper that proposes it."""
    words = {"name": task.name, "margin": close_margin(task)}
    test = compare_shortfall(shortfall(results, problem, task, variant), SOURCE_MARGIN)
    return beside_fp32(results, problem, task, variant), test, words


def close_margin(task: Task) -> str:
    """Return the margin of the paper in words."""
    return f"{SOURCE_MARGIN} {'points' if task.is_share else 'percent'} of"


@claim(
    "{problem}: {variant.label}: closes most of the gap of nearest updates",
    "{unit} FP32, minus half of the gap of nearest updates, < 0",
)
def closes_gap(results: Sequence[Result], problem: str, task: Task, variant: Variant) -> Measured:
    """Test if a remedy closes more than half of the gap, seed by seed."""
    gap, rest = (shortfall(results, problem, task, each) for each in (STANDARD, variant))
    return gap_text(gap, rest), repair_test(gap, rest), {"unit": unit_of(task)}


def gap_text(gap: NDArray[np.float64], rest: NDArray[np.float64]) -> str:
    """Return the gap of nearest updates and that of a remedy as text."""
    return f"gap {spread(gap)}, with the remedy {spread(rest)}"


def repair_test(gap: NDArray[np.float64], rest: NDArray[np.float64]) -> Outcome:
    """Test if a remedy leaves less than half of the gap, if nearest updates fail the margin of the paper."""
    if compare_shortfall(gap, SOURCE_MARGIN).verdict != WORSE:
        return Outcome(
            INCONCLUSIVE, "none: nearest updates are not shown to be worse, so there is no gap to close", 1.0
        )
    return difference_test(rest, gap / 2, below=0)


@claim("{problem}: updating FP16 weights loses accuracy", "{unit} FP32 > 0")
def fp16_weights_lag(results: Sequence[Result], problem: str, task: Task) -> Measured:
    """Test if FP16 training without an FP32 master copy validates worse, by the rule for BF16."""
    test = difference_test(shortfall(results, problem, task, NO_MASTER), 0, above=0)
    return beside_fp32(results, problem, task, NO_MASTER), test, {"unit": unit_of(task)}
