"""Claims on training in 16 and 8 bits, compared with FP32, for any problem with a task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import FINAL, final, select
from experiments.mixed_precision import FP32
from experiments.precisions import NO_MASTER, STANDARD
from experiments.task import Task
from experiments.variants import Variant
from simfloat.studies import Measured, Result, claim, spread
from simfloat.studies.verdicts import MATCH, compare_shortfall, difference_test, ratio_test


def measure(results: Sequence[Result], problem: str, task: Task, variant: Variant) -> NDArray[np.float64]:
    """Return the final measure of the task on held-out data, for every seed; shares in percent."""
    return task.shown(final(results, problem, variant.key, task.measure))


def shortfall(results: Sequence[Result], problem: str, task: Task, variant: Variant) -> NDArray[np.float64]:
    """Return by how many percent the final measure is worse than in FP32, for every seed."""
    values, fp32 = (final(results, problem, each.key, task.measure) for each in (variant, FP32))
    return task.shortfall(values, fp32)


def beside_fp32(results: Sequence[Result], problem: str, task: Task, variant: Variant) -> str:
    """Return the measure and the loss, compared with FP32, as text."""
    found, fp32 = (spread(measure(results, problem, task, each)) for each in (variant, FP32))
    losses = final(results, problem, variant.key) / final(results, problem, FP32.key)
    return f"{found} against {fp32}{' %' * task.is_share}; loss {spread(losses, 3)} times FP32's"


@claim("{problem}: BF16 with nearest updates ends with a worse {name} than FP32", "{unit} FP32 > 0")
def falls_short(results: Sequence[Result], problem: str, task: Task) -> Measured:
    """Test if the standard algorithm validates worse than FP32."""
    test = difference_test(shortfall(results, problem, task, STANDARD), 0, above=0)
    words = {"name": task.name, "unit": "points below" if task.is_share else "percent above"}
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


@claim("{problem}: updating FP16 weights loses accuracy", f"loss / FP32's loss > {MATCH}")
def fp16_weights_lag(results: Sequence[Result], problem: str, task: Task) -> Measured:
    """Test if FP16 training without an FP32 master copy falls behind."""
    loss, fp32 = (final(results, problem, each.key) for each in (NO_MASTER, FP32))
    return beside_fp32(results, problem, task, NO_MASTER), ratio_test(loss, fp32, above=MATCH)
