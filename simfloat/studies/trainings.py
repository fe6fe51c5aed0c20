"""The trainings of a search: each policy with each seed once, kept on disk, on this machine or many."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from simfloat.checks import file_path
from simfloat.policy import Policy
from simfloat.studies.executors import Executor, Job, Result
from simfloat.studies.references import function_digest, home_of, name_of, resolved
from simfloat.studies.report_page import SEARCH
from simfloat.studies.search_parts import watched
from simfloat.studies.sweeping import executor_for
from simfloat.studies.workspace import Study, Workspace, run_jobs

#: The folder of finished trainings: these stay, so that none is made twice.
SEARCH_HIDDEN = ".simfloat-search"

Train = Callable[[Policy, int], Any]

#: A policy, and the seed with which it is to train.
Asked = tuple[Policy, int]


class Trainings:
    """Losses of ``train(policy, seed)``, as a ``with`` block that has the folder to itself; each is computed once.

    Requested trainings are counted, including those that the folder had already.
    """

    def __init__(
        self,
        train: Train,
        folder: str | Path | None,
        workers: int | None,
        scheduler: str | None,
        targets: Sequence[str],
    ) -> None:
        self.train, self.made = train, 0
        self._digest = "" if folder is None else function_digest(train)
        self._executor: Executor = executor_for(train, workers, scheduler, train_as_sent)
        self.workspace = None
        if folder is not None:
            study = Study(SEARCH, name_of(train))
            self.workspace = Workspace(file_path(folder), home_of(train), tuple(targets), SEARCH_HIDDEN, study)
            self.workspace.takes = _is_trained
        self._known: dict[str, Result] = {}
        self._watched: Asked | None = None
        self._held = ExitStack()

    def __enter__(self) -> Trainings:
        if self.workspace is not None:
            self._held.enter_context(self.workspace)
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.close()

    def watch(self, asked: Asked) -> list[list[str]]:
        """The places, paths and operations, that this training meets."""
        self._watched = asked
        (result,) = self.results([asked])
        return result.get("places", [])

    def results(self, asked: Sequence[Asked]) -> list[Result]:
        """Return the results, each with its `loss`; a refused one has an infinite loss, and the reason as `refused`."""
        jobs = [self._job(each) for each in asked]
        keys = [json.dumps(job, sort_keys=True) for job in jobs]
        new = {key: job for key, job in zip(keys, jobs, strict=True) if key not in self._known}
        self._known.update(zip(new, self._computed(list(new.values())), strict=True))
        self.made += len(new)
        return [self._known[key] for key in keys]

    def _job(self, asked: Asked) -> Job:
        policy, seed = asked
        job = {"label": f"{name_of(self.train)}({policy.name or 'a policy'})", "code": self._digest, "seed": seed}
        return {**job, "policy": policy.to_dict(), "watch": asked == self._watched}

    def _computed(self, jobs: list[Job]) -> list[Result]:
        if self.workspace is not None:
            return run_jobs(self._run, jobs, self.workspace, self._executor, lambda done, jobs: None)
        with closing(self._executor(self._run, jobs)) as finished:
            results = dict(finished)
        return [results[place] for place in range(len(jobs))]

    def _run(self, job: Job) -> Result:
        return trained(self.train, job)


def train_as_sent(job: Job) -> Result:
    """Run a training, in a process that the function was sent to."""
    return trained(resolved(job["function"]), job)


def trained(train: Train, job: Job) -> Result:
    """Run a training and return its loss; for a policy that the training refuses, the message of the ValueError."""
    policy, notes = watched(Policy.from_dict(job["policy"]), job["watch"])
    try:
        loss = _as_loss(train(policy, job["seed"]))
    except ValueError as error:
        return {"loss": math.inf, "refused": str(error)}
    places = {"places": [list(place) for place in notes]} if job["watch"] else {}
    return {"loss": math.inf if math.isnan(loss) else loss, **places}


def _is_trained(result: Result) -> bool:
    """Whether a result that was kept is one of a training."""
    return isinstance(result.get("loss"), float) and isinstance(result.get("places", []), list)


def _as_loss(found: Any) -> float:
    """The number that a training returned. Raises ValueError for what is none."""
    try:
        return float(found)
    except TypeError:
        raise ValueError(f"train returns its loss, a number; got a {type(found).__name__}.") from None
