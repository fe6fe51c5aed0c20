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
from simfloat.studies.references import function_digest, function_name, home_module, resolve_function
from simfloat.studies.report_page import SEARCH
from simfloat.studies.search_parts import watch_policy
from simfloat.studies.sweeping import choose_executor
from simfloat.studies.workspace import Study, Workspace, run_jobs

#: The folder of finished trainings: these stay, so that none is made twice.
SEARCH_HIDDEN = ".simfloat-search"

Train = Callable[[Policy, int], Any]

#: A policy, and the seed with which it is to train.
TrainingRequest = tuple[Policy, int]


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
        self.train, self.count = train, 0
        self._digest = "" if folder is None else function_digest(train)
        self._executor: Executor = choose_executor(train, workers, scheduler, run_sent_training)
        self.workspace = None
        if folder is not None:
            study = Study(SEARCH, function_name(train))
            self.workspace = Workspace(file_path(folder), home_module(train), tuple(targets), SEARCH_HIDDEN, study)
            self.workspace.accepts = _is_training_result
        self._results_by_job: dict[str, Result] = {}
        self._watched_request: TrainingRequest | None = None
        self._exit_stack = ExitStack()

    def __enter__(self) -> Trainings:
        if self.workspace is not None:
            self._exit_stack.enter_context(self.workspace)
        return self

    def __exit__(self, *error: Any) -> None:
        self._exit_stack.close()

    def watch(self, request: TrainingRequest) -> list[list[str]]:
        """The places, paths and operations, that this training meets."""
        self._watched_request = request
        (result,) = self.results([request])
        return result.get("places", [])

    def results(self, requests: Sequence[TrainingRequest]) -> list[Result]:
        """Return the results, each with its `loss`; a refused one has an infinite loss, and the reason as `refused`."""
        jobs = [self._job(each) for each in requests]
        keys = [json.dumps(job, sort_keys=True) for job in jobs]
        new = {key: job for key, job in zip(keys, jobs, strict=True) if key not in self._results_by_job}
        self._results_by_job.update(zip(new, self._compute(list(new.values())), strict=True))
        self.count += len(new)
        return [self._results_by_job[key] for key in keys]

    def _job(self, request: TrainingRequest) -> Job:
        policy, seed = request
        job = {"label": f"{function_name(self.train)}({policy.name or 'a policy'})", "code": self._digest, "seed": seed}
        return {**job, "policy": policy.to_dict(), "watch": request == self._watched_request}

    def _compute(self, jobs: list[Job]) -> list[Result]:
        if self.workspace is not None:
            return run_jobs(self._run, jobs, self.workspace, self._executor, lambda done, jobs: None)
        with closing(self._executor(self._run, jobs)) as finished:
            results = dict(finished)
        return [results[place] for place in range(len(jobs))]

    def _run(self, job: Job) -> Result:
        return run_training(self.train, job)


def run_sent_training(job: Job) -> Result:
    """Run a training, in a process that the function was sent to."""
    return run_training(resolve_function(job["function"]), job)


def run_training(train: Train, job: Job) -> Result:
    """Run a training and return its loss; for a policy that the training refuses, the message of the ValueError."""
    policy, notes = watch_policy(Policy.from_dict(job["policy"]), job["watch"])
    try:
        loss = _as_loss(train(policy, job["seed"]))
    except ValueError as error:
        return {"loss": math.inf, "refused": str(error)}
    places = {"places": [list(place) for place in notes]} if job["watch"] else {}
    return {"loss": math.inf if math.isnan(loss) else loss, **places}


def _is_training_result(result: Result) -> bool:
    """Whether a result that was kept is one of a training."""
    return isinstance(result.get("loss"), float) and isinstance(result.get("places", []), list)


def _as_loss(value: Any) -> float:
    """The number that a training returned. Raises ValueError for what is none."""
    try:
        return float(value)
    except TypeError:
        raise ValueError(f"train returns its loss, a number; got a {type(value).__name__}.") from None
