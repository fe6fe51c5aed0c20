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
MOST = 8

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
        fault = _fault(first, entries)
        mending.faults.append(fault._replace(why=f"{fault.why}; under the reference, too: the policy is no cause"))
        return False
    course: Course | None = mending.given
    for _ in range(MOST):
        found = None if course is None else beyond_repair(course)
        if found is None:
            return True
        first, entries = found
        fault, is_mended = _fault(first, entries), False
        for candidate in _candidates(first, entries, mending.policy):
            policy = mending.remedied(mending.policy, [candidate])
            course = None if policy is None else mending.tried(policy)
            if course is not None and policy is not None and _is_later(beyond_repair(course), first):
                mending.take([candidate])
                is_mended = True
                mending.faults.append(fault._replace(remedies=(candidate,), verified=True))
                break
        if not is_mended:
            mending.faults.append(fault._replace(remedies=tuple(_candidates(first, entries, mending.policy)[:1])))
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
    """Whether another training came further."""
    return found is None or found[0].step > first.step or found[0].step == first.step and found[0].key != first.key


def _fault(first: FirstNaN, entries: Entries) -> Fault:
    found = _finding(first, entries)
    why = first.operands if found is None else found.why.partition(": ")[2].replace(ZERO, first.operands)
    kind = INFINITY if first.operands in (OVERFLOWED, OVERFLOWED_SUM, DIVIDED, INHERITED) else NAN
    return Fault(kind, first.step, first.phase, first.path, first.operation, why, first.operands)


def _finding(first: FirstNaN, entries: Entries) -> NaNFinding | None:
    """What the counts say of what was before; None of an overflow, which begins here, and of what began outside."""
    if first.operands in (OVERFLOWED, OVERFLOWED_SUM, INHERITED):
        return None
    return finding(first._replace(operands=ZERO) if first.operands == DIVIDED else first, entries)


def _candidates(first: FirstNaN, entries: Entries, policy: Policy) -> list[Remedy]:
    """What may mend it, the most likely first: where it came from, where it was met, and both everywhere."""
    events, keys = dict(entries)[first.key], [key for key, _ in entries]
    before = _finding(first, entries)
    at_source = None if before is None else before.remedy
    here = remedy(first.key, keys, is_fp32=are_wide(events), sums=overflowed_sums(events) > 0)
    found = [each for each in (at_source, here) if each is not None]
    if first.operation in CASTS:  # eight bits are scaled by those who use them
        other = scaled_instead(found[-1], policy)
        found = [other, *found] if other.value.format.bits <= 8 else [*found, other]
    everywhere = [each.everywhere() for each in found]
    # What one parameter's update meets, those of others meet sooner or later.
    return list(dict.fromkeys([*everywhere, *found] if first.phase == "update" else [*found, *everywhere]))
