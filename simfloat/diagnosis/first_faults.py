"""The first NaN or overflow to infinity, and what mends it: again and again, until a training has none."""

from __future__ import annotations

import numpy as np

from simfloat.arithmetic.catalog import kind_of
from simfloat.diagnosis.fault import INFINITY, NAN, Fault
from simfloat.diagnosis.harm import WRONG, Harm
from simfloat.diagnosis.mending import Mending, scaled_instead
from simfloat.diagnosis.trial import Course, TrialMoment
from simfloat.diagnosis.watch import DIVIDED, INHERITED, LOGARITHM, OVERFLOWED, OVERFLOWED_SUM, Watch
from simfloat.formats import FP32
from simfloat.kernels.events import CAUSES, ZERO_BY_ZERO
from simfloat.policy import Policy
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.telemetry.entries import are_wide, overflowed_sums
from simfloat.telemetry.first_nan import Entries, FirstNaN, NaNFinding, finding
from simfloat.telemetry.remedy import CASTS, Remedy, remedy

#: So many faults, one behind the other, are mended at most.
MOST = 24

#: Scales of the loss that are tried where a larger one skips steps.
SCALES = (2.0**24, 2.0**20, 2.0**16, 2.0**12, 2.0**8, 2.0**4, 1.0)

#: Of what an infinity is made.
INFINITE = (OVERFLOWED, OVERFLOWED_SUM, DIVIDED, LOGARITHM, INHERITED)

#: What is added to an event that the reference has as well.
TOO = "under the reference, too: the policy is no cause"

#: How a quotient of zeros is called.
ZERO = CAUSES[ZERO_BY_ZERO]


def mend_first_faults(mending: Mending) -> bool:
    """Note and mend what makes values that are not finite; return whether the policy that is left makes none.

    An event that the reference has in the same step, at the same place and of as many elements is not one of the
    policy. If the reference diverges, that is noted, and the steps until then are compared.
    """
    exact = mending.exact
    if exact.watch.first is not None and exact.has_diverged:
        fault = _fault(exact.watch.first, exact.watch.entries_then, "")
        mending.faults.append(fault._replace(why=f"{fault.why}; {TOO}"))
        if not mending.steps:
            return False
    elif (skipping := beyond_repair(exact)) is not None and exact.watch.skipped:
        fault = _fault(*skipping, _smaller_scale(mending, mending.reference, exact))
        mending.faults.append(fault._replace(why=f"{fault.why}; {_skipped(exact)}; {TOO}"))
        return False
    course: Course | None = mending.given
    if _mend_stored_weights(mending):
        course = mending.tried(mending.policy)
    for number in range(MOST + 1):
        before, harm = 0.0, None
        while course is not None and (found := beyond_repair(course)) is not None:
            harm = _harm_of_overflow(mending, course, found[0])
            before = float("inf") if harm is None else harm.wrong(mending.policy)
            if before > WRONG:
                break
            course = _excused(mending, found[0])
        else:
            return course is not None
        first, entries = found
        candidates = _candidates(first, entries, mending)
        also = _smaller_scale(mending, mending.policy, mending.given) if course is mending.given else ""
        fault, is_mended = _fault(first, entries, also), False
        if course.watch.first is None:
            fault = fault._replace(why=f"{fault.why}; {_skipped(course)}")
        for candidate in candidates if number < MOST else ():
            policy = mending.remedied(mending.policy, [candidate])
            course = None if policy is None else mending.tried(policy)
            if course is None or policy is None or not _is_later(beyond_repair(course), first):
                continue
            if harm is None or harm.wrong(policy) <= max(before / 2, WRONG):
                mending.take([candidate])
                is_mended = True
                mending.faults.append(fault._replace(remedies=(candidate,), verified=True))
                break
        if not is_mended and before < float("inf"):  # the gradient is as wrong without it
            course = _excused(mending, first)
        elif not is_mended:
            mending.faults.append(fault._replace(remedies=tuple(candidates[:1])))
            return False
    return False


def beyond_repair(course: Course) -> tuple[FirstNaN, Entries] | None:
    """The first NaN or infinity of a training, with what was counted by then; of steps that a loss scale skipped only
    if these are more than half of all."""
    watch = course.watch
    if watch.first is not None:
        return watch.first, watch.entries_then
    return watch.skipped[0] if 2 * len(watch.skipped) > len(course.losses) else None


def _skipped(course: Course) -> str:
    return f"the loss scale skipped {len(course.watch.skipped)} of {len(course.losses)} steps"


def _excused(mending: Mending, first: FirstNaN) -> Course | None:
    """A training in which infinities at a place are no fault."""
    mending.excused.add(first.key)
    return mending.tried(mending.policy)


def _harm_of_overflow(mending: Mending, course: Course, first: FirstNaN) -> Harm | None:
    """The harm of gradients in the step of an infinity that may do none, as where a mask is added; None if it does.

    A NaN does harm, and so do an infinity in an update, an infinite sum of a layer, and a loss that is not finite.
    """
    if course.watch.first is None or first.phase == "update" or first.operands not in INFINITE:
        return None
    if course.has_diverged or kind_of(first.operation) in (CONTRACTION, REDUCTION):
        return None
    trial, state = mending.trial, None
    parts = trial.parts
    if first.step:
        watch = Watch(mending.exact.watch, frozenset(mending.excused))
        before = trial.train(mending.policy, first.step, watch=watch)
        parts, state = before.parts, before.state
    batch = trial.batches[first.step % len(trial.batches)]
    return Harm(trial, mending.reference, [TrialMoment(parts, batch, state)])


def _mend_stored_weights(mending: Mending) -> bool:
    """Note and mend weights that are beyond the largest value of the format that stores them; whether there are any."""
    found: list[tuple[Fault, Remedy]] = []
    for path, w in mending.trial.parameters(mending.trial.parts).items():
        formats = [policy.recipe(path, "update").weights for policy in (mending.policy, mending.reference)]
        lost, exact = (int(np.count_nonzero(np.abs(w[np.isfinite(w)]) > format.max)) for format in formats)
        if lost > exact:
            why = (
                f"an overflow: {lost} of {w.size} weights are beyond {formats[0].max:.6g}, the largest of {formats[0]}"
            )
            fault = Fault(INFINITY, 0, "update", path, "update", why, OVERFLOWED)
            found.append((fault, Remedy(path, "", "weights", FP32)))
    for fault, wider in found:
        mending.take([wider])
        mending.faults.append(fault._replace(remedies=(wider,), verified=True))
    return bool(found)


def _is_later(found: tuple[FirstNaN, Entries] | None, first: FirstNaN) -> bool:
    """Whether another training came further; behind a sum that overflows its result may, in the same place."""
    if found is None or found[0].step != first.step:
        return found is None or found[0].step > first.step
    return found[0].key != first.key or first.operands == OVERFLOWED_SUM != found[0].operands


def _fault(first: FirstNaN, entries: Entries, also: str) -> Fault:
    found = _finding(first, entries)
    why = first.operands if found is None else found.why.partition(": ")[2].replace(ZERO, first.operands)
    kind = INFINITY if first.operands in INFINITE else NAN
    return Fault(kind, first.step, first.phase, first.path, first.operation, why, first.operands, also=also)


def _finding(first: FirstNaN, entries: Entries) -> NaNFinding | None:
    """What the counts say of what was before; None of an overflow, which begins here, and of what began outside."""
    if first.operands in (OVERFLOWED, OVERFLOWED_SUM, INHERITED):
        return None
    return finding(first._replace(operands=ZERO) if first.operands in (DIVIDED, LOGARITHM) else first, entries)


def _smaller_scale(mending: Mending, policy: Policy, course: Course) -> str:
    """The largest scale of the loss, in words, with which steps are made where most were skipped; else empty."""
    if course.watch.first is not None or mending.trial.parts[2] is None:
        return ""
    trial, steps = mending.trial, mending.steps
    smaller = (scale for scale in SCALES if scale < trial.parts[2].get_scale())
    found = next((scale for scale in smaller if beyond_repair(trial.train(policy, steps, scale)) is None), None)
    return "" if found is None else f"a loss scale of {found:.0f}"


def _candidates(first: FirstNaN, entries: Entries, mending: Mending) -> list[Remedy]:
    """What may mend it, the most likely first: where it came from, where it was met, and both everywhere."""
    events, keys = dict(entries)[first.key], [key for key, _ in entries]
    before = _finding(first, entries)
    at_source = None if before is None else before.remedy
    here = remedy(first.key, keys, is_fp32=are_wide(events), sums=overflowed_sums(events) > 0)
    found = [each for each in (at_source, here) if each is not None]
    if not found and first.operation in CASTS:  # of a product outside of all layers
        found = [Remedy("*", "", CASTS[first.operation], FP32)]
    if first.operation in CASTS:  # eight bits are scaled by those who use them
        other = scaled_instead(found[-1], mending.policy)
        found = [other, *found] if other.value.format.bits <= 8 else [*found, other]
    everywhere = [each.everywhere() for each in found]
    # What one parameter's update meets, or many places have met, those of others meet sooner or later.
    is_first = first.phase == "update" or any(mending.has_many(each) for each in found)
    return list(dict.fromkeys([*everywhere, *found] if is_first else [*found, *everywhere]))
