"""The result of a diagnosis: faults in their order, each with its remedies, and the policy with all verified ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from simfloat.policy import Policy
from simfloat.table import Table, table
from simfloat.telemetry.remedy import Remedy

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
