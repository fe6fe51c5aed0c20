"""Find faults of a training: NaN, overflow to infinity, and lost updates.

The first NaN or overflow is fixed, repeatedly, until a training has none. Then the search continues with updates that
leave their weights unchanged, weight decay that does nothing, and moments that never decay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simfloat.analysis.diagnosis.changes import EPS, MASK, MASTER, UPCAST, Change
from simfloat.analysis.diagnosis.gradients import WRONG_SHARE, GradientErrors
from simfloat.analysis.diagnosis.mending import (
    INFINITY,
    NAN,
    Fault,
    PolicyRepair,
    keys_text,
    merge_remedies,
    percent_text,
    use_scaled_cast,
)
from simfloat.analysis.diagnosis.proposals import changes_for_first, larger_eps_of_layer
from simfloat.analysis.diagnosis.trial import (
    DIVIDED,
    INHERITED,
    LOGARITHM,
    OVERFLOWED,
    OVERFLOWED_SUM,
    FaultRecorder,
    TrialMoment,
    TrialRecord,
)
from simfloat.arithmetic import round as rounded
from simfloat.arithmetic.catalog import kind_of
from simfloat.formats import FP32
from simfloat.kernels.rounding.events import CAUSES, ZERO_BY_ZERO
from simfloat.policy import Policy
from simfloat.policy.overrides import Override
from simfloat.policy.policy import is_written
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.simulation.updates import COMPENSATION
from simfloat.telemetry.advice import (
    CAST_ROLES,
    SUM_ROLES,
    Entries,
    FirstNaN,
    NaNExplanation,
    Remedy,
    explain_nan,
    remedy,
)
from simfloat.telemetry.entries import Key, are_wide, count_overflowed_sums

#: At most this number of faults are fixed one after another.
MOST = 24

#: Loss scales that are tried if a larger one skips steps.
SCALES = (2.0**24, 2.0**20, 2.0**16, 2.0**12, 2.0**8, 2.0**4, 1.0)

#: The causes of an infinity.
INFINITY_CAUSES = (OVERFLOWED, OVERFLOWED_SUM, DIVIDED, LOGARITHM, INHERITED)

#: The text that is added if the reference has the same event.
ALSO_UNDER_REFERENCE = "also under the reference: the policy is not the cause"

#: The text for a quotient of zeros.
ZERO_BY_ZERO_TEXT = CAUSES[ZERO_BY_ZERO]


def mend_first_faults(repair: PolicyRepair) -> bool:
    """Note and fix the causes of values that are not finite; return True if none is left under the fixed policy.

    An event is not a fault of the policy if the reference has it in the same step, at the same place and in as many
    elements. If the reference diverges, that is noted, and only the steps before are compared.
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
            before = float("inf") if errors is None else errors.largest_harm(repair.policy)
            if before > WRONG_SHARE:
                break
            record = _train_excusing(repair, bad_result[0])
        else:
            return record is not None
        first, entries = bad_result
        candidates = _candidates(first, entries, repair)
        also = _smaller_scale(repair, repair.policy, repair.policy_record) if record is repair.policy_record else ""
        also = also or _larger_eps(repair, first)
        fault, is_mended, is_prevented = _new_fault(first, entries, also), False, False
        if record.fault_recorder.first is None:
            fault = fault._replace(why=f"{fault.why}; {_skipped_text(record)}")
        for candidate in candidates if number < MOST else ():
            policy = repair.apply_remedies(repair.policy, [candidate])
            record = None if policy is None else repair.train(policy)
            if record is None or policy is None or not _is_better(candidate, record, first, repair.faults):
                continue
            is_prevented = True
            if errors is None or errors.largest_harm(policy) <= max(before / 2, WRONG_SHARE):
                repair.adopt([candidate])
                is_mended = True
                if candidate == Change(MASK):
                    fault = fault._replace(why="a number beyond the dtype, as in a mask, is an infinity")
                repair.faults.append(fault._replace(remedies=(candidate,), verified=True))
                break
        if is_mended:
            continue
        if not is_prevented or before == float("inf"):  # otherwise, the gradient is as wrong without the overflow
            # If limits on the numbers of masks do not help, a mask is not the cause.
            repair.faults.append(fault._replace(remedies=tuple(c for c in candidates if c != Change(MASK))[:1]))
        if before == float("inf"):
            return False
        record = _train_excusing(repair, first)
    return False


def withdraw_if_not_finite(repair: PolicyRepair) -> TrialRecord | None:
    """Train with all verified remedies, and withdraw those whose step still has a value that is not finite."""
    record = repair.train(repair.policy)
    if record is None:
        return None
    bad_result, is_finite = first_bad_result(record), not record.has_diverged
    if bad_result is None and is_finite:
        return record
    repair.withdraw_since(len(record.losses) - 1 if bad_result is None else bad_result[0].step)
    return repair.train(repair.policy)


def first_bad_result(record: TrialRecord) -> tuple[FirstNaN, Entries] | None:
    """Return the first NaN or infinity of a training, with the counts at that time.

    Steps that a loss scale skipped count only if they are more than half of all steps.
    """
    recorder = record.fault_recorder
    if recorder.first is not None:
        return recorder.first, recorder.entries_at_first
    return recorder.skipped[0] if 2 * len(recorder.skipped) > len(record.losses) else None


def _skipped_text(record: TrialRecord) -> str:
    return f"the loss scale skipped {len(record.fault_recorder.skipped)} of {len(record.losses)} steps"


def _train_excusing(repair: PolicyRepair, first: FirstNaN) -> TrialRecord | None:
    """Train again, and accept infinities at this place."""
    repair.excused.add(first.key)
    return repair.train(repair.policy)


def _errors_of_overflow(repair: PolicyRepair, record: TrialRecord, first: FirstNaN) -> GradientErrors | None:
    """Return the errors of gradients in the step of an infinity that may be harmless, for example in a mask.

    Return None if it does harm. A NaN does harm, and so do an infinity in an update, an infinite sum of a layer, and a
    loss that is not finite.
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
    """Note and fix weights beyond the largest value of their stored format; return True if there are any."""
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
    """Return True if another training came further, also if a result overflows instead of its sum."""
    if other is None or other[0].step != first.step:
        return other is None or other[0].step > first.step
    return other[0].key != first.key or first.operands == OVERFLOWED_SUM != other[0].operands


def _is_better(candidate: Remedy | Change, record: TrialRecord, first: FirstNaN, faults: Sequence[Fault]) -> bool:
    """Return True if a training with a remedy fails later or not at all.

    A failure in the same step and at the same place as an earlier fault does not count as later. After a larger eps, a
    failure in the same layer does not count; after an upcast, an overflow of the conversion back does not count.
    """
    bad_result = first_bad_result(record)
    if bad_result is None:
        return True
    other = bad_result[0]
    if any((f.step, f.path, f.operation, f.phase, f.operands) == other for f in faults):
        return False
    if isinstance(candidate, Change) and candidate.kind == EPS and other.path == first.path:
        return False
    if isinstance(candidate, Change) and candidate.kind == UPCAST and other.step == first.step:
        return other.key != Key(candidate.path, "cast", first.phase) and _is_later(bad_result, first)
    return _is_later(bad_result, first)


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
    """Explain a NaN or infinity by earlier counts; None if it is an overflow itself or has a cause outside."""
    if first.operands in (OVERFLOWED, OVERFLOWED_SUM, INHERITED):
        return None
    return explain_nan(
        first._replace(operands=ZERO_BY_ZERO_TEXT) if first.operands in (DIVIDED, LOGARITHM) else first, entries
    )


def _smaller_scale(repair: PolicyRepair, policy: Policy, record: TrialRecord) -> str:
    """Return in words the largest loss scale that skips no step, if most steps were skipped; otherwise empty."""
    if record.fault_recorder.first is not None or repair.trial.parts[2] is None:
        return ""
    trial, steps = repair.trial, repair.steps
    smaller = (scale for scale in SCALES if scale < trial.parts[2].get_scale())
    largest = next((scale for scale in smaller if first_bad_result(trial.train(policy, steps, scale)) is None), None)
    return "" if largest is None else f"a loss scale of {largest:.0f}"


def _larger_eps(repair: PolicyRepair, first: FirstNaN) -> str:
    """Return the advice for the smallest eps of a layer that prevents its division by zero.

    The advice is empty if there is no such eps, or if the policy follows the dtypes of the program.
    """
    for change in () if is_written(repair.policy) else larger_eps_of_layer(first, repair.trial):
        record = repair.train(change.apply(repair.policy))
        if record is not None and _is_better(change, record, first, repair.faults):
            return change.advice
    return ""


def _candidates(first: FirstNaN, entries: Entries, repair: PolicyRepair) -> Sequence[Remedy | Change]:
    """Return possible remedies, the most likely first: at the source, at the place itself, and both for all paths.

    A program with its own dtypes is changed, unless only its sums are too narrow.
    """
    events, keys = dict(entries)[first.key], [key for key, _ in entries]
    before = _explanation(first, entries)
    at_source = None if before is None else before.remedy
    here = remedy(first.key, keys, is_fp32=are_wide(events), sums=count_overflowed_sums(events) > 0)
    candidates = [each for each in (at_source, here) if each is not None]
    if is_written(repair.policy):
        source = first.key if before is None or before.source is None else before.source
        sums = [each for each in candidates if each.role in SUM_ROLES]
        return [*sums, *changes_for_first(first, source, repair.trial)]
    if not candidates and first.operation in CAST_ROLES:  # a product outside of all layers
        candidates = [Remedy("*", "", CAST_ROLES[first.operation], FP32)]
    if first.operation in CAST_ROLES:  # for 8-bit formats, scaled casts are usual
        scaled_cast = use_scaled_cast(candidates[-1], repair.policy)
        candidates = [scaled_cast, *candidates] if scaled_cast.value.format.bits <= 8 else [*candidates, scaled_cast]
    everywhere = [each.for_all_paths() for each in candidates]
    # If the update of one parameter needs a remedy, or many places have needed it, others will need it sooner or later.
    is_first = first.phase == "update" or any(repair.is_widespread(each) for each in candidates)
    return list(dict.fromkeys([*everywhere, *candidates] if is_first else [*candidates, *everywhere]))


#: Above these shares of the elements of a parameter, an update, a decay or a moment counts as lost.
LOST_SHARE, STALLED_SHARE = 0.25, 0.5

#: The largest relative error of the movement of a parameter that loses no update.
MOVED_SHARE = 0.5

UPDATE = "update"


def find_lost_updates(repair: PolicyRepair, record: TrialRecord) -> None:
    """Note parameters for which many more additions w + u give w, for nonzero u, than under the reference."""
    recorder, exact = record.fault_recorder, repair.reference_record.fault_recorder

    def are_lost(of: TrialRecord, key: Key) -> bool:
        share = of.fault_recorder.share("unchanged", key)
        return share > LOST_SHARE and share > 2 * exact.share("unchanged", key)

    keys = [key for key, _ in recorder.entries() if key.phase == key.operation == UPDATE]
    lost = [key for key in keys if are_lost(record, key) and _is_nearest(repair.policy, key.path)]
    if lost:
        share = max(recorder.share("unchanged", key) for key in lost)
        why = f"{percent_text(share)} of the additions w + u give w ({keys_text(lost)})"
        step = min(recorder.first_step("unchanged", key) for key in lost)
        fault = Fault("lost updates", step, UPDATE, lost[0].path, UPDATE, why, also='update="kahan" or "stochastic"')
        if is_written(repair.policy):
            fault = fault._replace(also=Change(MASTER).advice)
            kahan = merge_remedies([Remedy(key.path, "", UPDATE, "kahan") for key in lost])
            paths = [key.path for key in lost]
            repair.attempt(fault, [kahan, [Change(MASTER)]], lambda again, _: _have_moved(repair, again, paths))
            return
        remedies = merge_remedies([Remedy(key.path, "", "weights", FP32) for key in lost])
        repair.attempt(fault, [remedies], lambda again, _: not any(are_lost(again, key) for key in lost))


def find_lost_decay(repair: PolicyRepair) -> None:
    """Note parameters that a step without gradients leaves unchanged, although weight decay would change them."""
    trial = repair.trial
    if not trial.weight_decay():
        return

    def lost_under(policy: Policy) -> list[str]:
        return [path for path, share in _lost_decay_shares(repair, policy).items() if share > STALLED_SHARE]

    shares = _lost_decay_shares(repair, repair.policy)
    lost = lost_under(repair.policy)
    if lost:
        keys = [Key(path, UPDATE, UPDATE) for path in lost]
        why = f"the decay alone leaves {percent_text(max(shares[path] for path in lost))} of the weights as they are "
        fault = Fault("weight decay lost", 0, UPDATE, lost[0], UPDATE, f"{why}({keys_text(keys)})")
        choices = _choices(repair, lost, ["weights"])
        repair.attempt(fault, choices, lambda _, policy: not lost_under(policy))


def find_stalled_moments(repair: PolicyRepair, record: TrialRecord) -> None:
    """Note moments that a step without gradients leaves unchanged, although they would decay."""

    def stalled_in(of: TrialRecord, policy: Policy) -> list[str]:
        return [path for path, share in _stalled_moment_shares(repair, of, policy).items() if share > STALLED_SHARE]

    stalled = stalled_in(record, repair.policy)
    if stalled:
        shares = _stalled_moment_shares(repair, record, repair.policy)
        parameters = [path.rpartition(".")[0] for path in stalled]
        keys = [Key(path, "moment", UPDATE) for path in stalled]
        why = f"{percent_text(max(shares[path] for path in stalled))} of the numbers never decay ({keys_text(keys)})"
        fault = Fault("stalled moments", 0, UPDATE, stalled[0], "moment", why)
        # Products inside a moment are rounded to `weights`.
        choices = _choices(repair, parameters, ["optimizer_state", "weights"])
        repair.attempt(fault, choices, lambda again, policy: not stalled_in(again, policy))


def find_underflowing_moments(repair: PolicyRepair, record: TrialRecord) -> None:
    """Note moments with more underflow than under the reference: an update divides by the value that remains."""
    exact = repair.reference_record.fault_recorder

    def lost_in(of: TrialRecord) -> list[Key]:
        keys = [key for key, _ in of.fault_recorder.entries() if key.phase == UPDATE and key.operation == "moment"]
        shares = {key: of.fault_recorder.share("underflow", key) for key in keys}
        return [
            key for key, share in shares.items() if share > LOST_SHARE and share > 2 * exact.share("underflow", key)
        ]

    lost = lost_in(record)
    if lost:
        share = max(record.fault_recorder.share("underflow", key) for key in lost)
        why = f"{percent_text(share)} of the numbers underflow ({keys_text(lost)})"
        step = min(record.fault_recorder.first_step("underflow", key) for key in lost)
        fault = Fault("underflow", step, UPDATE, lost[0].path, "moment", why)
        parameters = [key.path.rpartition(".")[0] for key in lost]
        choices = _choices(repair, parameters, ["optimizer_state", "weights"])
        repair.attempt(fault, choices, lambda again, _: not lost_in(again))


def _choices(
    repair: PolicyRepair, parameters: Sequence[str], roles: Sequence[str]
) -> Sequence[Sequence[Remedy | Change]]:
    """Return the remedies to try for parameters: each of these roles in FP32, or a master copy in the program."""
    if is_written(repair.policy):
        return [[Change(MASTER)]]
    return [merge_remedies([Remedy(path, "", role, FP32) for path in parameters]) for role in roles]


def _have_moved(repair: PolicyRepair, record: TrialRecord, paths: Sequence[str]) -> bool:
    """True if parameters, with the compensations of Kahan's updates, have moved almost as under the reference."""
    trial = repair.trial
    before, after, exact = (trial.parameters(x.parts) for x in (trial, record, repair.reference_record))
    for path in paths:
        moved = after[path] - trial.compensation(record.parts, path) - before[path]
        wanted = exact[path] - before[path]
        if np.linalg.norm(moved - wanted) > MOVED_SHARE * np.linalg.norm(wanted):
            return False
    return True


def _lost_decay_shares(repair: PolicyRepair, policy: Policy) -> dict[str, float]:
    """Return for each parameter the share of weights that decay changes under the reference, but not under a policy.

    A stochastic addition keeps on average the part that a Kahan addition keeps in its compensation. With either one,
    the decay is lost only if it does not reach the last addition: PyTorch's AdamW multiplies the weights before.
    """
    trial, shares = repair.trial, {}
    before, after = trial.zero_gradient_step(_with_kahan_updates(policy), trial.parts, fresh=True)
    exact_before, exact_after = trial.zero_gradient_step(repair.reference, trial.parts, fresh=True)
    for path, w in exact_before.items():
        recipe = policy.recipe(path, UPDATE)
        if path in after and not recipe.rounding.is_stochastic:
            stored_weights = after[path] - after.get(f"{path}.{COMPENSATION}", 0.0)
            shares[path] = _staying_share(
                stored_weights == rounded(before[path], recipe.weights), exact_after[path] != w
            )
    return shares


def _with_kahan_updates(policy: Policy) -> Policy:
    """Return the policy with Kahan's additions in place of stochastic ones."""
    overrides = tuple(
        Override(each.path, each.operation, tuple((name, _kahan_for_stochastic(value)) for name, value in each.roles))
        for each in policy.overrides
    )
    return replace(policy, update=_kahan_for_stochastic(policy.update), overrides=overrides)


def _kahan_for_stochastic(value: Any) -> Any:
    return "kahan" if isinstance(value, str) and value == "stochastic" else value


def _stalled_moment_shares(repair: PolicyRepair, record: TrialRecord, policy: Policy) -> dict[str, float]:
    """Return for each moment the share of its values that decay under the reference, but not under a policy."""
    trial = repair.trial
    if record.parts[1] is None:
        return {}
    before, after = trial.zero_gradient_step(policy, record.parts, fresh=False)
    _, exact_after = trial.zero_gradient_step(repair.reference, record.parts, fresh=False)
    parameters = {path for path, _ in record.parts[0].named_parameters()}
    moments = [path for path, m in before.items() if path not in parameters and path in exact_after and m.any()]
    # With stochastic rounding, a moment decays on average.
    stochastic = {path for path in moments if policy.recipe(path.rpartition(".")[0], UPDATE).rounding.is_stochastic}
    return {
        path: _staying_share(after[path] == before[path], exact_after[path] != before[path])
        for path in moments
        if path not in stochastic
    }


def _staying_share(stays: np.ndarray, moves: np.ndarray) -> float:
    """Return the share of the elements that should change and do not."""
    return int(np.count_nonzero(stays & moves)) / max(int(np.count_nonzero(moves)), 1)


def _is_nearest(policy: Policy, path: str) -> bool:
    """True if the last addition of a parameter is rounded to nearest, so that a lost update is never recovered."""
    return policy.recipe(path, UPDATE).update == "nearest"
