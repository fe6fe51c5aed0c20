"""Mending a policy fault by fault, by trainings under it, and the result of a diagnosis.

The result has the faults in their order, each with its remedies, and the policy with all verified ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from simfloat.analysis.diagnosis.trial import FaultRecorder, TrainingTrial, TrialRecord
from simfloat.arithmetic import per_tensor
from simfloat.arithmetic.casts import as_cast, scaled
from simfloat.common import Table, table
from simfloat.policy import Policy
from simfloat.telemetry.advice import CAST_ROLES, Remedy
from simfloat.telemetry.entries import Key

#: The kinds of faults that are single results, and of data.
NAN, INFINITY, NAN_IN_DATA = "NaN", "infinity", "NaN in data"
FIRST_KINDS = (NAN, INFINITY)


class Fault(NamedTuple):
    """Something that goes wrong: what, in which step (0 is the first), where, and why in words.

    `operands` tells of what a first NaN or infinity was made, such as ``"0 / 0"`` or ``"an overflow"``. `remedies` are
    overrides that mend it together, `verified` says whether running again with them showed that. `also` names another
    way, where one was tried and helps. A fault without remedies is not the policy's.
    """

    kind: str
    step: int
    phase: str
    path: str
    operation: str
    why: str
    operands: str = ""
    remedies: tuple[Remedy, ...] = ()
    verified: bool = False
    also: str = ""

    @property
    def role(self) -> str:
        """The role of the policy that is too narrow; empty where it is none."""
        return self.remedies[0].role if self.remedies else ""

    @property
    def cause(self) -> str:
        """The origin in words: an overflow, 0 / 0 with the results that underflowed, data, or the kind of the fault."""
        if self.kind in FIRST_KINDS:
            return self.why
        return "data" if self.kind == NAN_IN_DATA else self.kind

    @property
    def override(self) -> str:
        """The calls that mend it, as text."""
        return "".join(
            f"{'' if number else 'policy'}{str(each)[len('policy') :]}" for number, each in enumerate(self.remedies)
        )


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What `diagnose` found. `faults` stand in the order in which they occur, the first one first.

    `policy` is the policy with all verified remedies. `losses` has the loss of each step of three trainings of the same
    steps: ``"policy"``, as it was given, ``"mended"``, and ``"reference"``. `skipped` counts the steps under the policy
    that a loss scale skipped. Iterating yields the faults.
    """

    faults: tuple[Fault, ...]
    policy: Policy
    losses: Mapping[str, Sequence[float]]
    skipped: int = 0

    def __iter__(self) -> Iterator[Fault]:
        """The faults in their order."""
        return iter(self.faults)

    @property
    def first(self) -> Fault | None:
        """What goes wrong first; None if nothing does."""
        return self.faults[0] if self.faults else None

    def table(self) -> Table:
        """A row for each fault."""
        rows: list[tuple[str, ...]] = [("fault", "step", "phase", "path", "operation", "why", "override", "verified")]
        for fault in self.faults:
            why = fault.why + (f"; or: {fault.also}" if fault.also else "")
            done = ("yes" if fault.verified else "no") if fault.remedies else "-"
            rows.append(
                (fault.kind, str(fault.step), fault.phase or "-", fault.path or "-", fault.operation or "-", why,
                 fault.override or "-", done)
            )  # fmt: skip
        return table(rows)

    def __repr__(self) -> str:
        return f"{self.table()}\n{self._ending}" if self.faults else self._ending

    def _repr_html_(self) -> str:
        ending = f"<p>{escape(self._ending)}</p>"
        return self.table()._repr_html_() + ending if self.faults else ending

    @property
    def _ending(self) -> str:
        """How the trainings ended, in a sentence."""
        steps = len(self.losses["mended"])
        ends = ", ".join(f"{name} {losses[-1]:.4g}" for name, losses in self.losses.items() if losses)
        if not ends:
            return "No batch is left to train with."
        begin = "Nothing goes wrong" if not self.faults else "With all verified remedies"
        skipped_text = (
            f" The loss scale skipped {self.skipped} of {len(self.losses['policy'])} steps." if self.skipped else ""
        )
        return f"{begin} in {steps} step{'' if steps == 1 else 's'}.{skipped_text} Losses of the last step: {ends}."


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
