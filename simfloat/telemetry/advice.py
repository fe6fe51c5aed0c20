"""Advice from the counts of a recorder: a wider format, more precision, a scale, and a remedy for the first NaN."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.nan_causes import is_precise, is_wide
from simfloat.formats import FP32, Format
from simfloat.policy import Policy
from simfloat.policy.own_types import is_written
from simfloat.table import Table, table
from simfloat.telemetry.entries import (
    Key,
    are_precise,
    are_wide,
    count_overflowed_sums,
    count_zeros,
    counts_by_name,
    exponent_counts,
)
from simfloat.telemetry.first_nan import Entries, FirstNaN, explain_nan
from simfloat.telemetry.range_fit import Binades, Histogram, count_in_range, format_binades
from simfloat.telemetry.remedy import Remedy, program_remedy_text, remedy, remedy_in_own_types

#: Exponents between which a scale is a normal number of float64.
LEAST_SCALE, GREATEST_SCALE = -1022, 1023

#: So many binades lie between the results of a mask and all others at least.
MASK_GAP = 8

WIDER, SCALE, PRECISION = "a wider format", "a scale", "more precision"


class Advice(NamedTuple):
    """The need of the results of an operation at a path, the share of them that shows it, and the reason in words.

    `scale` is the power of two by which they may be multiplied, or None where the advice is another or no format is
    known. `override` is the call, as text, that gives the role which rounds them FP32, or FP64 where that is what they
    have; it is empty where no policy has a say.
    """

    path: str
    operation: str
    phase: str
    need: str
    share: float
    scale: float | None
    why: str
    override: str = ""


class AdviceList(tuple[Advice, ...]):
    """All advice, the first NaN and then the largest share first. Printed, it is a table."""

    def table(self) -> Table:
        """A line for each advice."""
        rows = [("path", "operation", "phase", "needs", "why", "override")]
        rows += [(each.path or "-", each.operation, each.phase, each.need, each.why, each.override) for each in self]
        return table(rows)

    def __repr__(self) -> str:
        return (
            self.table()
            if self
            else "Nothing to advise: no NaN was made, and no share of lost results is above the limits."
        )

    def _repr_html_(self) -> str:
        return self.table()._repr_html_() if self else f"<p>{self!r}</p>"


class Limits(NamedTuple):
    """Shares above which something is advised."""

    lost: float  # of underflows, and of sums that lose an addend
    overflow: float


def list_advice(
    entries: Entries,
    format: Format | None,
    limits: Limits,
    first: FirstNaN | None = None,
    policy: Policy | None = None,
) -> AdviceList:
    """The advice for each entry, the largest share first, after that for the first NaN.

    `format` is what results are or shall be rounded to, where that is known, and `policy` what they were made under.
    """
    binades, keys, all_advice = (
        None if format is None else format_binades(format),
        [key for key, _ in entries],
        list[Advice](),
    )
    own_types = policy is not None and is_written(policy)
    for key, events in entries:
        wide = are_wide(events) if format is None else is_wide(format)
        precise = are_precise(events) if format is None else is_precise(format)
        for advice, is_fp32, sums in (
            (_range_advice(key, events, binades, limits), wide, False),
            (_lost_addend_advice(key, events, limits), precise, False),
            (_sum_advice(key, events, limits), False, True),
        ):
            if advice is None or own_types and _is_kept_by_update(policy, key, advice):
                continue
            all_advice.append(_with_override(advice, remedy(key, keys, is_fp32=is_fp32, sums=sums), key, own_types))
    at_first = [] if first is None else [_nan_advice(first, entries, own_types)]
    return AdviceList([*at_first, *sorted(all_advice, key=lambda advice: -advice.share)])


def _with_override(advice: Advice, mended: Remedy | None, key: Key, own_types: bool) -> Advice:
    """The advice with an override that has an effect; under a program's own types with what the program can do."""
    if not own_types:
        return advice._replace(override=str(mended or ""))
    chosen = None if mended is None else remedy_in_own_types(mended, is_lost=_is_lost(key, advice))
    why = advice.why if chosen is not None else f"{advice.why}; in the program: {program_remedy_text(key)}"
    return advice._replace(why=why, override=str(chosen or ""))


def _is_kept_by_update(policy: Policy | None, key: Key, advice: Advice) -> bool:
    """Whether what an addition to a parameter loses is kept, or made up for, by the policy's update."""
    update = "nearest" if policy is None else policy.recipe(key.path, "update").update
    return _is_lost(key, advice) and update != "nearest"


def _is_lost(key: Key, advice: Advice) -> bool:
    """Whether additions to a parameter leave it as it was."""
    return key.phase == key.operation == "update" and advice.need == PRECISION


def _nan_advice(first: FirstNaN, entries: Entries, own_types: bool) -> Advice:
    counts, (need, why, mended, source) = counts_by_name(dict(entries)[first.key]), explain_nan(first, entries)
    advice = Advice(*first.key, need, counts["nan"] / counts["total"], None, why)
    return advice if mended is None else _with_override(advice, mended, source or first.key, own_types)


def _sum_advice(key: Key, events: NDArray[np.int64], limits: Limits) -> Advice | None:
    share = count_overflowed_sums(events) / max(counts_by_name(events)["total"], 1)
    if share <= limits.overflow:
        return None
    return Advice(*key, WIDER, share, None, f"{_percent(share)} overflow inside their sums")


def _lost_addend_advice(key: Key, events: NDArray[np.int64], limits: Limits) -> Advice | None:
    counts = counts_by_name(events)
    lost = counts["unchanged"] - (_count_masked(exponent_counts(events)) if key.phase == "forward" else 0)
    share = lost / max(counts["total"], 1)
    if share <= limits.lost:
        return None
    return Advice(*key, PRECISION, share, None, f"{_percent(share)} of the sums lose their addend")


def _is_smallest(key: Key, events: NDArray[np.int64], histogram: Histogram) -> bool:
    """Whether the overflow of a sum is that of float32's smallest number, a mask: all else is far below the largest."""
    if key.phase != "forward" or key.operation not in ("add", "subtract") or not are_wide(events):
        return False
    return all(place <= format_binades(FP32).highest - MASK_GAP for place in histogram if isinstance(place, int))


def _count_masked(histogram: Histogram) -> int:
    """How many results are a mask's, such as -1e9 or the smallest number, which is to replace what it is added to.

    They lie in neighbouring binades, above all others by so many that no addend of those would show.
    """
    places = sorted((place for place in histogram if isinstance(place, int)), reverse=True)
    for number, (place, lower) in enumerate(pairwise(places), 1):
        if place - lower >= MASK_GAP:
            return sum(histogram[each] for each in places[:number]) if number <= 2 else 0
    return 0


def _range_advice(key: Key, events: NDArray[np.int64], binades: Binades | None, limits: Limits) -> Advice | None:
    counts, histogram = counts_by_name(events), exponent_counts(events)
    nonzero = max(counts["total"] - counts["nan"] - count_zeros(events) + counts["underflow"], 1)
    outside = count_in_range(histogram, binades) if binades else None
    below = (counts["underflow"] + (outside.below if outside else 0)) / nonzero
    overflow = 0 if _is_smallest(key, events, histogram) else counts["overflow"]
    beyond = (overflow + (outside.beyond if outside else 0)) / nonzero
    if below <= limits.lost and beyond <= limits.overflow:
        return None
    words = [f"{_percent(share)} {verb}" for share, verb in ((below, "underflow"), (beyond, "overflow")) if share]
    if binades:
        k = _exponent_of_scale(histogram, binades, smaller=overflow / nonzero > limits.overflow)
        left = count_in_range(histogram, binades.shift(k)).below + (counts["underflow"] if k <= 0 else 0)
        helps = left / nonzero <= limits.lost
    else:
        k, subnormal = None, counts["subnormal"] / nonzero
        helps = beyond <= limits.overflow or max(below, subnormal) <= limits.lost
    if not helps or key.phase == "update":
        return Advice(*key, WIDER, max(below, beyond), None, ", ".join(words))
    if k is not None:
        words.append(f"up to 2^{k} fits")
    return Advice(*key, SCALE, max(below, beyond), None if k is None else 2.0**k, ", ".join(words))


def _exponent_of_scale(histogram: Histogram, binades: Binades, *, smaller: bool) -> int:
    """log2 of the largest scale that takes no result beyond the format; at most -1, if it must be `smaller` than 1."""
    highest = max((exponent for exponent in histogram if isinstance(exponent, int)), default=binades.normal)
    room = min(max(binades.highest - highest, LEAST_SCALE), GREATEST_SCALE)
    return min(room, -1) if smaller else room


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
