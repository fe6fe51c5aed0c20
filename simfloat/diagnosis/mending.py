"""Mending a policy: trainings under a policy that is mended fault by fault."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from simfloat.arithmetic import per_tensor
from simfloat.arithmetic._cast import as_cast, scaled
from simfloat.diagnosis.fault import Fault
from simfloat.diagnosis.trial import TrainingTrial, TrialRecord
from simfloat.diagnosis.watch import FaultRecorder
from simfloat.policy import Policy
from simfloat.telemetry.entries import Key
from simfloat.telemetry.remedy import CAST_ROLES, Remedy

#: Where more places than these need the same role, it is overridden everywhere.
MOST_PLACES = 3

#: Whether a training under a policy shows that something is mended.
IsMended = Callable[[TrialRecord, Policy], bool]


class PolicyRepair:
    """Trainings of so many steps beside the reference's; `policy` has the remedies so far, `faults` what was found."""

    def __init__(self, trial: TrainingTrial, policy: Policy, reference: Policy, steps: int) -> None:
        self.trial, self.policy, self.reference = trial, policy, reference
        self._initial_policy = policy
        self.faults: list[Fault] = []
        self._adopted_remedies: dict[Remedy, None] = {}
        self.excused: set[Key] = set()  # where infinities do no harm
        self.reference_record = trial.train(reference, steps)
        # In the step in which the reference diverges, nothing is compared.
        self.steps = len(self.reference_record.losses) - int(self.reference_record.has_diverged)
        self.policy_record = trial.train(
            policy, max(self.steps, 1), recorder=FaultRecorder(self.reference_record.fault_recorder)
        )

    def attempt(self, fault: Fault, choices: Sequence[Sequence[Remedy]], is_mended: IsMended) -> None:
        """Note the fault with the first of these remedies that mends it, verified by training again.

        Where none does, the first one stands there unverified.
        """
        for remedies in choices:
            policy = self.apply_remedies(self.policy, remedies)
            record = None if policy is None else self.train(policy)
            if record is not None and policy is not None and is_mended(record, policy):
                self.faults.append(fault._replace(remedies=tuple(remedies), verified=True))
                return
        self.faults.append(fault._replace(remedies=tuple(choices[0])))

    def train(self, policy: Policy) -> TrialRecord | None:
        """Train under a policy; None where it is refused, for example for a format that a matrix unit does not take."""
        try:
            return self.trial.train(
                policy,
                self.steps,
                recorder=FaultRecorder(self.reference_record.fault_recorder, frozenset(self.excused)),
            )
        except ValueError:
            return None

    @staticmethod
    def apply_remedies(policy: Policy, remedies: Sequence[Remedy]) -> Policy | None:
        """The policy with the remedies; None where a role cannot have such a value."""
        try:
            for remedy in remedies:
                policy = remedy.apply(policy)
        except ValueError:
            return None
        return policy

    def adopt(self, remedies: Iterable[Remedy]) -> None:
        """Take remedies into the policy, each once."""
        for remedy in remedies:
            if remedy not in self._adopted_remedies:
                self.policy, self._adopted_remedies[remedy] = remedy.apply(self.policy), None

    def is_widespread(self, remedy: Remedy) -> bool:
        """Whether so many places have the same remedy already that it is to be that of all."""
        alike = [each for each in self._adopted_remedies if (each.role, each.value) == (remedy.role, remedy.value)]
        return len(alike) >= MOST_PLACES

    def withdraw(self, kinds: Collection[str]) -> None:
        """Withdraw the remedies of faults of these kinds, outside of updates: the gradient is still wrong."""
        doubted = [fault for fault in self.faults if fault.kind in kinds and fault.phase != "update"]
        self.faults = [fault._replace(verified=False) if fault in doubted else fault for fault in self.faults]
        self.policy, self._adopted_remedies = self._initial_policy, {}
        self.adopt_verified()

    def adopt_verified(self) -> None:
        """Take all verified remedies into the policy."""
        self.adopt(each for fault in self.faults if fault.verified for each in fault.remedies)


def merge_remedies(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """The remedies, each once; those of one role for many places as one for all."""
    merged: dict[Remedy, None] = {}
    for role in dict.fromkeys(remedy.role for remedy in remedies):
        of_role = dict.fromkeys(remedy for remedy in remedies if remedy.role == role)
        merged |= of_role if len(of_role) <= MOST_PLACES else dict.fromkeys([next(iter(of_role)).for_all_paths()])
    return tuple(merged)


def keys_text(keys: Sequence[Key]) -> str:
    """The paths of keys in words."""
    paths = list(dict.fromkeys(key.path or key.operation for key in keys))
    return paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def percent_text(share: float) -> str:
    """Write a share in percent."""
    return f"{100 * share:.3g} %"


def use_scaled_cast(proposal: Remedy, policy: Policy) -> Remedy:
    """Turn the remedy of an operand's cast into one that keeps the format and scales by the largest magnitude."""
    if proposal.role not in CAST_ROLES.values():
        return proposal
    format = as_cast(getattr(policy.recipe(proposal.path), proposal.role)).format
    return proposal._replace(value=scaled(format, per_tensor())) if format.fits_float32 else proposal
