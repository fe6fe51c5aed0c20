"""Find gradients that vanish or are wrong, compared with the reference at the same weights.

The first part measures how much of a gradient is lost. The causes are underflow, saturation and swamped sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

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
from simfloat.analysis.diagnosis.proposals import changes_for_gradients
from simfloat.analysis.diagnosis.trial import Arrays, TrainingTrial, TrialMoment, TrialRecord
from simfloat.arithmetic.casts import as_cast
from simfloat.arithmetic.catalog import kind_of
from simfloat.formats import FP32
from simfloat.policy import Policy
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.telemetry.advice import CAST_ROLES, Remedy, remedy
from simfloat.telemetry.entries import Key, are_wide

#: A gradient below this share of the norm of all gradients is not checked for zeros, and its error is relative to at
#: least this share. Gradients that should cancel, such as the gradient of a bias before a normalization, consist only
#: of rounding errors.
LEAST_GONE, LEAST_WRONG = 1e-4, 0.1

#: A gradient with at least this relative error is wrong.
WRONG_SHARE = 0.1

#: The roles of operands, and the number of unit roundoffs of them that the error of a gradient may have.
OPERANDS, ROUNDOFFS = ("compute", "compute_weights", "compute_gradients"), 4

#: The maximum number of times that a loss scale is halved.
HALVINGS = 40


class GradientErrors:
    """Errors of gradients under policies, relative to the reference, at the weights of some moments of a training."""

    def __init__(self, trial: TrainingTrial, reference: Policy, moments: Sequence[TrialMoment]) -> None:
        self._trial = trial
        self._errors_by_policy: dict[tuple[Policy, float], tuple[float, float, float]] = {}
        exact = [self._gradients(reference, moment._replace(state=None), 1.0) for moment in moments]
        # Moments at which the gradient under the reference is not finite are left out.
        self._exact_gradients = [(moment, g) for moment, g in zip(moments, exact, strict=True) if _are_finite(g)]

    def largest_zero_share(self, policy: Policy, scale: float = 1.0) -> float:
        """Return the largest share of a gradient that is zero, in the 2-norm, with a loss scale of `scale`."""
        return self._measure(policy, scale)[0]

    def largest_error(self, policy: Policy, scale: float = 1.0) -> float:
        """Return the largest relative error of a parameter's gradient, in the 2-norm; infinite if it is not finite."""
        return self._measure(policy, scale)[1]

    def largest_harm(self, policy: Policy) -> float:
        """Return the largest error of a parameter's gradient, relative to this gradient itself.

        A gradient that is too small to be checked for zeros has the error of `largest_error`.
        """
        return self._measure(policy, 1.0)[2]

    def agrees(self, policy: Policy) -> bool:
        """True if gradients agree with the reference within the precision of the operands."""
        recipe = policy.recipe()
        unit = max(as_cast(getattr(recipe, role)).format.unit_roundoff for role in OPERANDS)
        return self.largest_error(policy) <= max(WRONG_SHARE, ROUNDOFFS * unit)

    def worst_path(self, policy: Policy) -> str:
        """Return the path of the parameter with the largest share of zeros in its gradient."""
        shares: dict[str, float] = {}
        for moment, exact in self._exact_gradients:
            gradients = self._gradients(policy, moment, 1.0)
            total = _norm(np.array([_norm(g) for g in exact.values()]))
            shares |= {
                path: max(shares.get(path, 0.0), _zero_share(gradients[path], g, total)) for path, g in exact.items()
            }
        return max(shares, key=lambda path: shares[path])

    def _measure(self, policy: Policy, scale: float) -> tuple[float, float, float]:
        """Return the largest share of a gradient that is zero, its largest error, and the largest harm.

        They are measured once for each policy.
        """
        if (policy, scale) not in self._errors_by_policy:
            gone = wrong = harm = 0.0
            for moment, exact in self._exact_gradients:
                gradients = self._gradients(policy, moment, scale)
                total = _norm(np.array([_norm(g) for g in exact.values()]))
                gone = max([gone, *(_zero_share(gradients[path], exact[path], total) for path in exact)])
                wrong = max([wrong, *(_relative_error(gradients[path], exact[path], total) for path in exact)])
                harm = max([harm, wrong, *(_own_error(gradients[path], exact[path], total) for path in exact)])
            self._errors_by_policy[policy, scale] = gone, wrong, harm
        return self._errors_by_policy[policy, scale]

    def _gradients(self, policy: Policy, moment: TrialMoment, scale: float) -> Arrays:
        """Return the gradients at a moment. A loss scale that would skip the step is halved until it does not."""
        gradients = self._trial.gradients(policy, moment, scale)
        scaler = moment.parts[2]
        if scaler is None or scale != 1.0 or _are_finite(gradients):
            return gradients
        smaller = scaler.get_scale() / 2
        for _ in range(HALVINGS):
            again = self._trial.gradients(policy, moment, smaller)
            if _are_finite(again):
                return again
            smaller /= 2
        return gradients


def _are_finite(gradients: Arrays) -> bool:
    return all(bool(np.isfinite(g).all()) for g in gradients.values())


def _zero_share(gradient: Any, exact: Any, total: float) -> float:
    norm = _norm(exact)
    return _norm(exact[gradient == 0]) / norm if norm > LEAST_GONE * total else 0.0


def _relative_error(gradient: Any, exact: Any, total: float) -> float:
    if not np.isfinite(gradient).all():
        return float("inf")
    least = max(_norm(exact), LEAST_WRONG * total)
    return _norm(gradient - exact) / least if least else 0.0


def _own_error(gradient: Any, exact: Any, total: float) -> float:
    norm = _norm(exact)
    return _norm(gradient - exact) / norm if norm > LEAST_GONE * total and np.isfinite(gradient).all() else 0.0


def _norm(x: Any) -> float:
    return float(np.linalg.norm(np.ravel(x)))


#: A function that measures the harm of a policy, and the remedies of each role.
Measure = Callable[..., float]
RemediesByRole = Mapping[str, tuple[Remedy, ...]]

#: For each role, the keys of results or operands that are rounded to it, each with its remedy.
KeysByRole = dict[str, list[tuple[Key, Remedy]]]

#: Above these shares of results, underflow, subnormal results and saturation are examined for harm.
UNDERFLOWED, SUBNORMAL, SATURATED = 0.05, 0.25, 0.01

#: Above this share of saturated results, saturation is reported even if no remedy removes half of its harm.
OBVIOUS_SHARE = 0.25

#: Above this share, a gradient is lost or wrong; a remedy removes at least half of it.
GONE_SHARE = 0.1

#: The kinds of faults that make a gradient wrong.
GRADIENT_FAULTS = (NAN, INFINITY, "underflow", "saturation", "swamped sums", "zero gradients")

#: Loss scales that are tried in addition to overrides.
SCALES = (2.0**8, 2.0**12, 2.0**16, 2.0**20)

#: The roles of results and operands, by phase.
BACKWARD_ROLES = ("activation_gradients", "weight_gradients", "compute_gradients")
FORWARD_ROLES = ("activations", "compute", "compute_weights")

#: The roles of sums, and the kinds of operations that use them.
SUM_KINDS = {"accumulate": CONTRACTION, "accumulate_gradients": CONTRACTION, "reduce": REDUCTION}


def find_underflow(repair: PolicyRepair, record: TrialRecord, errors: GradientErrors, *, is_rare: bool = False) -> None:
    """Note results that underflow, and subnormal results, if they make gradients zero or wrong.

    Results that underflow are noted if gradients vanish and wider formats restore them; subnormal results are noted if
    gradients are wrong. `is_rare` also examines single results among many at their place, because the whole gradient
    may depend on one.
    """
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
        # Underflow that follows from a result of zero appears only after the zero is fixed. So a second attempt changes
        # all roles of the phase.
        there = {role: merge_remedies([each for _, each in group]) for role, group in groups.items()}
        everywhere = {role: (Remedy("*", "", role, FP32),) for role in _roles_of_phases(groups)}
        # Sums of values that underflow may also underflow, step by step, without a trace in any result.
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
    """Note results and operands that saturate at the largest number, if gradients are wrong because of it."""
    keys = _frequent_keys(repair, record, "overflow", SATURATED)
    before = errors.largest_error(repair.policy) if keys else 0.0
    if before <= WRONG_SHARE:
        return
    groups = _group_by_role(keys, [key for key, _ in record.fault_recorder.entries()])
    scaled, plain = (
        {role: merge_remedies([choose(each, repair.policy) for _, each in group]) for role, group in groups.items()}
        for choose in (use_scaled_cast, _unchanged_remedy)
    )
    # Saturation that follows from saturated values, forward or backward, appears only after these are fixed. So a
    # second attempt changes the casts of all operands.
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
        place = keys_text(fault_keys)
        why = f"{percent_text(share)} stop at the largest number ({place}): a gradient is {_error_text(before)}"
        step = min(record.fault_recorder.first_step("overflow", key) for key in fault_keys)
        fault = Fault("saturation", step, fault_keys[0].phase, fault_keys[0].path, fault_keys[0].operation, why)
        _attempt_all(repair, fault, [each for role in needed for each in remedies[role]], errors.largest_error, before)


def find_swamped_sums(repair: PolicyRepair, record: TrialRecord, errors: GradientErrors) -> None:
    """Note sums in narrow accumulators, if gradients are wrong and sums in FP32 make them right."""
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
    why = f"sums with few digits lose small terms: a gradient is {_error_text(before)}"
    fault = Fault("swamped sums", 0, where.phase, where.path, where.operation, why)
    remedies = chosen if alone is None else [Remedy(alone.path, "", role, FP32)]
    _attempt_all(repair, fault, remedies, errors.largest_error, before)


def find_zero_gradients(repair: PolicyRepair, errors: GradientErrors) -> None:
    """Note gradients that are zero only under the policy, if no underflow explains it."""
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


def find_wrong_gradients(repair: PolicyRepair, record: TrialRecord, errors: GradientErrors) -> None:
    """Note gradients of a program with its own dtypes that vanish or are wrong, and the change that repairs them."""
    entries = dict(record.fault_recorder.entries())
    for kind, limit, measure, words in (
        ("underflow", UNDERFLOWED, errors.largest_zero_share, "underflow ({}): up to {:.0%} of a gradient is gone"),
        (
            "subnormal",
            SUBNORMAL,
            errors.largest_error,
            "have few digits ({}): a gradient is wrong by {:.0%}",
        ),
        ("overflow", SATURATED, errors.largest_error, "stop at the largest number ({}): a gradient is wrong by {:.0%}"),
    ):
        keys = [key for key in _frequent_keys(repair, record, kind, limit) if not are_wide(entries[key])]
        before = measure(repair.policy) if keys else 0.0
        if before <= GONE_SHARE:
            continue
        share = max(record.fault_recorder.share(kind, key) for key in keys)
        step = min(record.fault_recorder.first_step(kind, key) for key in keys)
        why = f"{percent_text(share)} {words.format(keys_text(keys), before)}"
        name = "saturation" if kind == "overflow" else "underflow"

        def is_mended(again: TrialRecord, policy: Policy, measure: Measure = measure, before: float = before) -> bool:
            return again.fault_recorder.first is None and measure(policy) < before / 2

        fault = Fault(name, step, keys[0].phase, keys[0].path, keys[0].operation, why)
        if not any(each[:6] == fault[:6] for each in repair.faults):  # already noted without a remedy that helps
            repair.attempt(fault, changes_for_gradients(keys, repair.trial), is_mended)
            return


def _error_text(wrong: float) -> str:
    """Say in words how wrong a gradient is."""
    return f"wrong by {wrong:.0%}" if wrong < float("inf") else "not finite"


def _frequent_keys(repair: PolicyRepair, record: TrialRecord, kind: str, limit: float) -> list[Key]:
    """Return the keys, except updates, with a share above the limit and above twice the share of the reference.

    Conversions of the program are last: the values that they lose belong to another operation of the layer.
    """
    recorder, exact = record.fault_recorder, repair.reference_record.fault_recorder
    shares = {key: recorder.share(kind, key) for key, _ in recorder.entries() if key.phase != "update"}
    keys = [key for key, share in shares.items() if share > limit and share > 2 * exact.share(kind, key)]
    return sorted(keys, key=lambda key: key.operation == "cast")


def _roles_of_phases(roles: Iterable[str]) -> list[str]:
    """Return all roles of the phases to which these roles belong."""
    phases = (BACKWARD_ROLES, FORWARD_ROLES)
    return [role for phase in phases if any(role in phase for role in roles) for role in phase]


def _group_by_role(keys: Sequence[Key], all_keys: Sequence[Key]) -> KeysByRole:
    """Group these keys by the roles that an override must change to fix them."""
    groups: KeysByRole = {}
    for key in keys:
        proposal = remedy(key, all_keys, is_fp32=False)
        if proposal is not None:
            groups.setdefault(proposal.role, []).append((key, proposal))
    return groups


def _keys_of_roles(roles: Iterable[str], groups: KeysByRole) -> list[Key]:
    """Return the keys of these roles, or the keys of the first role if these roles have no keys."""
    keys = [key for role in roles for key, _ in groups.get(role, ())]
    return keys or [key for key, _ in next(iter(groups.values()))]


def _needed_roles(repair: PolicyRepair, remedies: RemediesByRole, measure: Measure, before: float) -> list[str]:
    """Return a minimal set of roles with remedies that together halve the harm; empty if all roles together do not."""

    def halves(roles: Sequence[str]) -> bool:
        policy = repair.apply_remedies(repair.policy, [each for role in roles for each in remedies[role]])
        try:
            return policy is not None and measure(policy) < before / 2
        except ValueError:  # for example, a matrix unit does not accept the format
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
    """Note a fault with its remedies, verified if a new training has no NaN or infinity and halves the harm."""

    def is_mended(again: TrialRecord, policy: Policy) -> bool:
        return again.fault_recorder.first is None and measure(policy) < before / 2

    repair.attempt(fault, [remedies], is_mended)


def _helpful_scale(repair: PolicyRepair, measure: Measure, before: float) -> str:
    """Return in words the loss scale that reduces the harm most, if it halves it."""
    best = min(SCALES, key=lambda scale: measure(repair.policy, scale))
    return f"a loss scale of {best:.0f}" if measure(repair.policy, best) < before / 2 else ""


def _layer_at_fault(
    repair: PolicyRepair, keys: Sequence[Key], role: str, errors: GradientErrors, before: float
) -> Key | None:
    """Return the layer with the sums that cause the harm, if there is a single one."""
    for key in {key.path: key for key in keys}.values():
        policy = repair.apply_remedies(repair.policy, [Remedy(key.path, "", role, FP32)])
        if policy is not None and errors.largest_error(policy) < before / 2:
            return key
    return None


def _narrow_sums(policy: Policy) -> dict[str, tuple[Remedy, ...]]:
    """Return the remedies of the roles of sums that are computed in less precision than FP32."""
    return {role: (Remedy("*", "", role, FP32),) for role in SUM_KINDS if _is_narrow(policy, role)}


def _is_narrow(policy: Policy, role: str) -> bool:
    """True if sums of the role are computed in less precision than FP32 anywhere."""
    recipe = policy.recipe()
    values = [getattr(recipe, role), *(dict(each.roles).get(role) for each in policy.overrides)]
    results = [value.result for value in values if value is not None]
    return any(result is not None and result.precision < FP32.precision for result in results)


def _unchanged_remedy(proposal: Remedy, policy: Policy) -> Remedy:
    """Return the remedy unchanged."""
    return proposal
