"""How well a problem is solved: what is measured, how much worse one run is than another, and how both are told."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.studies.verdicts import MATCH, POINT


class Task(NamedTuple):
    """How a problem is judged: what it measures, and how that is called in figures."""

    title: str
    measure: str
    label: str

    @property
    def name(self) -> str:
        """The measure as sentences have it."""
        return self.label.removesuffix(" (%)")

    @property
    def is_share(self) -> bool:
        """Whether larger is better, up to 1; perplexities are better smaller."""
        return self.measure != "perplexity"

    @property
    def margin(self) -> float:
        """What counts as matching fp32: points of percent below, or percent above for perplexities."""
        return POINT if self.is_share else 100 * math.log(MATCH)

    def shown(self, values: NDArray) -> NDArray:
        """The measure as tables have it: shares in percent."""
        return 100 * values if self.is_share else values

    def shortfall(self, values: NDArray, reference: NDArray) -> NDArray:
        """How much worse the values are, in percent: a difference of shares, or how far perplexities are above.

        A perplexity that is NaN, that of a run that diverged, is infinitely worse.
        """
        if self.is_share:
            return 100 * (reference - values)
        return 100 * (np.log(np.where(np.isnan(values), np.inf, values)) - np.log(reference))
