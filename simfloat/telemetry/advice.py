"""Advice from the counts of a recorder: a wider format, more precision, a scale, or a remedy for the first NaN.

A remedy is an override that widens the role that rounds the counted results. For the first NaN, the advice names its
place, its operands and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from glob import escape
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.casts import as_cast
from simfloat.arithmetic.catalog import kind_of
from simfloat.arithmetic.target import is_precise, is_wide
from simfloat.common import Table, table
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
from simfloat.telemetry.ranges import Binades, Histogram, count_in_range, exponent_of_scale, format_binades

#: The roles of the casts of operands before a product.
CAST_ROLES = {"cast_input": "compute", "cast_weight": "compute_weights", "cast_gradient": "compute_gradients"}

#: The roles of accumulators.
SUM_ROLES = ("accumulate", "accumulate_gradients", "reduce")

#: Last parts of paths below a parameter: the optimizer, loss scaling, gradient clipping, and sums over replicas.
BELOW_PARAMETERS = ("update", "unscale", "clip", "all_reduce")


class Remedy(NamedTuple):
    """An override that fixes a fault: for a path or for an operation, a role with another value.

    It prints as the call, with the names of formats.
    """

    path: str  # empty for an operation in all layers
    operation: str  # empty for all operations at the path
    role: str
    value: Any

    def apply(self, policy: Policy) -> Policy:
        """Return the policy with the override; a path is used literally, except for ``"*"``."""
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
    """Return the override that gives the results of `key` a better format: FP32, or FP64 if they are in FP32.

    `keys` are all counted keys, which distinguish parameters from layers. `sums` is True if the accumulator is too
    narrow, and narrower than FP32. The result is None for a function that was called outside of any model, where no
    policy applies.
    """
    path, role = _path_and_role(key, frozenset(keys), sums)
    value = FP64 if is_fp32 and not sums else FP32
    return None if role is None else Remedy(path, "" if path else key.operation, role, value)


def remedy_in_own_types(proposal: Remedy, *, is_lost: bool) -> Remedy | None:
    """Return the remedy under a policy that follows the dtypes of a program; None if no role has an effect.

    `is_lost` is True for a remedy of lost updates. The dtype of a tensor limits its format, whatever the roles are.
    Only accumulators and the role `update` have an effect.
    """
    if proposal.role in SUM_ROLES:
        return proposal
    return proposal._replace(role="update", value="kahan") if is_lost else None


def program_remedy_text(key: Key, *, is_divisor: bool = False) -> str:
    """Return a change of a program with its own dtypes that improves the results of `key`, in words.

    `is_divisor` is True for results that made a divisor zero.
    """
    if key.operation == "moment":
        return f"{'a larger eps, or ' * is_divisor}keep the moment in float32, with a master copy of the weights"
    if key.phase == "update":
        return "a larger eps, or a master copy of the weights in float32"
    if key.phase == "backward" and key.operation == "add":
        return "accumulate gradients in float32"
    if key.phase == "backward":
        return "scale the loss, or compute it in float32"
    return f"{'a larger eps, or ' * is_divisor}compute it in float32, by .float()"


def _path_and_role(key: Key, keys: frozenset[Key], sums: bool) -> tuple[str, str | None]:
    """Return the path of an override, empty for an operation alone, and its role, None if no override has an effect."""
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
    """Return the path of the parameter of an update counted by `key`; empty for an update of all parameters."""
    path, _, name = key.path.rpartition(".")
    return path if key.operation == "moment" or name in BELOW_PARAMETERS else key.path


def is_parameter(path: str, keys: frozenset[Key]) -> bool:
    """True if the path is a parameter: it is updated, or it is inside a layer and is not a layer itself.

    A layer has results of the forward pass if these were recorded; a parameter has none.
    """
    of_update = {path, *(f"{path}.{name}" for name in BELOW_PARAMETERS)}
    if any(key.phase == "update" and key.path in of_update for key in keys):
        return True
    layer = path.rpartition(".")[0]
    forward = {key.path for key in keys if key.phase == "forward"}
    layers = forward or {key.path for key in keys if key.path != path}
    return path not in forward and layer in layers


Entries = list[tuple[Key, NDArray[np.int64]]]

#: Remedy if the range of FP32 is too narrow: a training that diverges needs other hyperparameters.
SMALLER_NUMBERS = "smaller numbers"

#: Needs that no format meets, by the cause of NaN.
NEEDS_BY_CAUSE = {NAN_OPERAND: "data without NaN", DOMAIN: "operands in the domain", SUM_BEYOND: SMALLER_NUMBERS}

#: Operations with an infinite result at zero.
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
    is_divisor: bool = False  # True if a divisor was zero


def explain_nan(first: FirstNaN, entries: Entries) -> NaNExplanation:
    """Explain the first NaN by the counts.

    * An infinite operand is traced to the first results that overflowed, at the same path if possible, and otherwise
      to a division by zero.
    * A zero divisor is traced to the results at its path that underflowed.
    * A NaN operand comes from data or parameters only if nothing overflowed before: an operation that is rounded once
      has intermediate steps that are not counted.
    """
    cause, where = CAUSES.index(first.operands), f"in step {first.step}: {first.operands}"
    divided = first.key if cause == ZERO_BY_ZERO else _first_pole(entries)
    if cause == NAN_OPERAND and first.phase == first.operation == "update":
        # The steps of the optimizer may be part of the final addition.
        divided = first.key._replace(path=f"{first.path}.update")
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
        need = "divisors other than 0" if divided else "finite data"
        return NaNExplanation(need, where, None, is_divisor=divided is not None)
    source, operations = sources[0], ", ".join(key.operation for key in sources)
    why = f"{where}; {operations}{' at ' if source.path else ''}{source.path} ({source.phase}) {verb}"
    events = dict(entries)[source]
    if are_wide(events) and not count_overflowed_sums(events):
        return NaNExplanation(SMALLER_NUMBERS if verb == "overflowed" else "larger numbers", why, None)
    return NaNExplanation("a wider format", why, _remedy(source, entries), source, verb == "underflowed")


def _first_overflow(first: FirstNaN, entries: Entries) -> list[Key]:
    """Return the first key with overflows, at the same path if there is one, as a list of one key or none."""
    overflows = [key for key, events in entries if counts_by_name(events)["overflow"] or _infinite_sums(events)]
    return ([key for key in overflows if key.path == first.path] or overflows)[:1]


def _first_pole(entries: Entries) -> Key | None:
    """Return the first key with finite operands and infinite results without overflow, as in a division by zero."""
    infinite = [key for key, events in entries if count_infinities(events)]
    # In a narrow dtype of the program, the quotient of an optimizer is a step of the last addition.
    updates = (key for key in infinite if key.phase == key.operation == "update")
    return next((key for key in infinite if key.operation in POLES), next(updates, None))


def _underflows_of_divisor(quotient: Key | None, entries: Entries) -> list[Key]:
    """Return the keys at the path and in the phase of a quotient whose results underflowed."""
    if quotient is None:
        return []
    places = [quotient.path]
    if quotient.operation == "update":
        moments = [key for key, _ in entries if key.operation == "moment"]
        places += [key.path for key in moments if updated_parameter(key) == quotient.path]
    lost = [key for key, events in entries if counts_by_name(events)["underflow"]]
    return [key for key in lost if key.path in places and key.phase == quotient.phase]


def _infinite_sums(events: NDArray[np.int64]) -> int:
    return count_overflowed_sums(events) + count_sums_beyond_fp32(events)


def _remedy(source: Key, entries: Entries) -> Remedy | None:
    """Return the remedy for the results at `source`; for all parameters if updates of several have NaN."""
    keys, events = [key for key, _ in entries], dict(entries)[source]
    sums = not counts_by_name(events)["overflow"] and count_overflowed_sums(events) > 0
    updated = {
        updated_parameter(key) for key, events in entries if key.phase == "update" and counts_by_name(events)["nan"]
    }
    at = source._replace(path="*") if source.phase == "update" and len(updated) > 1 else source
    return remedy(at, keys, is_fp32=False, sums=sums)


#: Minimum number of binades between the results of a mask and all others.
MASK_GAP = 8

#: The roots of which an eps keeps the reciprocal finite.
ROOTS = ("sqrt", "rsqrt")

WIDER, SCALE, PRECISION = "a wider format", "a scale", "more precision"


class Advice(NamedTuple):
    """The need of the results of an operation at a path, the share of results that shows it, and the reason.

    `scale` is the power of two by which the results can be multiplied, or None if the advice is not a scale or no
    format is known. `override` is the text of a call that gives the format FP32 to the role of the results, or FP64 if
    they are in FP32. It is empty if no policy applies, and if the tensors of the model cannot represent FP64.
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
    """All advice: the first NaN, overflows, the rest, and additions of an eps, each with the largest share first.

    It prints as a table, with a line below it for the loss scale, if there is advice to use one.
    """

    loss_scale_text = ""

    def table(self) -> Table:
        """Return a table with a line for each advice."""
        rows = [("path", "operation", "phase", "needs", "why", "override")]
        rows += [(each.path or "-", each.operation, each.phase, each.need, each.why, each.override) for each in self]
        return table(rows)

    def __repr__(self) -> str:
        if not self:
            return "Nothing to advise: no NaN was made, and no share of lost results is above the limits."
        return f"{self.table()}\n{self.loss_scale_text}" if self.loss_scale_text else self.table()

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{self!r}</p>"
        return self.table()._repr_html_() + (f"<p>{self.loss_scale_text}</p>" if self.loss_scale_text else "")


class Limits(NamedTuple):
    """Shares above which advice is given."""

    lost: float  # of underflows, and of sums that lost an addend
    overflow: float


def list_advice(
    entries: Entries,
    format: Format | None,
    limits: Limits,
    first: FirstNaN | None = None,
    policy: Policy | None = None,
    storage: Format = FP64,
) -> AdviceList:
    """Return the advice about the first NaN, overflows, the rest, and additions of an eps, the largest share first.

    `format` is the present or future format of results, if known, `policy` the policy of the run, and `storage` the
    widest format that the tensors of the model can represent.
    """
    binades, keys = None if format is None else format_binades(format), [key for key, _ in entries]
    overflows, others, additions_of_eps = list[Advice](), list[Advice](), list[Advice]()
    own_types = policy is not None and is_written(policy)
    for key, events in entries:
        wide = are_wide(events) if format is None else is_wide(format)
        precise = are_precise(events) if format is None else is_precise(format)
        for advice, is_fp32, sums in (
            (_range_advice(key, events, binades, limits, frozenset(keys)), wide, False),
            (_lost_addend_advice(key, events, limits), precise, False),
            (_sum_advice(key, events, limits), False, True),
        ):
            if advice is None or own_types and _is_kept_by_update(policy, key, advice):
                continue
            chosen = remedy(key, keys, is_fp32=is_fp32, sums=sums)
            if chosen is not None and chosen.value == FP64 != storage and not own_types:
                is_kept = _is_kept_by_update(policy, key, advice)
                chosen = None if is_kept else remedy_in_own_types(chosen, is_lost=_is_lost(key, advice))
            is_overflow = sums or advice.need != PRECISION and _share_beyond(key, events, binades) > limits.overflow
            is_of_eps = advice.need == PRECISION and _may_add_eps(key, keys)
            group = overflows if is_overflow else additions_of_eps if is_of_eps else others
            group.append(_with_override(advice, chosen, key, own_types))
    at_first = [] if first is None else [_nan_advice(first, entries, own_types)]
    by_share = (sorted(part, key=lambda advice: -advice.share) for part in (overflows, others, additions_of_eps))
    advice_list = AdviceList([*at_first, *chain(*by_share)])
    if binades is not None and any(each.need == SCALE and each.phase == "backward" for each in advice_list):
        advice_list.loss_scale_text = _loss_scale_text(entries, binades, format, policy)
    return advice_list


def _loss_scale_text(entries: Entries, binades: Binades, format: Format | None, policy: Policy | None) -> str:
    """Say how large a loss scale may be; empty if no gradient was counted.

    A loss scale multiplies the gradients of parameters and layers. The other results of a backward pass include
    derivatives, which it does not multiply, such as 1 - tanh(x)^2.
    """
    keys = frozenset(key for key, _ in entries)
    exponents = [
        exponent_of_scale(exponent_counts(events), binades, smaller=_count_overflows(key, events) > 0)
        for key, events in entries
        if _is_gradient(key, keys, policy) and any(exponent_counts(events).values())
    ]
    if not exponents:
        return ""
    return f"A loss scale of up to 2^{min(exponents)} takes no gradient of a layer or parameter beyond {format}."


def _is_gradient(key: Key, keys: frozenset[Key], policy: Policy | None) -> bool:
    """True for results that a loss scale multiplies, except operands that a cast with a scale of its own rounds."""
    if key.phase != "backward":
        return False
    if key.operation == "cast_gradient":
        return policy is None or as_cast(policy.recipe(key.path).compute_gradients).scale is None
    if key.operation in CAST_ROLES or kind_of(key.operation) == CONTRACTION:
        return key.operation not in CAST_ROLES
    # If only the backward pass was recorded, parameters are recognized by the gradient that the product above rounds.
    layer = key._replace(path=key.path.rpartition(".")[0], operation="cast_gradient")
    return is_parameter(key.path, keys) and (layer in keys or any(each.phase != "backward" for each in keys))


def _with_override(
    advice: Advice, mended: Remedy | None, key: Key, own_types: bool, *, is_divisor: bool = False
) -> Advice:
    """Add an override that has an effect; under the dtypes of a program, also a change of the program."""
    if not own_types:
        return advice._replace(override=str(mended or ""))
    chosen = None if mended is None else remedy_in_own_types(mended, is_lost=_is_lost(key, advice))
    change = program_remedy_text(key, is_divisor=is_divisor)
    why = advice.why if chosen is not None else f"{advice.why}; in the program: {change}"
    return advice._replace(why=why, override=str(chosen or ""))


def _may_add_eps(key: Key, keys: Iterable[Key]) -> bool:
    """True for additions beside a square root, as in an optimizer or a norm: an eps that they lose does no harm."""
    return key.operation == "add" and any(key._replace(operation=root) in keys for root in ROOTS)


def _is_kept_by_update(policy: Policy | None, key: Key, advice: Advice) -> bool:
    """True if the update rule of the policy keeps or compensates additions that a parameter loses."""
    update = "nearest" if policy is None else policy.recipe(key.path, "update").update
    return _is_lost(key, advice) and update != "nearest"


def _is_lost(key: Key, advice: Advice) -> bool:
    """True if the advice is about additions that leave a parameter unchanged."""
    return key.phase == key.operation == "update" and advice.need == PRECISION


def _nan_advice(first: FirstNaN, entries: Entries, own_types: bool) -> Advice:
    counts, explanation = counts_by_name(dict(entries)[first.key]), explain_nan(first, entries)
    advice = Advice(*first.key, explanation.need, counts["nan"] / counts["total"], None, explanation.why)
    if explanation.remedy is None and not explanation.is_divisor:
        return advice
    key = explanation.source or first.key
    return _with_override(advice, explanation.remedy, key, own_types, is_divisor=explanation.is_divisor)


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


def _count_nonzero(events: NDArray[np.int64]) -> int:
    """Return the number of results that are not exactly zero nor NaN; at least 1."""
    counts = counts_by_name(events)
    return max(counts["total"] - counts["nan"] - count_zeros(events) + counts["underflow"], 1)


def _count_overflows(key: Key, events: NDArray[np.int64]) -> int:
    """Return the number of results that overflowed, without those of a mask."""
    return 0 if _is_smallest(key, events, exponent_counts(events)) else counts_by_name(events)["overflow"]


def _share_beyond(key: Key, events: NDArray[np.int64], binades: Binades | None) -> float:
    """Return the share of results that overflowed, or that are beyond the binades."""
    outside = count_in_range(exponent_counts(events), binades).beyond if binades else 0
    return (_count_overflows(key, events) + outside) / _count_nonzero(events)


def _are_terms_of_softmax(key: Key, histogram: Histogram) -> bool:
    """True for exponentials of a softmax: what underflows among them is lost beside a term of at least 1/2.

    Forward, the largest number of a row is subtracted, so its exponential is 1. Backward, the exponentials of
    log_softmax are probabilities.
    """
    highest = max((place for place in histogram if isinstance(place, int)), default=1)
    return key.operation == "exp" and highest in (-1, 0)


def _is_smallest(key: Key, events: NDArray[np.int64], histogram: Histogram) -> bool:
    """True if a sum overflowed because a mask, the smallest number of float32, was added: all other results are far
    smaller.
    """
    if key.phase != "forward" or key.operation not in ("add", "subtract") or not are_wide(events):
        return False
    return all(place <= format_binades(FP32).highest - MASK_GAP for place in histogram if isinstance(place, int))


def _count_masked(histogram: Histogram) -> int:
    """Return the number of results of a mask, such as -1e9 or the smallest number, which replaces the value it is
    added to.

    These results are in neighbouring binades, so far above all others that no other addend would change them.
    """
    places = sorted((place for place in histogram if isinstance(place, int)), reverse=True)
    for number, (place, lower) in enumerate(pairwise(places), 1):
        if place - lower >= MASK_GAP:
            return sum(histogram[each] for each in places[:number]) if number <= 2 else 0
    return 0


def _range_advice(
    key: Key, events: NDArray[np.int64], binades: Binades | None, limits: Limits, keys: frozenset[Key]
) -> Advice | None:
    counts, histogram = counts_by_name(events), exponent_counts(events)
    nonzero = _count_nonzero(events)
    outside = count_in_range(histogram, binades) if binades else None
    lost = 0 if _are_terms_of_softmax(key, histogram) else counts["underflow"] + (outside.below if outside else 0)
    below = lost / nonzero
    overflow = _count_overflows(key, events)
    beyond = _share_beyond(key, events, binades)
    if below <= limits.lost and beyond <= limits.overflow:
        return None
    words = [f"{_percent(share)} {verb}" for share, verb in ((below, "underflow"), (beyond, "overflow")) if share]
    if binades:
        k = exponent_of_scale(histogram, binades, smaller=overflow / nonzero > limits.overflow)
        left = count_in_range(histogram, binades.shift(k)).below + (counts["underflow"] if k <= 0 else 0)
        helps = left / nonzero <= limits.lost
    else:
        k, subnormal = None, counts["subnormal"] / nonzero
        helps = beyond <= limits.overflow or max(below, subnormal) <= limits.lost
    if not helps or key.phase == "update":
        return Advice(*key, WIDER, max(below, beyond), None, ", ".join(words))
    if k is not None and (key.phase == "forward" or _is_gradient(key, keys, None)):
        words.append(f"these results times up to 2^{k} fit")
    return Advice(*key, SCALE, max(below, beyond), None if k is None else 2.0**k, ", ".join(words))


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
