"""Updates that leave their weights as they were, weight decay that does nothing, moments that never decay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from simfloat.arithmetic import round as rounded
from simfloat.diagnosis.fault import Fault
from simfloat.diagnosis.mending import PolicyRepair, keys_text, merge_remedies, percent_text
from simfloat.diagnosis.trial import TrialRecord
from simfloat.formats import FP32
from simfloat.policy import Policy
from simfloat.policy.overrides import Override
from simfloat.telemetry.entries import Key
from simfloat.telemetry.remedy import Remedy
from simfloat.updates.update_arithmetic import COMPENSATION

#: Shares of a parameter's elements above which an update, a decay or a moment is said to be lost.
LOST_SHARE, STALLED_SHARE = 0.25, 0.5

UPDATE = "update"


def find_lost_updates(repair: PolicyRepair, record: TrialRecord) -> None:
    """Note parameters of which many additions w + u give w, though u is not zero, and more than under the reference."""
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
        remedies = merge_remedies([Remedy(key.path, "", "weights", FP32) for key in lost])
        repair.attempt(fault, [remedies], lambda again, _: not any(are_lost(again, key) for key in lost))


def find_lost_decay(repair: PolicyRepair) -> None:
    """Note parameters that a step without gradients leaves as they are, though the weight decay would change them."""
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
        remedies = merge_remedies([Remedy(path, "", "weights", FP32) for path in lost])
        repair.attempt(fault, [remedies], lambda _, policy: not lost_under(policy))


def find_stalled_moments(repair: PolicyRepair, record: TrialRecord) -> None:
    """Note moments that a step without gradients leaves as they are, though they would decay."""

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
        choices = [
            merge_remedies([Remedy(path, "", role, FP32) for path in parameters])
            for role in ("optimizer_state", "weights")
        ]
        repair.attempt(fault, choices, lambda again, policy: not stalled_in(again, policy))


def find_underflowing_moments(repair: PolicyRepair, record: TrialRecord) -> None:
    """Note moments that underflow, and more of them than under the reference: an update divides by what is left."""
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
        choices = [
            merge_remedies([Remedy(path, "", role, FP32) for path in parameters])
            for role in ("optimizer_state", "weights")
        ]
        repair.attempt(fault, choices, lambda again, _: not lost_in(again))


def _lost_decay_shares(repair: PolicyRepair, policy: Policy) -> dict[str, float]:
    """Return for each parameter the share of weights that decay changes under the reference, but not under a policy.

    A stochastic addition keeps in the mean what a Kahan addition keeps in its compensation, so the decay is lost under
    either if it does not reach the last addition, as in PyTorch's AdamW, which multiplies the weights beforehand.
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
    """The policy with Kahan's additions in place of stochastic ones."""
    overrides = tuple(
        Override(each.path, each.operation, tuple((name, _kahan_for_stochastic(value)) for name, value in each.roles))
        for each in policy.overrides
    )
    return replace(policy, update=_kahan_for_stochastic(policy.update), overrides=overrides)


def _kahan_for_stochastic(value: Any) -> Any:
    return "kahan" if isinstance(value, str) and value == "stochastic" else value


def _stalled_moment_shares(repair: PolicyRepair, record: TrialRecord, policy: Policy) -> dict[str, float]:
    """Return for each moment the share of its numbers that decay under the reference, but not under a policy."""
    trial = repair.trial
    if record.parts[1] is None:
        return {}
    before, after = trial.zero_gradient_step(policy, record.parts, fresh=False)
    _, exact_after = trial.zero_gradient_step(repair.reference, record.parts, fresh=False)
    parameters = {path for path, _ in record.parts[0].named_parameters()}
    moments = [path for path, m in before.items() if path not in parameters and path in exact_after and m.any()]
    # A random rounding lets a moment decay in the mean.
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
    """Whether a parameter's last addition is rounded to nearest, so that what is lost is lost for good."""
    return policy.recipe(path, UPDATE).update == "nearest"
