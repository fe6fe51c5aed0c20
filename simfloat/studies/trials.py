"""The trainings of a search: each policy with each seed once, stored on disk, on one computer or several.

Each policy is trained with as many seeds as are needed to decide if its loss is within the share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simfloat.common import file_path
from simfloat.policy import Policy
from simfloat.studies.executors import Executor, Job, Result
from simfloat.studies.report import SEARCH, function_digest, function_name, home_module, resolve_function
from simfloat.studies.search_parts import (
    DIVERGED,
    FAR,
    INSIDE,
    OPEN,
    OUTSIDE,
    REFUSED,
    Confirmation,
    SearchPoint,
    watch_policy,
)
from simfloat.studies.statistics import CONFIDENCE, mean_and_error, mean_interval
from simfloat.studies.sweeping import choose_executor
from simfloat.studies.verdicts import exponential
from simfloat.studies.workspace import Study, Workspace, run_jobs

#: The folder of finished trainings; it is not removed, so that no training is repeated.
SEARCH_HIDDEN = ".simfloat-search"

Train = Callable[[Policy, int], Any]

#: A policy and the seed of its training.
TrainingRequest = tuple[Policy, int]


class Trainings:
    """The losses of ``train(policy, seed)``, each computed once, as a ``with`` block that locks the folder.

    `count` is the number of requested trainings, including those that the folder already contained.
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
        """Run a training and return the paths and operations that occur in it."""
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
    """Run a training in a process that received the function."""
    return run_training(resolve_function(job["function"]), job)


def run_training(train: Train, job: Job) -> Result:
    """Run a training and return its loss, or the message of its ValueError if it refuses the policy."""
    policy, notes = watch_policy(Policy.from_dict(job["policy"]), job["watch"])
    try:
        loss = _as_loss(train(policy, job["seed"]))
    except ValueError as error:
        return {"loss": math.inf, "refused": str(error)}
    places = {"places": [list(place) for place in notes]} if job["watch"] else {}
    return {"loss": math.inf if math.isnan(loss) else loss, **places}


def _is_training_result(result: Result) -> bool:
    """True if a stored result belongs to a training."""
    return isinstance(result.get("loss"), float) and isinstance(result.get("places", []), list)


def _as_loss(value: Any) -> float:
    """Return the loss of a training as a float; raise ValueError if it is not a number."""
    try:
        return float(value)
    except TypeError:
        raise ValueError(f"train must return its loss, a number; got a {type(value).__name__}.") from None


#: A loss is far from the reference if its distance is this multiple of the allowed one; one seed is then enough.
FAR_TIMES = 5

#: The numbers of fresh seeds in a confirmation, as multiples of the search's seeds, tried until the interval decides.
CONFIRMATION_ROUNDS = (1, 2, 4)

#: The predicted half-width of a confirmation's interval, relative to the half-width with all seeds: four times as many
#: seeds halve it.
CONFIRMATION_REACH = 0.5

#: Slack of the limit, so that the last bits of a mean at the limit do not decide.
LIMIT_SLACK = 1e-12


@dataclass
class Trial:
    """A policy that is tried: the logarithms of its ratios, seed by seed, and the outcome."""

    label: str
    policy: Policy
    samples: list[float] = field(default_factory=list)
    outcome: str | None = None
    refused: str = ""  # the message if the policy is impossible for the training

    @property
    def mean(self) -> float:
        """The mean logarithm of the ratios."""
        return mean_and_error(np.array(self.samples))[0]

    @property
    def is_inside(self) -> bool:
        """True if the loss is within the share, judged by the seeds so far."""
        return self.outcome == INSIDE

    def point(self, cost: float) -> SearchPoint:
        """Return the point of the search for this trial."""
        interval = mean_interval(np.array(self.samples))
        ratios = exponential(self.mean), exponential(interval.low), exponential(interval.high)
        return SearchPoint(self.label, self.policy, cost, *ratios, len(self.samples), str(self.outcome), self.refused)


class PairedTrials:
    """Trials of policies with paired seeds, which decide if a loss is within the share of the reference."""

    def __init__(self, trainings: Trainings, reference: Policy, within: float, seeds: list[int]) -> None:
        self.trainings, self.reference, self.seeds = trainings, reference, seeds
        self.within, self.limit = within, math.log1p(within) + LIMIT_SLACK
        self._fresh_seeds_used = 0  # fresh seeds that confirmations have used
        self._attempts = 0

    def check_reference(self) -> None:
        """Raise ValueError if the reference does not train with the first seed."""
        (result,) = self.trainings.results([(self.reference, self.seeds[0])])
        if not math.isfinite(result["loss"]):
            raise ValueError(f"The reference does not train: {result.get('refused', 'its loss is not finite.')}")

    def decide(self, trials: Sequence[Trial]) -> None:
        """Determine the outcome of every trial, with as many seeds as it needs."""
        for count in range(1, len(self.seeds) + 1):
            undecided = [trial for trial in trials if trial.outcome is None]
            requests = [(trial.policy, self.seeds[count - 1]) for trial in undecided]
            samples, results = self.ratios(requests), self.trainings.results(requests)
            for trial, sample, result in zip(undecided, samples, results, strict=True):
                trial.samples.append(sample)
                trial.refused = result.get("refused", "")
                trial.outcome = REFUSED if "refused" in result else self._outcome(trial, count)

    def _outcome(self, trial: Trial, count: int) -> str | None:
        """Return the outcome of a trial with `count` seeds; None if it needs more."""
        if trial.mean == math.inf:
            return DIVERGED
        if count == 1:
            return FAR if trial.mean > FAR_TIMES * self.limit else None
        interval = mean_interval(np.array(trial.samples))
        if interval.high <= self.limit:
            return INSIDE
        if interval.low > self.limit:
            return OUTSIDE
        if count < len(self.seeds):
            return None
        return INSIDE if trial.mean + CONFIRMATION_REACH * (interval.high - trial.mean) <= self.limit else OPEN

    def ratios(self, requests: Sequence[tuple[Policy, int]]) -> list[float]:
        """Return the logarithm of each loss divided by the reference's loss with the same seed."""
        results = self.trainings.results([*requests, *((self.reference, seed) for _, seed in requests)])
        losses = [result["loss"] for result in results]
        if wrong := [loss for loss in losses if not loss > 0]:
            raise ValueError(f"train must return positive losses, which ratios compare; got {wrong[0]!r}.")
        policy_losses, reference = losses[: len(requests)], losses[len(requests) :]
        if math.inf in reference:
            raise ValueError("The reference diverged with one of the seeds: nothing can be compared with it.")
        return [
            math.log(loss) - math.log(reference_loss) if loss < math.inf else math.inf
            for loss, reference_loss in zip(policy_losses, reference, strict=True)
        ]

    def confirm(self, policy: Policy) -> Confirmation | None:
        """Return the policy's ratio on fresh seeds if its interval is within the share, otherwise None.

        The joint error probability of all attempts and rounds is 5 %; attempt n has the share 1 / (n (n + 1)) of it.
        """
        self._attempts += 1
        share = 1 / (self._attempts * (self._attempts + 1) * len(CONFIRMATION_ROUNDS))
        fresh, level = self._next_fresh_seeds(CONFIRMATION_ROUNDS[-1] * len(self.seeds)), 1 - (1 - CONFIDENCE) * share
        for times in CONFIRMATION_ROUNDS:
            seeds_used = fresh[: times * len(self.seeds)]
            samples = self.ratios([(policy, seed) for seed in seeds_used])
            interval = mean_interval(np.array(samples), level)
            if interval.high <= self.limit or interval.low > self.limit:
                break
        self._fresh_seeds_used += len(seeds_used)
        if interval.high > self.limit:
            return None
        ratios = (
            exponential(mean_and_error(np.array(samples))[0]),
            exponential(interval.low),
            exponential(interval.high),
        )
        return Confirmation(*ratios, tuple(seeds_used))

    def confirm_reference(self) -> Confirmation:
        """Return the confirmation of the reference by itself, without a training."""
        return Confirmation(1.0, 1.0, 1.0, tuple(self._next_fresh_seeds(len(self.seeds))))

    def _next_fresh_seeds(self, count: int) -> list[int]:
        """Return the next `count` unused seeds."""
        first = max(self.seeds) + 1 + self._fresh_seeds_used
        return list(range(first, first + count))
