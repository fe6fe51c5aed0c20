"""Gradients that are gone or wrong, beside the reference's at the same weights: underflow, saturation, swamped sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from simfloat.arithmetic.catalog import kind_of
from simfloat.diagnosis.fault import INFINITY, NAN, Fault
from simfloat.diagnosis.harm import WRONG_SHARE, GradientErrors
from simfloat.diagnosis.mending import PolicyRepair, keys_text, merge_remedies, percent_text, use_scaled_cast
from simfloat.diagnosis.trial import TrialRecord
from simfloat.formats import FP32
from simfloat.policy import Policy
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.telemetry.entries import Key, are_wide
from simfloat.telemetry.remedy import CAST_ROLES, Remedy, remedy

#: How harmful a policy is, and the remedies of each role.
Measure = Callable[..., float]
RemediesByRole = Mapping[str, tuple[Remedy, ...]]

#: By role, where results or operands are rounded to it, with what mends them there.
KeysByRole = dict[str, list[tuple[Key, Remedy]]]

#: Shares of results above which it is asked whether underflow, few digits and saturation do harm.
UNDERFLOWED, SUBNORMAL, SATURATED = 0.05, 0.25, 0.01

#: The share of saturated results above which saturation is told, though nothing that was tried takes half of its harm.
OBVIOUS_SHARE = 0.25

#: The shares of a gradient above which it is gone, or wrong; a remedy takes at least half of that away.
GONE_SHARE = 0.1

#: The kinds of faults that make a gradient wrong.
GRADIENT_FAULTS = (NAN, INFINITY, "underflow", "saturation", "swamped sums", "zero gradients")

#: Scales of the loss that are tried beside overrides.
SCALES = (2.0**8, 2.0**12, 2.0**16, 2.0**20)

#: The roles of results and operands, by phase.
BACKWARD_ROLES = ("activation_gradients", "weight_gradients", "compute_gradients")
FORWARD_ROLES = ("activations", "compute", "compute_weights")

#: The roles of sums, and what they sum.
SUM_KINDS = {"accumulate": CONTRACTION, "accumulate_gradients": CONTRACTION, "reduce": REDUCTION}


def find_underflow(repair: PolicyRepair, record: TrialRecord, errors: GradientErrors, *, is_rare: bool = False) -> None:
    """Note results that underflow, if gradients are gone and wider formats bring them back, and subnormal results, if
    gradients are wrong; `is_rare`: a single one of many at its place, on which all may depend."""
    entries = dict(record.fault_recorder.entries())
    for kind, limit, measure, words in (
        ("underflow", UNDERFLOWED, errors.largest_zero_share, "underflow ({}): up to {} of a gradient is gone"),
        ("subnormal", SUBNORMAL, errors.largest_error, "have fewer digits, near underflow ({}): a gradient is {}"),
    ):
        if is_rare:
            limit = 0.0
            if errors.agrees(repair.policy):
                continue
        keys = [key for key in _frequent_keys(repair, record, kind, limit) if not are_wide(entries[key])]
        keys = [key for key in keys if kind == "underflow" or is_rare or key.operation not in CAST_ROLES]
        groups = _group_by_role(keys, list(entries))
        before = measure(repair.policy) if groups else 0.0
        if before <= GONE_SHARE:
            continue
        # What underflows behind a result that is zero is seen once that one is mended: then all of its kind are.
        there = {role: merge_remedies([each for _, each in group]) for role, group in groups.items()}
        everywhere = {role: (Remedy("*", "", role, FP32),) for role in _roles_of_phases(groups)}
        # Sums of what underflows may underflow themselves, step by step, which shows in no result.
        with_sums = everywhere | (_narrow_sums(repair.policy) if groups else {})
        remedies = next((x for x in (there, everywhere, with_sums) if _needed_roles(repair, x, measure, before)), {})
        needed = _needed_roles(repair, remedies, measure, before)
        if needed:
            fault_keys = _keys_of_roles(needed, groups)
            share = max(record.fault_recorder.share(kind, key) for key in fault_keys)
            much = f"{before:.0%}" if kind == "underflow" else _error_text(before)
            why, also = (
                f"{percent_text(share)} {words.format(keys_text(fault_keys), much)}",
                _helpful_scale(repair, measure, before),
            )
            step = min(record.fault_recorder.first_step(kind, key) for key in fault_keys)
            fault = Fault(
                "underflow", step, fault_keys[0].phase, fault_keys[0].path, fault_keys[0].operation, why, also=also
            )
            _attempt_all(repair, fault, [each for role in needed for each in remedies[role]], measure, before)
            return


def find_saturation(repair: PolicyRepair, record: TrialRecord, errors: GradientErrors) -> None:
    """Note results and operands that stop at the largest number, where gradients are wrong by it."""
    keys = _frequent_keys(repair, record, "overflow", SATURATED)
    before = errors.largest_error(repair.policy) if keys else 0.0
    if before <= WRONG_SHARE:
        return
    groups = _group_by_role(keys, [key for key, _ in record.fault_recorder.entries()])
    scaled, plain = (
        {role: merge_remedies([choose(each, repair.policy) for _, each in group]) for role, group in groups.items()}
        for choose in (use_scaled_cast, _unchanged_remedy)
    )
    # What saturates behind numbers that stopped, or on their way back, is seen once these are mended: then all are.
    everywhere = {role: (use_scaled_cast(Remedy("*", "", role, FP32), repair.policy),) for role in CAST_ROLES.values()}
    tried = (
        (remedies, _needed_roles(repair, remedies, errors.largest_error, before))
        for remedies in (scaled, everywhere, plain)
    )
    obvious = [key for key in keys if record.fault_recorder.share("overflow", key) > OBVIOUS_SHARE]
    remedies, needed = next((each for each in tried if each[1]), (scaled, list(groups) if obvious else []))
    if needed:
        fault_keys = _keys_of_roles(needed, groups)
        share = max(record.fault_recorder.share("overflow", key) for key in fault_keys)
        why = f"{percent_text(share)} stop at the largest number ({keys_text(fault_keys)}): a gradient is {_error_text(before)}"
        step = min(record.fault_recorder.first_step("overflow", key) for key in fault_keys)
        fault = Fault("saturation", step, fault_keys[0].phase, fault_keys[0].path, fault_keys[0].operation, why)
        _attempt_all(repair, fault, [each for role in needed for each in remedies[role]], errors.largest_error, before)


def find_swamped_sums(repair: PolicyRepair, record: TrialRecord, errors: GradientErrors) -> None:
    """Note sums in narrow accumulators, where gradients are wrong and sums in FP32 make them right."""
    groups = _narrow_sums(repair.policy)
    before = errors.largest_error(repair.policy) if groups else 0.0
    if before <= WRONG_SHARE:
        return
    needed = _needed_roles(repair, groups, errors.largest_error, before)
    if not needed:
        return
    role = needed[0]
    keys = [
        key for key, _ in record.fault_recorder.entries()
        if kind_of(key.operation) == SUM_KINDS[role] and (key.phase == "backward" or role != "accumulate_gradients")
    ]  # fmt: skip
    alone = (
        _layer_at_fault(repair, [key for key in keys if key.path], role, errors, before) if len(needed) == 1 else None
    )
    chosen = [each for role in needed for each in groups[role]]
    where = alone or (keys[0] if keys else Key("", "sum", "forward"))
    why = f"sums in few digits lose what they are to add: a gradient is {_error_text(before)}"
    fault = Fault("swamped sums", 0, where.phase, where.path, where.operation, why)
    remedies = chosen if alone is None else [Remedy(alone.path, "", role, FP32)]
    _attempt_all(repair, fault, remedies, errors.largest_error, before)


def find_zero_gradients(repair: PolicyRepair, errors: GradientErrors) -> None:
    """Note gradients that are zero where those of the reference are not, though nothing that underflows explains it."""
    before = errors.largest_zero_share(repair.policy)
    if before <= GONE_SHARE:
        return
    roles = (*BACKWARD_ROLES, *FORWARD_ROLES)
    remedies = {role: (Remedy("*", "", role, FP32),) for role in roles} | _narrow_sums(repair.policy)
    needed = _needed_roles(repair, remedies, errors.largest_zero_share, before)
    if needed:
        path = errors.worst_path(repair.policy)
        why = f"{before:.0%} of a gradient is exactly 0, and not under the reference"
        fault = Fault("zero gradients", 0, "backward", path, "", why)
        _attempt_all(
            repair, fault, [each for role in needed for each in remedies[role]], errors.largest_zero_share, before
        )


def _error_text(wrong: float) -> str:
    """Say in words how wrong a gradient is."""
    return f"wrong by {wrong:.0%}" if wrong < float("inf") else "not finite"


def _frequent_keys(repair: PolicyRepair, record: TrialRecord, kind: str, limit: float) -> list[Key]:
    """Return the keys, except for updates, whose share of events is above the limit and above twice the reference's."""
    recorder, exact = record.fault_recorder, repair.reference_record.fault_recorder
    shares = {key: recorder.share(kind, key) for key, _ in recorder.entries() if key.phase != "update"}
    return [key for key, share in shares.items() if share > limit and share > 2 * exact.share(kind, key)]


def _roles_of_phases(roles: Iterable[str]) -> list[str]:
    """All roles of the phases that these are of."""
    phases = (BACKWARD_ROLES, FORWARD_ROLES)
    return [role for phase in phases if any(role in phase for role in roles) for role in phase]


def _group_by_role(keys: Sequence[Key], all_keys: Sequence[Key]) -> KeysByRole:
    """These keys by the roles that mend them."""
    groups: KeysByRole = {}
    for key in keys:
        proposal = remedy(key, all_keys, is_fp32=False)
        if proposal is not None:
            groups.setdefault(proposal.role, []).append((key, proposal))
    return groups


def _keys_of_roles(roles: Iterable[str], groups: KeysByRole) -> list[Key]:
    """Return the keys of these roles; those of the first role where there are none."""
    keys = [key for role in roles for key, _ in groups.get(role, ())]
    return keys or [key for key, _ in next(iter(groups.values()))]


def _needed_roles(repair: PolicyRepair, remedies: RemediesByRole, measure: Measure, before: float) -> list[str]:
    """The roles without whose remedies the harm is not halved, where those of all roles together halve it."""

    def halves(roles: Sequence[str]) -> bool:
        policy = repair.apply_remedies(repair.policy, [each for role in roles for each in remedies[role]])
        try:
            return policy is not None and measure(policy) < before / 2
        except ValueError:  # as of a format that a matrix unit does not take
            return False

    roles = list(remedies)
    if not roles or not halves(roles):
        return []
    for role in reversed(list(remedies)):
        others = [other for other in roles if other != role]
        if others and halves(others):
            roles = others
    return roles


def _attempt_all(
    repair: PolicyRepair, fault: Fault, remedies: Sequence[Remedy], measure: Measure, before: float
) -> None:
    """Note a fault with its remedies, verified if training again gives finite numbers, and the harm is halved."""

    def is_mended(again: TrialRecord, policy: Policy) -> bool:
        return again.fault_recorder.first is None and measure(policy) < before / 2

    repair.attempt(fault, [remedies], is_mended)


def _helpful_scale(repair: PolicyRepair, measure: Measure, before: float) -> str:
    """The scale of the loss, in words, that does most against the harm, if one halves it."""
    best = min(SCALES, key=lambda scale: measure(repair.policy, scale))
    return f"a loss scale of {best:.0f}" if measure(repair.policy, best) < before / 2 else ""


def _layer_at_fault(
    repair: PolicyRepair, keys: Sequence[Key], role: str, errors: GradientErrors, before: float
) -> Key | None:
    """The layer whose sums alone do the harm, if there is one."""
    for key in {key.path: key for key in keys}.values():
        policy = repair.apply_remedies(repair.policy, [Remedy(key.path, "", role, FP32)])
        if policy is not None and errors.largest_error(policy) < before / 2:
            return key
    return None


def _narrow_sums(policy: Policy) -> dict[str, tuple[Remedy, ...]]:
    """The remedies of the roles of sums that are made in less than FP32's precision."""
    return {role: (Remedy("*", "", role, FP32),) for role in SUM_KINDS if _is_narrow(policy, role)}


def _is_narrow(policy: Policy, role: str) -> bool:
    """Whether sums of the role are made in less than FP32's precision anywhere."""
    recipe = policy.recipe()
    values = [getattr(recipe, role), *(dict(each.roles).get(role) for each in policy.overrides)]
    results = [value.result for value in values if value is not None]
    return any(result is not None and result.precision < FP32.precision for result in results)


def _unchanged_remedy(proposal: Remedy, policy: Policy) -> Remedy:
    """Return the remedy unchanged."""
    return proposal
