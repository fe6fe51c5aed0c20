"""The problems: what stands for which model and data of the paper, and how each is judged."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.bfloat16_models.clicks import clicks
from experiments.bfloat16_models.images import images
from experiments.bfloat16_models.speech import speech
from experiments.bfloat16_models.texts import language, topics
from experiments.training import Problems
from simfloat.studies.margins import MATCH, POINT


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


PROBLEMS: Problems = {"images": images, "clicks": clicks, "topics": topics, "language": language, "speech": speech}

TASKS = {
    "images": Task("CNN, digits", "accuracy", "accuracy (%)"),
    "clicks": Task("DLRM, flights", "auc", "AUC (%)"),
    "topics": Task("BERT, topics", "accuracy", "accuracy (%)"),
    "language": Task("GPT, characters", "perplexity", "perplexity"),
    "speech": Task("RNN, speakers", "accuracy", "accuracy (%)"),
}

#: The problems that stand for the three models of the paper's Table 1 and Figure 3.
BOTTLENECK = ("images", "clicks", "topics")
