"""The curves of runs as figures take them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.experiment import Result
from experiments.statistics import select
from simfloat.plots import Curve


def curves(results: list[Result], key: str, styles: Mapping[str, int], smooth: int = 1) -> list[Curve]:
    """A curve for each variant, with a row of values for each seed; `styles` are the numbers of the variants' styles.

    A variant that is not among them, as one that the user gave, has style 2.
    """
    found = []
    for variant in dict.fromkeys(result["variant"] for result in results):
        runs = select(results, variant=variant)
        values = np.array([run[key] for run in runs], np.float64)
        found.append(Curve(runs[0]["label"], np.array(runs[0]["iteration"]), values, styles.get(variant, 2), smooth))
    return found
