"""The first NaN of a run: where it was made, of what, and what mends it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels.events import BEYOND, CAUSES, DOMAIN, GIVEN, SUM_BEYOND, SUM_OVERFLOW, ZERO_BY_ZERO
from simfloat.telemetry.entries import Key, are_wide, counted, infinities, overflowed_sums, sums_beyond
from simfloat.telemetry.remedy import Remedy, remedy, updated_parameter

Entries = list[tuple[Key, NDArray[np.int64]]]

#: What helps where FP32's range is too narrow: a training that diverges needs other hyperparameters.
SMALLER = "smaller numbers"

#: What is needed where no format helps, by the cause of NaN.
MEANT = {GIVEN: "data without NaN", DOMAIN: "operands in the domain", SUM_BEYOND: SMALLER}

#: Operations that are infinite at zero.
POLES = ("divide", "reciprocal", "rsqrt", "log", "log2", "log10", "log1p", "atanh", "power")


class FirstNaN(NamedTuple):
    """The place of the first NaN, the number of steps that ended before it, and its operands in words."""

    step: int
    path: str
    operation: str
    phase: str
    operands: str

    @property
    def key(self) -> Key:
        """The key of its events."""
        return Key(self.path, self.operation, self.phase)


class NaNFinding(NamedTuple):
    """The explanation of a NaN: the need, the reason, and the override that meets the need, if there is one."""

    need: str
    why: str
    remedy: Remedy | None
    source: Key | None = None  # the results that overflowed or underflowed before the NaN


def finding(first: FirstNaN, entries: Entries) -> NaNFinding:
    """Explain the first NaN by the counts.

    An infinite operand is traced back to the first results that overflowed, at its path if any did there, or else to a
    quotient by zero; a zero divisor to the results at its path that underflowed. A NaN operand is in data or parameters
    only if nothing overflowed before: an operation that is rounded once has steps that are not counted.
    """
    cause, where = CAUSES.index(first.operands), f"in step {first.step}: {first.operands}"
    divided = first.key if cause == ZERO_BY_ZERO else _divided(entries)
    if cause == GIVEN and first.phase == first.operation == "update":
        divided = first.key._replace(path=f"{first.path}.update")  # its steps may be parts of the last addition
    if cause in MEANT and not (cause == GIVEN and (_overflowed(first, entries) or _underflowed(divided, entries))):
        return NaNFinding(MEANT[cause], f"{where}, in data or parameters" if cause == GIVEN else where, None)
    if cause in (BEYOND, SUM_OVERFLOW):
        return NaNFinding("a wider format", where, _remedy(first.key, entries))
    sources, verb = ([], "") if cause == ZERO_BY_ZERO else (_overflowed(first, entries), "overflowed")
    if not sources and divided is not None:
        sources, verb = _underflowed(divided, entries), "underflowed"
    if not sources:
        return NaNFinding("divisors other than 0" if divided else "finite data", where, None)
    source, operations = sources[0], ", ".join(key.operation for key in sources)
    why = f"{where}; {operations}{' at ' if source.path else ''}{source.path} ({source.phase}) {verb}"
    events = dict(entries)[source]
    if are_wide(events) and not overflowed_sums(events):
        return NaNFinding(SMALLER if verb == "overflowed" else "larger numbers", why, None)
    return NaNFinding("a wider format", why, _remedy(source, entries), source)


def _overflowed(first: FirstNaN, entries: Entries) -> list[Key]:
    """Return the first place where results overflowed, at the same path if there is one: a list of one key or none."""
    overflows = [key for key, events in entries if counted(events)["overflow"] or _infinite_sums(events)]
    return ([key for key in overflows if key.path == first.path] or overflows)[:1]


def _divided(entries: Entries) -> Key | None:
    """Return the first key whose finite operands gave infinite results without overflow, as a quotient by zero does."""
    poles = (key for key, events in entries if key.operation in POLES and infinities(events))
    return next(poles, None)


def _underflowed(divided: Key | None, entries: Entries) -> list[Key]:
    """Return the keys at the path and in the phase of a quotient whose results underflowed."""
    if divided is None:
        return []
    place = divided.path, divided.phase
    return [key for key, events in entries if (key.path, key.phase) == place and counted(events)["underflow"]]


def _infinite_sums(events: NDArray[np.int64]) -> int:
    return overflowed_sums(events) + sums_beyond(events)


def _remedy(source: Key, entries: Entries) -> Remedy | None:
    """Return the remedy for the results at the source; for all parameters, where updates of several have NaN."""
    keys, events = [key for key, _ in entries], dict(entries)[source]
    sums = not counted(events)["overflow"] and overflowed_sums(events) > 0
    updated = {updated_parameter(key) for key, events in entries if key.phase == "update" and counted(events)["nan"]}
    at = source._replace(path="*") if source.phase == "update" and len(updated) > 1 else source
    return remedy(at, keys, is_fp32=False, sums=sums)
