"""Fix a policy fault by fault, with trainings under it, and store the result of a diagnosis.

The result contains the faults in their order, each with its remedies, and the policy with all verified remedies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from simfloat.analysis.diagnosis.changes import IN_THE_PROGRAM, Change, changes_of
from simfloat.analysis.diagnosis.trial import FaultRecorder, TrainingTrial, TrialRecord
from simfloat.arithmetic import per_tensor
from simfloat.arithmetic.casts import as_cast, scaled
from simfloat.common import Table, table
from simfloat.policy import Policy
from simfloat.telemetry.advice import CAST_ROLES, Remedy
from simfloat.telemetry.entries import Key

#: The kinds of faults of single results, and of data.
NAN, INFINITY, NAN_IN_DATA = "NaN", "infinity", "NaN in data"
FIRST_KINDS = (NAN, INFINITY)


class Fault(NamedTuple):
    """A fault of a training: its kind, its step (0 is the first), its place, and the reason in words.

    `operands` describes the operands of a first NaN or infinity, such as ``"0 / 0"`` or ``"an overflow"``. `remedies`
    are the overrides that together fix the fault, or the changes of a program with its own dtypes; `verified` is True
    if a training with them has shown that. `also`
    names an alternative that was tried and helps. A fault without remedies is not a fault of the policy.
    """

    kind: str
    step: int
    phase: str
    path: str
    operation: str
    why: str
    operands: str = ""
    remedies: tuple[Remedy | Change, ...] = ()
    verified: bool = False
    also: str = ""

    @property
    def role(self) -> str:
        """The role of the policy that is too narrow; empty if the fault has no remedies."""
        return self.remedies[0].role if self.remedies else ""

    @property
    def cause(self) -> str:
        """The origin in words: an overflow, 0 / 0 with the results that underflowed, data, or the kind of the fault."""
        if self.kind in FIRST_KINDS:
            return self.why
        return "data" if self.kind == NAN_IN_DATA else self.kind

    @property
    def override(self) -> str:
        """The calls of `Policy.override`, or the changes of a program with its own dtypes, that fix the fault."""
        calls = "".join(str(each).removeprefix("policy") for each in self.remedies if isinstance(each, Remedy))
        changes = ", and ".join(str(each) for each in self.remedies if isinstance(each, Change))
        parts = [f"policy{calls}"] * bool(calls) + [f"{IN_THE_PROGRAM}{changes}"] * bool(changes)
        return "; ".join(parts)


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The result of `diagnose`. Iterating over it yields the faults.

    Parameters:
        faults: the faults, in the order in which they occur.
        policy: the policy with all verified overrides.
        losses: the loss of each step of three trainings on the same batches: ``"policy"`` (as given; it stops at its
            first NaN or infinity), ``"mended"`` (with all verified remedies) and ``"reference"``.
        skipped: the number of steps under the policy that the loss scale skipped.
    """

    faults: tuple[Fault, ...]
    policy: Policy
    losses: Mapping[str, Sequence[float]]
    skipped: int = 0

    def __iter__(self) -> Iterator[Fault]:
        """Return an iterator over the faults in their order."""
        return iter(self.faults)

    @property
    def first(self) -> Fault | None:
        """The first fault; None if there is none."""
        return self.faults[0] if self.faults else None

    def table(self) -> Table:
        """Return a table with a row for each fault."""
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
        """A sentence with the losses at the end of the trainings."""
        steps = len(self.losses["mended"])
        ends = ", ".join(f"{name} {losses[-1]:.4g}" for name, losses in self.losses.items() if losses)
        if not ends:
            return "No batch is left to train with."
        begin = "Nothing goes wrong" if not self.faults else "With all verified remedies"
        skipped_text = (
            f" The loss scale skipped {self.skipped} of {len(self.losses['policy'])} steps." if self.skipped else ""
        )
        return f"{begin} in {steps} step{'' if steps == 1 else 's'}.{skipped_text} Losses of the last step: {ends}."


#: If more places than this need the same role, it is overridden everywhere.
MOST_PLACES = 3

#: A function that returns True if a training under a policy shows that a fault is fixed.
IsMended = Callable[[TrialRecord, Policy], bool]


class PolicyRepair:
    """A policy under repair, with trainings of equal length under it and under the reference.

    `policy` has the remedies that were adopted so far, and `faults` the faults that were found.
    """

    def __init__(self, trial: TrainingTrial, policy: Policy, reference: Policy, steps: int) -> None:
        self.trial, self.policy, self.reference = trial, policy, reference
        self._initial_policy = policy
        self.faults: list[Fault] = []
        self._adopted_remedies: dict[Remedy | Change, None] = {}
        self.excused: set[Key] = set()  # places at which infinities do no harm
        self.reference_record = trial.train(reference, steps)
        # The step in which the reference diverges is not compared.
        self.steps = len(self.reference_record.losses) - int(self.reference_record.has_diverged)
        self.policy_record = trial.train(
            policy, max(self.steps, 1), recorder=FaultRecorder(self.reference_record.fault_recorder)
        )

    def attempt(self, fault: Fault, choices: Sequence[Sequence[Remedy | Change]], is_mended: IsMended) -> None:
        """Note the fault with the first of these remedies that fixes it, verified by training again.

        If none does, the fault has the first choice of remedies, unverified.
        """
        for remedies in choices:
            policy = self.apply_remedies(self.policy, remedies)
            record = None if policy is None else self.train(policy)
            if record is not None and policy is not None and is_mended(record, policy):
                self.faults.append(fault._replace(remedies=tuple(remedies), verified=True))
                return
        self.faults.append(fault._replace(remedies=tuple(choices[0])))

    def train(self, policy: Policy) -> TrialRecord | None:
        """Train under a policy; return None if it cannot run.

        For example, a matrix unit does not accept a format, or a changed program mixes dtypes.
        """
        try:
            return self.trial.train(
                policy,
                self.steps,
                recorder=FaultRecorder(self.reference_record.fault_recorder, frozenset(self.excused)),
            )
        except ValueError:
            return None
        except RuntimeError:
            if not changes_of(policy):
                raise
            return None

    @staticmethod
    def apply_remedies(policy: Policy, remedies: Sequence[Remedy | Change]) -> Policy | None:
        """Return the policy with the remedies; None if a role cannot have such a value."""
        try:
            for remedy in remedies:
                policy = remedy.apply(policy)
        except ValueError:
            return None
        return policy

    def adopt(self, remedies: Iterable[Remedy | Change]) -> None:
        """Add remedies to the policy, each once."""
        for remedy in remedies:
            if remedy not in self._adopted_remedies:
                self.policy, self._adopted_remedies[remedy] = remedy.apply(self.policy), None

    def is_widespread(self, remedy: Remedy | Change) -> bool:
        """True if enough places have the same remedy already for it to apply to all places."""
        alike = [each for each in self._adopted_remedies if (each.role, each.value) == (remedy.role, remedy.value)]
        return len(alike) >= MOST_PLACES

    def withdraw(self, kinds: Collection[str]) -> None:
        """Withdraw the remedies of faults of these kinds, outside of updates, because the gradient is still wrong."""
        doubted = [fault for fault in self.faults if fault.kind in kinds and fault.phase != "update"]
        self.faults = [fault._replace(verified=False) if fault in doubted else fault for fault in self.faults]
        self.policy, self._adopted_remedies = self._initial_policy, {}
        self.adopt_verified()

    def withdraw_since(self, step: int) -> None:
        """Withdraw the remedies of NaN and infinities in this step and later ones, because the step still has some."""
        self.faults = [
            fault._replace(verified=False) if fault.kind in FIRST_KINDS and fault.step >= step else fault
            for fault in self.faults
        ]
        self.policy, self._adopted_remedies = self._initial_policy, {}
        self.adopt_verified()

    def adopt_verified(self) -> None:
        """Add all verified remedies to the policy."""
        self.adopt(each for fault in self.faults if fault.verified for each in fault.remedies)


def merge_remedies(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Return the remedies, each once; many remedies of one role become one remedy for all places."""
    merged: dict[Remedy, None] = {}
    for role in dict.fromkeys(remedy.role for remedy in remedies):
        of_role = dict.fromkeys(remedy for remedy in remedies if remedy.role == role)
        merged |= of_role if len(of_role) <= MOST_PLACES else dict.fromkeys([next(iter(of_role)).for_all_paths()])
    return tuple(merged)


def keys_text(keys: Sequence[Key]) -> str:
    """Return the paths of keys in words."""
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
