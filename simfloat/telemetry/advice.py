"""What the counts of a recorder advise: a wider format, a scale, or FP32 sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.table import Table, table
from simfloat.telemetry.entries import Key, counted, exponents, zeros
from simfloat.telemetry.kept import Histogram, Span, kept

#: Exponents between which a scale is a normal number of float64.
LEAST_SCALE, GREATEST_SCALE = -1022, 1023

WIDER, SCALE, SUMS = "a wider format", "a scale", "FP32 sums"


class Advice(NamedTuple):
    """What results of an operation at a path need, the share of them that says so, and why in words.

    `scale` is the power of two by which they may be multiplied, or None where the advice is another or no format is
    known.
    """

    path: str
    operation: str
    phase: str
    need: str
    share: float
    scale: float | None
    why: str


class Advices(tuple[Advice, ...]):
    """All advice, the largest share first. Printed, it is a table."""

    def table(self) -> Table:
        """A line for each advice."""
        rows = [("path", "operation", "phase", "needs", "why")]
        rows += [(each.path or "-", each.operation, each.phase, each.need, each.why) for each in self]
        return table(rows)

    def __repr__(self) -> str:
        return self.table() if self else "Nothing to advise: no share of lost results is above the limits."

    def _repr_html_(self) -> str:
        return self.table()._repr_html_() if self else f"<p>{self!r}</p>"


class Limits(NamedTuple):
    """Shares above which something is advised."""

    lost: float  # of underflows, and of sums that lose an addend
    overflow: float


def advices(entries: list[tuple[Key, NDArray[np.int64]]], binades: Span | None, limits: Limits) -> Advices:
    """The advice for each entry, the largest share first; `binades` are those of its format, where that is known."""
    found = []
    for key, events in entries:
        found += [each for each in (_of_range(key, events, binades, limits), _of_sums(key, events, limits)) if each]
    return Advices(sorted(found, key=lambda advice: -advice.share))


def _of_sums(key: Key, events: NDArray[np.int64], limits: Limits) -> Advice | None:
    counts = counted(events)
    share = counts["unchanged"] / max(counts["total"], 1)
    if share <= limits.lost:
        return None
    return Advice(*key, SUMS, share, None, f"{_percent(share)} of the sums lose their addend")


def _of_range(key: Key, events: NDArray[np.int64], binades: Span | None, limits: Limits) -> Advice | None:
    counts, histogram = counted(events), exponents(events)
    nonzero = max(counts["total"] - counts["nan"] - zeros(events) + counts["underflow"], 1)
    outside = kept(histogram, binades) if binades else None
    below = (counts["underflow"] + (outside.below if outside else 0)) / nonzero
    beyond = (counts["overflow"] + (outside.beyond if outside else 0)) / nonzero
    if below <= limits.lost and beyond <= limits.overflow:
        return None
    words = [f"{_percent(share)} {verb}" for share, verb in ((below, "underflow"), (beyond, "overflow")) if share]
    if binades:
        k = _exponent_of_scale(histogram, binades, smaller=counts["overflow"] / nonzero > limits.overflow)
        left = kept(histogram, binades.shifted(k)).below + (counts["underflow"] if k <= 0 else 0)
        helps = left / nonzero <= limits.lost
    else:
        k, subnormal = None, counts["subnormal"] / nonzero
        helps = beyond <= limits.overflow or max(below, subnormal) <= limits.lost
    if not helps or key.phase == "update":
        return Advice(*key, WIDER, max(below, beyond), None, ", ".join(words))
    if k is not None:
        words.append(f"up to 2^{k} fits")
    return Advice(*key, SCALE, max(below, beyond), None if k is None else 2.0**k, ", ".join(words))


def _exponent_of_scale(histogram: Histogram, binades: Span, *, smaller: bool) -> int:
    """log2 of the largest scale that takes no result beyond the format; at most -1, if it must be `smaller` than 1."""
    highest = max((exponent for exponent in histogram if isinstance(exponent, int)), default=binades.normal)
    room = min(max(binades.highest - highest, LEAST_SCALE), GREATEST_SCALE)
    return min(room, -1) if smaller else room


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
