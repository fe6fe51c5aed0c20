"""What an experiment is: independent jobs, and what is found in their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from simfloat.policy import Policy

#: A job is a dictionary of plain values; so is its result. Both are written to disk.
Job = dict[str, Any]
Result = dict[str, Any]


class Options(NamedTuple):
    """What the user asked for."""

    tiny: bool = False
    seeds: int = 3
    policy: Policy | None = None  # one policy instead of the experiment's own list


class Finding(NamedTuple):
    """A claim, and what became of it."""

    claim: str
    expectation: str
    measured: str
    holds: bool

    @property
    def verdict(self) -> str:
        """In words."""
        return "reproduced" if self.holds else "not reproduced"


@dataclass(frozen=True)
class Experiment:
    """A question with its method: `jobs` are run in parallel, then `findings` and `figures` are made of the results."""

    name: str
    question: str
    jobs: Callable[[Options], list[Job]]
    run: Callable[[Job], Result]
    findings: Callable[[list[Result]], list[Finding]]
    metrics: Callable[[Result], list[dict[str, Any]]]  # rows of metrics.jsonl
    figures: Callable[[list[Result], Path], list[Path]]  # written below the folder
