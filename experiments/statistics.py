"""Numbers out of curves: one for each seed, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.experiment import Result

#: The part of a run, from its end, that "final" is the mean of.
FINAL = 0.2


def select(results: Sequence[Result], **fields: object) -> list[Result]:
    """The results whose fields have these values."""
    return [result for result in results if all(result.get(key) == value for key, value in fields.items())]


def final(results: Sequence[Result], problem: str, variant: str, key: str = "loss") -> NDArray[np.float64]:
    """The mean of the last fifth of a curve, for every seed in order."""
    runs = sorted(select(results, problem=problem, variant=variant), key=lambda run: run["seed"])
    return np.array([final_value(run[key]) for run in runs], np.float64)


def final_value(curve: Sequence[float]) -> float:
    """The mean of the last fifth of a curve."""
    return float(np.mean(curve[-max(1, int(FINAL * len(curve))) :]))


def spread(values: NDArray, digits: int = 2) -> str:
    """Mean and standard deviation over seeds, as text."""
    deviation = np.std(values, ddof=1) if len(values) > 1 and np.isfinite(values).all() else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"
