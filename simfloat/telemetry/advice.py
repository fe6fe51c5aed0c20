"""Advice from the counts of a recorder: a wider format, more precision, a scale, and a remedy for the first NaN.

A remedy is the override that widens the role which rounds the counted results. A histogram of exponents tells how much
of it a format keeps, with a scale or without one. Of the first NaN the advice says where it was made, of which
operands, and how it is mended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from glob import escape
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.catalog import kind_of
from simfloat.arithmetic.machines import on_cpu
from simfloat.arithmetic.target import is_precise, is_wide
from simfloat.common import Table, as_rectangular_array, table
from simfloat.formats import FP32, FP64
from simfloat.formats.format import Format
from simfloat.kernels.rounding.events import BEYOND, CAUSES, DOMAIN, NAN_OPERAND, SUM_BEYOND, SUM_OVERFLOW, ZERO_BY_ZERO
from simfloat.policy import Policy
from simfloat.policy.overrides import role_text
from simfloat.policy.policy import is_written
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.telemetry.entries import (
    Key,
    are_precise,
    are_wide,
    count_infinities,
    count_overflowed_sums,
    count_sums_beyond_fp32,
    count_zeros,
    counts_by_name,
    exponent_counts,
)

#: The roles of operands that are rounded before a product.
CAST_ROLES = {"cast_input": "compute", "cast_weight": "compute_weights", "cast_gradient": "compute_gradients"}

#: The roles of accumulators.
SUM_ROLES = ("accumulate", "accumulate_gradients", "reduce")

#: The paths below a parameter's at which an optimizer computes, and where loss scaling, clipping and replicas work on
#: its gradient.
BELOW_PARAMETERS = ("update", "unscale", "clip", "all_reduce")


class Remedy(NamedTuple):
    """An override that mends something: for a path or for an operation, a role with another value.

    Printed, it is the call; formats stand in it by their names.
    """

    path: str  # empty for an operation in all layers
    operation: str  # empty for all operations at the path
    role: str
    value: Any

    def apply(self, policy: Policy) -> Policy:
        """The policy with the override; a path is taken as it is, but for ``"*"``."""
        path = self.path if self.path == "*" else escape(self.path)
        return policy.override(path or None, operation=self.operation or None, **{self.role: self.value})

    def for_all_paths(self) -> Remedy:
        """Return the override for all paths."""
        return self._replace(path="*", operation="")

    def __str__(self) -> str:
        named = self.value in (FP32, FP64)
        target = repr(self.path) if self.path else f"operation={self.operation!r}"
        return f"policy.override({target}, {self.role}={f'sf.{self.value}' if named else role_text(self.value)})"


def remedy(key: Key, keys: Iterable[Key], *, is_fp32: bool, sums: bool = False) -> Remedy | None:
    """Return the override that gives the results counted by `key` a better format: FP32, or FP64 if theirs is FP32.

    `keys` are all that were seen, which tell parameters from layers; `sums` if it is the accumulator that is too
    narrow, and narrower than FP32. None for a function that was called outside of any model, where no policy has a say.
    """
    path, role = _path_and_role(key, frozenset(keys), sums)
    value = FP64 if is_fp32 and not sums else FP32
    return None if role is None else Remedy(path, "" if path else key.operation, role, value)


def remedy_in_own_types(proposal: Remedy, *, is_lost: bool) -> Remedy | None:
    """The remedy under a policy that follows a program's own types; None if no role has an effect there.

    `is_lost` says whether it is a remedy of lost updates.

    The type of a tensor limits its format, whatever a role says. Accumulators and the kind of an update remain.
    """
    if proposal.role in SUM_ROLES:
        return proposal
    return proposal._replace(role="update", value="kahan") if is_lost else None


def program_remedy_text(key: Key) -> str:
    """Say in words how a program with types of its own can mend the results counted by `key`."""
    if key.operation == "moment":
        return "keep the moment in float32, with a master copy of the weights"
    if key.phase == "update":
        return "a larger eps, or a master copy of the weights in float32"
    if key.phase == "backward" and key.operation == "add":
        return "accumulate gradients in float32"
    return (
        "compute it in float32, by .float()" if key.phase == "forward" else "scale the loss, or compute it in float32"
    )


def _path_and_role(key: Key, keys: frozenset[Key], sums: bool) -> tuple[str, str | None]:
    """Return an override's path, empty for an operation alone, and its role, None if no override has an effect."""
    if key.phase == "update":
        over_replicas = key.path.endswith(".all_reduce")
        role = "all_reduce" if over_replicas else "optimizer_state" if key.operation == "moment" else "weights"
        return updated_parameter(key) or "*", role
    kind = kind_of(key.operation)
    if not key.path and kind is None:
        return "", None
    if key.operation in CAST_ROLES:
        return key.path, CAST_ROLES[key.operation]
    if sums and kind in (CONTRACTION, REDUCTION):
        role = "reduce" if kind == REDUCTION else "accumulate"
        return key.path, "accumulate_gradients" if key.phase == "backward" and role == "accumulate" else role
    if key.phase == "forward":
        return key.path, "activations"
    return key.path, "weight_gradients" if is_parameter(key.path, keys) else "activation_gradients"


def updated_parameter(key: Key) -> str:
    """The path of the parameter that an update counted by `key` is of; empty where it is of all."""
    path, _, name = key.path.rpartition(".")
    return path if key.operation == "moment" or name in BELOW_PARAMETERS else key.path


def is_parameter(path: str, keys: frozenset[Key]) -> bool:
    """Whether what was counted at the path is a parameter's gradient: it is updated, or a layer's and no layer itself.

    A layer has results of the forward pass where these were recorded; a parameter has none.
    """
    of_update = {path, *(f"{path}.{name}" for name in BELOW_PARAMETERS)}
    if any(key.phase == "update" and key.path in of_update for key in keys):
        return True
    layer = path.rpartition(".")[0]
    forward = {key.path for key in keys if key.phase == "forward"}
    layers = forward or {key.path for key in keys if key.path != path}
    return path not in forward and layer in layers


Histogram = Mapping[int | str, int]


class Binades(NamedTuple):
    """The binades of a format: exponents from `lowest` on, from `normal` on with all bits, up to `highest`."""

    lowest: int
    normal: int
    highest: int

    def shift(self, k: int) -> Binades:
        """The binades of the values that a scale of 2^k brings into these."""
        return Binades(self.lowest - k, self.normal - k, self.highest - k)


class RangeCounts(NamedTuple):
    """How many nonzero values lie below a format's smallest number, in the binades of its numbers, and beyond them."""

    below: int
    within: int
    beyond: int

    @property
    def share(self) -> float:
        """The share that lies within; 1 where there are no values."""
        return self.within / sum(self) if sum(self) else 1.0


def format_binades(format: Format) -> Binades:
    """The binades of a format's positive numbers, subnormal ones included."""
    lowest, normal, largest = (
        math.frexp(x)[1] - 1 for x in (format.smallest_subnormal, format.smallest_normal, format.max)
    )
    return Binades(lowest, normal, largest)


def histogram_of_values(values: ArrayLike) -> dict[int | str, int]:
    """The histogram of an array, as a recorder's: finite nonzero values by floor(log2|value|), zeros under "zero"."""
    numbers = as_rectangular_array(on_cpu(values), "values", np.float64)
    numbers = numbers[np.isfinite(numbers)]
    exponents = np.frexp(numbers[numbers != 0])[1] - 1
    distinct, occurrences = np.unique(exponents, return_counts=True)
    counts = dict(zip(distinct.tolist(), occurrences.tolist(), strict=True))
    return counts | {"zero": int(np.count_nonzero(numbers == 0))}


def count_in_range(histogram: Histogram, binades: Binades) -> RangeCounts:
    """Count the values of a histogram below, within and beyond the binades; its zeros are left out.

    A histogram knows exponents alone: what a rounding takes up to the smallest number, or beyond the largest one in its
    own binade, is counted by the binade in which it lay.
    """
    exponents = {int(exponent): number for exponent, number in histogram.items() if exponent != "zero"}
    below = sum(number for exponent, number in exponents.items() if exponent < binades.lowest)
    beyond = sum(number for exponent, number in exponents.items() if exponent > binades.highest)
    return RangeCounts(below, sum(exponents.values()) - below - beyond, beyond)


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
