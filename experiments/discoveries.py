"""How many of several verdicts may be false: the false discovery rate of Benjamini and Hochberg (1995)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Discoveries(NamedTuple):
    """How many claims were tested, how many of them were decided, and the false discovery rate of the decisions.

    `rate` bounds the share of false ones that is to be expected among them; None if nothing was tested.
    """

    tested: int
    decided: int
    rate: float | None

    def __str__(self) -> str:
        if self.rate is None:
            return "No claim was tested by statistics."
        return (
            f"{self.decided} of {self.tested} tested claims are decided, at a false discovery rate of "
            f"{100 * self.rate:.2g} % (Benjamini-Hochberg)."
        )


def discoveries(levels: Iterable[float | None]) -> Discoveries:
    """Of the p values of all claims: 1 is that of a claim that is left open, None that of one without statistics."""
    p = [level for level in levels if level is not None]
    decided = [level < 1 for level in p]
    rates = adjusted(p)[decided] if p else np.array([])
    return Discoveries(len(p), sum(decided), float(rates.max(initial=0.0)) if p else None)


def adjusted(p: Sequence[float]) -> NDArray[np.float64]:
    """The least false discovery rate at which each of the p values is among the discoveries."""
    values = np.asarray(p, np.float64)
    order = np.argsort(-values)
    rates = np.minimum.accumulate(values[order] * len(values) / np.arange(len(values), 0, -1))
    found = np.empty_like(rates)
    found[order] = rates
    return found
