"""The first NaN of a run: where it was made, of what, and what mends it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.kernels.events import BEYOND, CAUSES, DOMAIN, NAN_OPERAND, SUM_BEYOND, SUM_OVERFLOW, ZERO_BY_ZERO
from simfloat.telemetry.entries import (
    Key,
    are_wide,
    count_infinities,
    count_overflowed_sums,
    count_sums_beyond_fp32,
    counts_by_name,
)
from simfloat.telemetry.remedy import Remedy, remedy, updated_parameter

Entries = list[tuple[Key, NDArray[np.int64]]]

#: What helps where FP32's range is too narrow: a training that diverges needs other hyperparameters.
SMALLER_NUMBERS = "smaller numbers"

#: What is needed where no format helps, by the cause of NaN.
NEEDS_BY_CAUSE = {NAN_OPERAND: "data without NaN", DOMAIN: "operands in the domain", SUM_BEYOND: SMALLER_NUMBERS}

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


class NaNExplanation(NamedTuple):
    """The explanation of a NaN: the need, the reason, and the override that meets the need, if there is one."""

    need: str
    why: str
    remedy: Remedy | None
    source: Key | None = None  # the results that overflowed or underflowed before the NaN


def explain_nan(first: FirstNaN, entries: Entries) -> NaNExplanation:
    """Explain the first NaN by the counts.

    An infinite operand is traced back to the first results that overflowed, at its path if any did there, or else to a
    quotient by zero; a zero divisor to the results at its path that underflowed. A NaN operand is in data or parameters
    only if nothing overflowed before: an operation that is rounded once has steps that are not counted.
    """
    cause, where = CAUSES.index(first.operands), f"in step {first.step}: {first.operands}"
    divided = first.key if cause == ZERO_BY_ZERO else _first_pole(entries)
    if cause == NAN_OPERAND and first.phase == first.operation == "update":
        divided = first.key._replace(path=f"{first.path}.update")  # its steps may be parts of the last addition
    if cause in NEEDS_BY_CAUSE and not (
        cause == NAN_OPERAND and (_first_overflow(first, entries) or _underflows_of_divisor(divided, entries))
    ):
        return NaNExplanation(
            NEEDS_BY_CAUSE[cause], f"{where}, in data or parameters" if cause == NAN_OPERAND else where, None
        )
    if cause in (BEYOND, SUM_OVERFLOW):
        return NaNExplanation("a wider format", where, _remedy(first.key, entries))
    sources, verb = ([], "") if cause == ZERO_BY_ZERO else (_first_overflow(first, entries), "overflowed")
    if not sources and divided is not None:
        sources, verb = _underflows_of_divisor(divided, entries), "underflowed"
    if not sources:
        return NaNExplanation("divisors other than 0" if divided else "finite data", where, None)
    source, operations = sources[0], ", ".join(key.operation for key in sources)
    why = f"{where}; {operations}{' at ' if source.path else ''}{source.path} ({source.phase}) {verb}"
    events = dict(entries)[source]
    if are_wide(events) and not count_overflowed_sums(events):
        return NaNExplanation(SMALLER_NUMBERS if verb == "overflowed" else "larger numbers", why, None)
    return NaNExplanation("a wider format", why, _remedy(source, entries), source)


def _first_overflow(first: FirstNaN, entries: Entries) -> list[Key]:
    """Return the first place where results overflowed, at the same path if there is one: a list of one key or none."""
    overflows = [key for key, events in entries if counts_by_name(events)["overflow"] or _infinite_sums(events)]
    return ([key for key in overflows if key.path == first.path] or overflows)[:1]


def _first_pole(entries: Entries) -> Key | None:
    """Return the first key whose finite operands gave infinite results without overflow, as a quotient by zero does."""
    poles = (key for key, events in entries if key.operation in POLES and count_infinities(events))
    return next(poles, None)


def _underflows_of_divisor(quotient: Key | None, entries: Entries) -> list[Key]:
    """Return the keys at the path and in the phase of a quotient whose results underflowed."""
    if quotient is None:
        return []
    place = quotient.path, quotient.phase
    return [key for key, events in entries if (key.path, key.phase) == place and counts_by_name(events)["underflow"]]


def _infinite_sums(events: NDArray[np.int64]) -> int:
    return count_overflowed_sums(events) + count_sums_beyond_fp32(events)


def _remedy(source: Key, entries: Entries) -> Remedy | None:
    """Return the remedy for the results at the source; for all parameters, where updates of several have NaN."""
    keys, events = [key for key, _ in entries], dict(entries)[source]
    sums = not counts_by_name(events)["overflow"] and count_overflowed_sums(events) > 0
    updated = {
        updated_parameter(key) for key, events in entries if key.phase == "update" and counts_by_name(events)["nan"]
    }
    at = source._replace(path="*") if source.phase == "update" and len(updated) > 1 else source
    return remedy(at, keys, is_fp32=False, sums=sums)
