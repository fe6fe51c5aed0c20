"""A training under way: steps, and between them evaluations, checkpoints and the question whether to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from simfloat.arithmetic import Observer
from simfloat.nn import Module
from simfloat.simulation import Simulation
from simfloat.simulation.switching import SwitchingRule
from simfloat.train.aside import evaluated
from simfloat.train.checkpoints import Checkpoints
from simfloat.train.history import COLUMNS, History
from simfloat.train.parts import restore, states_of
from simfloat.train.progress import Bar
from simfloat.train.step import Batch, TrainingStep

#: Under this name a checkpoint tells how many batches were taken.
TAKEN = "batches"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What happens between steps, and when; see `fit`."""

    steps: int | None
    accumulation: int
    checkpoints: Checkpoints | None
    every: int
    schedule: Any
    switching: SwitchingRule | None
    evaluate: Callable[[Module], Any] | None
    evaluate_every: int
    stop: Callable[[History], bool] | None


class Run:
    """A training: what takes part in it by name, its history, and how many batches it has taken."""

    def __init__(self, step: TrainingStep, simulation: Simulation, plan: Plan) -> None:
        self.step, self.simulation, self.plan = step, simulation, plan
        self.history, self.taken = History(), 0
        self.kept = 0  # steps that the latest checkpoint holds
        parts = {
            "model": step.model,
            "optimizer": step.optimizer,
            "scaler": step.scaler,
            "schedule": plan.schedule,
            "simulation": simulation,
            "history": self.history,
        }
        self.parts = {name: part for name, part in parts.items() if part is not None}

    def resume(self, checkpoints: Checkpoints) -> None:
        """Go on from the newest checkpoint that is whole; from the start if there is none.

        Raises ValueError, and restores nothing, if it is that of a training with other parts.
        """
        found = checkpoints.read()
        if found is None:
            return
        path, states = found
        unused = [name for name in states if name not in self.parts and name != TAKEN]
        if unused:
            raise ValueError(f"{path} is of a training with a {unused[0]}, and fit was given none.")
        columns = [*COLUMNS, *self.step.metrics]
        if "history" in states and (before := list(states["history"]["steps"])) != columns:
            raise ValueError(f"{path} has the columns {before}, not {columns}; give the same metrics.")
        restore(path, states, self.parts)
        self.taken, self.kept = states[TAKEN], self.history.steps

    def go(self, given: Iterable[Batch], bar: Bar) -> None:
        """Make all steps."""
        history, remaining = self.history, self._remaining(given)
        while not self._has_ended():
            batches = enumerate(islice(remaining, self.plan.accumulation), self.taken)
            group = [_checked(batch, number) for number, batch in batches]
            if not group and not history.steps:
                raise ValueError("fit was given no batches: is the iterable a generator that was used before?")
            if not group:
                break
            row = self.step.take(group)
            history.add(row)
            if isinstance(self.simulation.observer, Observer):
                self.simulation.observer.step(**row)
            self.taken += len(group)
            self._between()
            bar.advance(history.steps, row)
        if history.steps != self.kept:
            self._save()

    def _has_ended(self) -> bool:
        """Whether no more steps are to be made."""
        plan, history = self.plan, self.history
        return plan.steps is not None and history.steps >= plan.steps or bool(plan.stop and plan.stop(history))

    def _between(self) -> None:
        """What happens after a step."""
        plan, steps = self.plan, self.history.steps
        if plan.schedule is not None:
            plan.schedule.step()
        if plan.evaluate and steps % plan.evaluate_every == 0:
            self.history.add_evaluation(evaluated(self.step.model, plan.evaluate, self.simulation))
        if plan.switching is not None:
            self.simulation.follow(plan.switching, steps)
        if steps % plan.every == 0:
            self._save()

    def _save(self) -> None:
        if self.plan.checkpoints:
            self.plan.checkpoints.write(self.history.steps, {**states_of(self.parts), TAKEN: self.taken})
            self.kept = self.history.steps

    def _remaining(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches that were not taken yet."""
        remaining = iter(batches)
        skipped = sum(1 for _ in islice(remaining, self.taken))
        if skipped < self.taken:
            raise ValueError(
                f"{self.taken} batches were taken before the checkpoint; the iterable gives {skipped}. It must begin "
                "where it began then."
            )
        return remaining


def _checked(batch: Any, number: int) -> Batch:
    """The batch; ValueError unless it is a pair."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        length = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(f"Batch {number} must be a pair (x, y), got a {type(batch).__name__}{length}.")
    return batch[0], batch[1]
