"""The task of a problem: its measure, the difference between two runs, and their text."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.studies.verdicts import MATCH, POINT


class Task(NamedTuple):
    """The measure of a problem, and its name in figures."""

    title: str
    measure: str
    label: str

    @property
    def name(self) -> str:
        """The name of the measure in sentences."""
        return self.label.removesuffix(" (%)")

    @property
    def is_share(self) -> bool:
        """True if the measure is a share up to 1, and larger is better; smaller perplexities are better."""
        return self.measure != "perplexity"

    @property
    def margin(self) -> float:
        """The margin of matching fp32: points of percent for shares, percent for perplexities."""
        return POINT if self.is_share else 100 * math.log(MATCH)

    def shown(self, values: NDArray) -> NDArray:
        """Return the measure for tables: shares in percent."""
        return 100 * values if self.is_share else values

    def shortfall(self, values: NDArray, reference: NDArray) -> NDArray:
        """Return how much worse the values are, in percent: a difference of shares, or a ratio of perplexities.

        A perplexity that is NaN, from a run that diverged, is infinitely worse.
        """
        if self.is_share:
            return 100 * (reference - values)
        return 100 * (np.log(np.where(np.isnan(values), np.inf, values)) - np.log(reference))
