"""What an experiment is: independent jobs, what is found in their results, and what a sweep may vary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.grid import Grid
from experiments.options import Options
from simfloat.policy import Policy
from simfloat.studies import Finding, Job, Result

#: Draws a picture into the file of that path.
Drawing = Callable[[Path], None]


@dataclass(frozen=True)
class Experiment:
    """A question with its method: `jobs` are run in any order, then `findings` and `figures` are made of the results.

    run is a function of a module, so that another process finds it by its name; a result depends on the job and on
    nothing else. Results are handed on in the order of the jobs.
    """

    name: str
    question: str
    jobs: Callable[[Options], list[Job]]
    run: Callable[[Job], Result]
    findings: Callable[[list[Result]], list[Finding]]
    metrics: Callable[[Result], list[dict[str, Any]]]  # rows of metrics.jsonl
    figures: Callable[[list[Result]], dict[str, Drawing]]  # by the name of the file
    figure_names: Callable[[Options], tuple[str, ...]]  # what `figures` will be called, known before any work
    check: Callable[[Policy], None]  # ValueError for a user's policy under which a job cannot run
    seeds: int  # how many decide the claims in a full run
    grid: Grid | None = None  # what a sweep may vary
