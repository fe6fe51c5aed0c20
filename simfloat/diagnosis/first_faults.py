"""The first NaN or overflow to infinity, and what mends it: again and again, until a training has none."""

from __future__ import annotations

import numpy as np

from simfloat.arithmetic.catalog import kind_of
from simfloat.diagnosis.fault import INFINITY, NAN, Fault
from simfloat.diagnosis.harm import WRONG_SHARE, GradientErrors
from simfloat.diagnosis.mending import PolicyRepair, use_scaled_cast
from simfloat.diagnosis.trial import TrialMoment, TrialRecord
from simfloat.diagnosis.watch import DIVIDED, INHERITED, LOGARITHM, OVERFLOWED, OVERFLOWED_SUM, FaultRecorder
from simfloat.formats import FP32
from simfloat.kernels.events import CAUSES, ZERO_BY_ZERO
from simfloat.policy import Policy
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.telemetry.entries import are_wide, count_overflowed_sums
from simfloat.telemetry.first_nan import Entries, FirstNaN, NaNExplanation, explain_nan
from simfloat.telemetry.remedy import CAST_ROLES, Remedy, remedy

#: So many faults, one behind the other, are mended at most.
MOST = 24

#: Scales of the loss that are tried where a larger one skips steps.
SCALES = (2.0**24, 2.0**20, 2.0**16, 2.0**12, 2.0**8, 2.0**4, 1.0)

#: Of what an infinity is made.
INFINITY_CAUSES = (OVERFLOWED, OVERFLOWED_SUM, DIVIDED, LOGARITHM, INHERITED)

#: What is added to an event that the reference has as well.
ALSO_UNDER_REFERENCE = "under the reference, too: the policy is no cause"

#: How a quotient of zeros is called.
ZERO_BY_ZERO_TEXT = CAUSES[ZERO_BY_ZERO]


def mend_first_faults(repair: PolicyRepair) -> bool:
    """Note and mend what makes values that are not finite; return whether the policy that is left makes none.

    An event that the reference has in the same step, at the same place and of as many elements is not one of the
    policy. If the reference diverges, that is noted, and the steps until then are compared.
    """
    exact = repair.reference_record
    if exact.fault_recorder.first is not None and exact.has_diverged:
        fault = _new_fault(exact.fault_recorder.first, exact.fault_recorder.entries_at_first, "")
        repair.faults.append(fault._replace(why=f"{fault.why}; {ALSO_UNDER_REFERENCE}"))
        if not repair.steps:
            return False
    elif (skipping := first_bad_result(exact)) is not None and exact.fault_recorder.skipped:
        fault = _new_fault(*skipping, _smaller_scale(repair, repair.reference, exact))
        repair.faults.append(fault._replace(why=f"{fault.why}; {_skipped_text(exact)}; {ALSO_UNDER_REFERENCE}"))
        return False
    record: TrialRecord | None = repair.policy_record
    if _mend_stored_weights(repair):
        record = repair.train(repair.policy)
    for number in range(MOST + 1):
        before, errors = 0.0, None
        while record is not None and (bad_result := first_bad_result(record)) is not None:
            errors = _errors_of_overflow(repair, record, bad_result[0])
            before = float("inf") if errors is None else errors.largest_error(repair.policy)
            if before > WRONG_SHARE:
                break
            record = _train_excusing(repair, bad_result[0])
        else:
            return record is not None
        first, entries = bad_result
        candidates = _candidates(first, entries, repair)
        also = _smaller_scale(repair, repair.policy, repair.policy_record) if record is repair.policy_record else ""
        fault, is_mended = _new_fault(first, entries, also), False
        if record.fault_recorder.first is None:
            fault = fault._replace(why=f"{fault.why}; {_skipped_text(record)}")
        for candidate in candidates if number < MOST else ():
            policy = repair.apply_remedies(repair.policy, [candidate])
            record = None if policy is None else repair.train(policy)
            if record is None or policy is None or not _is_later(first_bad_result(record), first):
                continue
            if errors is None or errors.largest_error(policy) <= max(before / 2, WRONG_SHARE):
                repair.adopt([candidate])
                is_mended = True
                repair.faults.append(fault._replace(remedies=(candidate,), verified=True))
                break
        if not is_mended and before < float("inf"):  # the gradient is as wrong without it
            record = _train_excusing(repair, first)
        elif not is_mended:
            repair.faults.append(fault._replace(remedies=tuple(candidates[:1])))
            return False
    return False


def first_bad_result(record: TrialRecord) -> tuple[FirstNaN, Entries] | None:
    """The first NaN or infinity of a training, with what was counted by then; of steps that a loss scale skipped only
    if these are more than half of all."""
    recorder = record.fault_recorder
    if recorder.first is not None:
        return recorder.first, recorder.entries_at_first
    return recorder.skipped[0] if 2 * len(recorder.skipped) > len(record.losses) else None


def _skipped_text(record: TrialRecord) -> str:
    return f"the loss scale skipped {len(record.fault_recorder.skipped)} of {len(record.losses)} steps"


def _train_excusing(repair: PolicyRepair, first: FirstNaN) -> TrialRecord | None:
    """A training in which infinities at a place are no fault."""
    repair.excused.add(first.key)
    return repair.train(repair.policy)


def _errors_of_overflow(repair: PolicyRepair, record: TrialRecord, first: FirstNaN) -> GradientErrors | None:
    """The harm of gradients in the step of an infinity that may do none, as where a mask is added; None if it does.

    A NaN does harm, and so do an infinity in an update, an infinite sum of a layer, and a loss that is not finite.
    """
    if record.fault_recorder.first is None or first.phase == "update" or first.operands not in INFINITY_CAUSES:
        return None
    if record.has_diverged or kind_of(first.operation) in (CONTRACTION, REDUCTION):
        return None
    trial, state = repair.trial, None
    parts = trial.parts
    if first.step:
        recorder = FaultRecorder(repair.reference_record.fault_recorder, frozenset(repair.excused))
        before = trial.train(repair.policy, first.step, recorder=recorder)
        parts, state = before.parts, before.state
    batch = trial.batches[first.step % len(trial.batches)]
    return GradientErrors(trial, repair.reference, [TrialMoment(parts, batch, state)])


def _mend_stored_weights(repair: PolicyRepair) -> bool:
    """Note and mend weights that are beyond the largest value of the format that stores them; whether there are any."""
    overflows: list[tuple[Fault, Remedy]] = []
    for path, w in repair.trial.parameters(repair.trial.parts).items():
        formats = [policy.recipe(path, "update").weights for policy in (repair.policy, repair.reference)]
        lost, exact = (int(np.count_nonzero(np.abs(w[np.isfinite(w)]) > format.max)) for format in formats)
        if lost > exact:
            why = (
                f"an overflow: {lost} of {w.size} weights are beyond {formats[0].max:.6g}, the largest of {formats[0]}"
            )
            fault = Fault(INFINITY, 0, "update", path, "update", why, OVERFLOWED)
            overflows.append((fault, Remedy(path, "", "weights", FP32)))
    for fault, wider in overflows:
        repair.adopt([wider])
        repair.faults.append(fault._replace(remedies=(wider,), verified=True))
    return bool(overflows)


def _is_later(other: tuple[FirstNaN, Entries] | None, first: FirstNaN) -> bool:
    """Tell whether another training came further; its result may overflow where the sum itself overflowed before."""
    if other is None or other[0].step != first.step:
        return other is None or other[0].step > first.step
    return other[0].key != first.key or first.operands == OVERFLOWED_SUM != other[0].operands


def _new_fault(first: FirstNaN, entries: Entries, also: str) -> Fault:
    explanation = _explanation(first, entries)
    why = (
        first.operands
        if explanation is None
        else explanation.why.partition(": ")[2].replace(ZERO_BY_ZERO_TEXT, first.operands)
    )
    kind = INFINITY if first.operands in INFINITY_CAUSES else NAN
    return Fault(kind, first.step, first.phase, first.path, first.operation, why, first.operands, also=also)


def _explanation(first: FirstNaN, entries: Entries) -> NaNExplanation | None:
    """Explain a NaN or infinity by earlier counts; None for an overflow, which begins here, and for a cause outside."""
    if first.operands in (OVERFLOWED, OVERFLOWED_SUM, INHERITED):
        return None
    return explain_nan(
        first._replace(operands=ZERO_BY_ZERO_TEXT) if first.operands in (DIVIDED, LOGARITHM) else first, entries
    )


def _smaller_scale(repair: PolicyRepair, policy: Policy, record: TrialRecord) -> str:
    """The largest scale of the loss, in words, with which steps are made where most were skipped; else empty."""
    if record.fault_recorder.first is not None or repair.trial.parts[2] is None:
        return ""
    trial, steps = repair.trial, repair.steps
    smaller = (scale for scale in SCALES if scale < trial.parts[2].get_scale())
    largest = next((scale for scale in smaller if first_bad_result(trial.train(policy, steps, scale)) is None), None)
    return "" if largest is None else f"a loss scale of {largest:.0f}"


def _candidates(first: FirstNaN, entries: Entries, repair: PolicyRepair) -> list[Remedy]:
    """Return possible remedies, the most likely first: at the source, at the place itself, and both for all paths."""
    events, keys = dict(entries)[first.key], [key for key, _ in entries]
    before = _explanation(first, entries)
    at_source = None if before is None else before.remedy
    here = remedy(first.key, keys, is_fp32=are_wide(events), sums=count_overflowed_sums(events) > 0)
    candidates = [each for each in (at_source, here) if each is not None]
    if not candidates and first.operation in CAST_ROLES:  # of a product outside of all layers
        candidates = [Remedy("*", "", CAST_ROLES[first.operation], FP32)]
    if first.operation in CAST_ROLES:  # eight bits are scaled by those who use them
        scaled_cast = use_scaled_cast(candidates[-1], repair.policy)
        candidates = [scaled_cast, *candidates] if scaled_cast.value.format.bits <= 8 else [*candidates, scaled_cast]
    everywhere = [each.for_all_paths() for each in candidates]
    # What one parameter's update meets, or many places have met, those of others meet sooner or later.
    is_first = first.phase == "update" or any(repair.is_widespread(each) for each in candidates)
    return list(dict.fromkeys([*everywhere, *candidates] if is_first else [*candidates, *everywhere]))
