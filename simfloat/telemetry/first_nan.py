"""The first NaN of a run: where it was made, of what, and what mends it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels.events import BEYOND, CAUSES, DOMAIN, GIVEN, SUM_BEYOND, SUM_OVERFLOW, ZERO_BY_ZERO
from simfloat.telemetry.entries import Key, are_wide, counted, overflowed_sums, sums_beyond
from simfloat.telemetry.remedy import override, updated_parameter

Entries = list[tuple[Key, NDArray[np.int64]]]

#: What helps where FP32's range is too narrow: a training that diverges needs other hyperparameters.
SMALLER = "smaller numbers"


class FirstNaN(NamedTuple):
    """Where the first NaN was counted: the number of steps ended before it, and of what it was made, in words."""

    step: int
    path: str
    operation: str
    phase: str
    operands: str

    @property
    def key(self) -> Key:
        """What its events are kept by."""
        return Key(self.path, self.operation, self.phase)


class Finding(NamedTuple):
    """What is needed that the NaN does not come again, why, and the override that gives it, if one does."""

    need: str
    why: str
    override: str


def finding(first: FirstNaN, entries: Entries) -> Finding:
    """What the counts tell of the first NaN.

    A quotient 0 / 0 is traced back to the results at its path that underflowed, an infinite operand to the first that
    overflowed, at its path if any did there.
    """
    cause, where = CAUSES.index(first.operands), f"in step {first.step}: {first.operands}"
    if cause == GIVEN:
        return Finding("data without NaN", f"{where}, in data or parameters", "")
    if cause in (DOMAIN, SUM_BEYOND):
        return Finding("operands in the domain" if cause == DOMAIN else SMALLER, where, "")
    if cause in (BEYOND, SUM_OVERFLOW):
        return Finding("a wider format", where, _override(first.key, entries))
    by_zero = cause == ZERO_BY_ZERO
    sources = _zeros(first, entries) if by_zero else _infinities(first, entries)
    if not sources:
        return Finding("divisors other than 0" if by_zero else "finite data", where, "")
    source, operations = sources[0], ", ".join(key.operation for key in sources)
    why = f"{where}; {operations}{' at ' if source.path else ''}{source.path} ({source.phase})"
    why += " underflowed" if by_zero else " overflowed"
    events = dict(entries)[source]
    if are_wide(events) and not overflowed_sums(events):
        return Finding("larger numbers" if by_zero else SMALLER, why, "")
    return Finding("a wider format", why, _override(source, entries))


def _zeros(first: FirstNaN, entries: Entries) -> list[Key]:
    """Where results underflowed at the same path and in the same phase."""
    place = first.path, first.phase
    return [key for key, events in entries if (key.path, key.phase) == place and counted(events)["underflow"]]


def _infinities(first: FirstNaN, entries: Entries) -> list[Key]:
    """Where results overflowed first, at the same path if any did there: one place or none."""
    found = [key for key, events in entries if counted(events)["overflow"] or _infinite_sums(events)]
    return ([key for key in found if key.path == first.path] or found)[:1]


def _infinite_sums(events: NDArray[np.int64]) -> int:
    return overflowed_sums(events) + sums_beyond(events)


def _override(source: Key, entries: Entries) -> str:
    """The override at the source; for all parameters, where updates of several have NaN."""
    keys, events = [key for key, _ in entries], dict(entries)[source]
    sums = not counted(events)["overflow"] and overflowed_sums(events) > 0
    updated = {updated_parameter(key) for key, events in entries if key.phase == "update" and counted(events)["nan"]}
    at = source._replace(path="*") if source.phase == "update" and len(updated) > 1 else source
    return override(at, keys, is_fp32=False, sums=sums)
