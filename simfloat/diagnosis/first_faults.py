"""The first NaN or overflow to infinity, and what mends it: again and again, until a training has none."""

from __future__ import annotations

from simfloat.diagnosis.fault import Fault
from simfloat.diagnosis.mending import Mending, scaled_instead
from simfloat.diagnosis.trial import Course
from simfloat.diagnosis.watch import DIVIDED, INHERITED, OVERFLOWED, OVERFLOWED_SUM
from simfloat.kernels.events import CAUSES, ZERO_BY_ZERO
from simfloat.policy import Policy
from simfloat.telemetry.entries import are_wide, overflowed_sums
from simfloat.telemetry.first_nan import Entries, FirstNaN, NaNFinding, finding
from simfloat.telemetry.remedy import CASTS, Remedy, remedy

#: So many faults, one behind the other, are mended at most.
MOST = 24

#: Scales of the loss that are tried where a larger one skips steps.
SCALES = (2.0**24, 2.0**20, 2.0**16, 2.0**12, 2.0**8, 2.0**4, 1.0)

NAN, INFINITY = "NaN", "infinity"

#: How a quotient of zeros is called.
ZERO = CAUSES[ZERO_BY_ZERO]


def mend_first_faults(mending: Mending) -> bool:
    """Note and mend what makes numbers that are not finite; whether the policy that is left has none.

    Where the reference has them too, they are not the policy's, and nothing is mended.
    """
    exact = beyond_repair(mending.exact)
    if exact is not None:
        first, entries = exact
        fault = _fault(first, entries, _smaller_scale(mending, mending.reference, mending.exact))
        why = f"{fault.why}; under the reference, too: the policy is no cause"
        mending.faults.append(fault._replace(why=why))
        return False
    course: Course | None = mending.given
    for number in range(MOST + 1):
        found = None if course is None else beyond_repair(course)
        if found is None:
            return True
        first, entries = found
        candidates = _candidates(first, entries, mending)
        also = _smaller_scale(mending, mending.policy, mending.given) if course is mending.given else ""
        fault, is_mended = _fault(first, entries, also), False
        for candidate in candidates if number < MOST else ():
            policy = mending.remedied(mending.policy, [candidate])
            course = None if policy is None else mending.tried(policy)
            if course is not None and policy is not None and _is_later(beyond_repair(course), first):
                mending.take([candidate])
                is_mended = True
                mending.faults.append(fault._replace(remedies=(candidate,), verified=True))
                break
        if not is_mended:
            mending.faults.append(fault._replace(remedies=tuple(candidates[:1])))
            return False
    return False


def beyond_repair(course: Course) -> tuple[FirstNaN, Entries] | None:
    """The first NaN or infinity of a training, with what was counted by then; of steps that a loss scale skipped only
    where these are more than half of all."""
    watch = course.watch
    if watch.first is not None:
        return watch.first, watch.entries_then
    return watch.skipped[0] if 2 * len(watch.skipped) > len(course.losses) else None


def _is_later(found: tuple[FirstNaN, Entries] | None, first: FirstNaN) -> bool:
    """Whether another training came further; behind a sum that overflows its result may, in the same place."""
    if found is None or found[0].step != first.step:
        return found is None or found[0].step > first.step
    return found[0].key != first.key or first.operands == OVERFLOWED_SUM != found[0].operands


def _fault(first: FirstNaN, entries: Entries, also: str) -> Fault:
    found = _finding(first, entries)
    why = first.operands if found is None else found.why.partition(": ")[2].replace(ZERO, first.operands)
    kind = INFINITY if first.operands in (OVERFLOWED, OVERFLOWED_SUM, DIVIDED, INHERITED) else NAN
    return Fault(kind, first.step, first.phase, first.path, first.operation, why, first.operands, also=also)


def _finding(first: FirstNaN, entries: Entries) -> NaNFinding | None:
    """What the counts say of what was before; None of an overflow, which begins here, and of what began outside."""
    if first.operands in (OVERFLOWED, OVERFLOWED_SUM, INHERITED):
        return None
    return finding(first._replace(operands=ZERO) if first.operands == DIVIDED else first, entries)


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
    if first.operation in CASTS:  # eight bits are scaled by those who use them
        other = scaled_instead(found[-1], mending.policy)
        found = [other, *found] if other.value.format.bits <= 8 else [*found, other]
    everywhere = [each.everywhere() for each in found]
    # What one parameter's update meets, or many places have met, those of others meet sooner or later.
    is_first = first.phase == "update" or any(mending.has_many(each) for each in found)
    return list(dict.fromkeys([*everywhere, *found] if is_first else [*found, *everywhere]))
