"""A training in progress: its steps, and the evaluation, checkpoints and stop decision between them.

In a training with checkpoints, Ctrl-C waits until a step is complete, so that nothing is lost. `EarlyStop` ends a
training when a monitored value has stopped improving.
"""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any, Self

from simfloat.arithmetic import Observer
from simfloat.common import check_count, warn
from simfloat.environment import in_usual_environment
from simfloat.optim.options import number_from_zero
from simfloat.options import flag
from simfloat.simulation import Simulation
from simfloat.simulation.switching import SwitchingRule
from simfloat.train.checkpoints import BATCHES_TAKEN, CHANGES, CONCLUDED, MANIFEST, Checkpoints, new_manifest
from simfloat.train.data import Batch, BatchSource
from simfloat.train.history import COLUMNS, History, ProgressBar
from simfloat.train.states import encode, has_state, part_states
from simfloat.train.step import TrainingStep, run_evaluation


class Interrupts:
    """A ``with`` block that delays the first Ctrl-C until interrupts are allowed; a second Ctrl-C is not delayed.

    `holds_back` is False to delay nothing. The block works only in the main thread, and only if the program has no
    signal handler of its own.
    """

    def __init__(self, holds_back: bool) -> None:
        self._holds_back = holds_back and current_thread() is main_thread()
        self._is_allowed = self._is_waiting = False

    def __enter__(self) -> Self:
        self._holds_back = self._holds_back and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._holds_back:
            signal.signal(signal.SIGINT, self._note_interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._holds_back:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None and self._is_waiting:
            raise KeyboardInterrupt

    @contextmanager
    def allow_interrupts(self) -> Iterator[None]:
        """A ``with`` block in which Ctrl-C interrupts; a delayed one interrupts at its beginning."""
        self._is_allowed = True
        try:
            if self._is_waiting:
                self._is_waiting = False
                raise KeyboardInterrupt
            yield
        finally:
            self._is_allowed = False

    def _note_interrupt(self, number: int, frame: FrameType | None) -> Any:
        if self._is_allowed or self._is_waiting:
            self._is_waiting = False
            raise KeyboardInterrupt
        self._is_waiting = True
        print("\nEnding after this step, with a checkpoint; Ctrl-C again ends at once.", file=sys.stderr, flush=True)


@in_usual_environment
class EarlyStop:
    """A stop condition for `fit`: it stops if `monitor` has not improved for `patience` evaluations or steps.

    If the training evaluates, nothing is monitored before the first evaluation. "loss" is then the loss that `evaluate`
    returns, if it returns one, and not the training loss. The decision depends only on the history, so a resumed
    training stops at the same step.

    Parameters:
        monitor: the name of a value from `evaluate`, or otherwise of a column of the history.
        patience: the number of evaluations or steps without improvement before the stop.
        min_delta: the smallest change that counts as an improvement, from 0.
        mode: "min" if smaller values are better, "max" if larger ones are.

    Raises:
        ValueError: if patience is not an integer above zero; if min_delta is negative; if mode is unknown.
        ValueError: during the training, if the history has no such value; from `fit` at once, if nothing is evaluated
            and the column is missing.

    Examples:
        >>> sf.train.EarlyStop("accuracy", patience=3, mode="max")
        EarlyStop('accuracy', 3, min_delta=0.0, mode='max')
    """

    def __init__(self, monitor: str = "loss", patience: int = 10, min_delta: float = 0.0, mode: str = "min") -> None:
        check_count("patience", patience)
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}.")
        if not isinstance(monitor, str):
            raise ValueError(f"monitor must be the name of a value, got {monitor!r}.")
        number_from_zero("min_delta", min_delta)
        self.monitor, self.patience, self.min_delta, self.mode = monitor, patience, min_delta, mode
        self._values: list[float] = []  # the monitored values
        self._seen, self._best, self._waited = 0, math.inf, 0

    def __call__(self, history: History) -> bool:
        """Return True if the training is to stop."""
        values = self._monitored_values(history)
        if values is not self._values:  # they belong to another history
            self._values, self._seen, self._best, self._waited = values, 0, math.inf, 0
        for value in values[self._seen :]:
            signed = value if self.mode == "min" else -value
            is_better = signed < self._best - self.min_delta
            self._best, self._waited = (signed, 0) if is_better else (self._best, self._waited + 1)
        self._seen = len(values)
        return self._waited >= self.patience

    def check_monitor(self, columns: Iterable[str]) -> None:
        """Raise ValueError unless the monitored name is among the columns of a history without evaluations."""
        names = list(columns)
        if self.monitor not in names:
            raise ValueError(
                f"EarlyStop monitors {self.monitor!r}; without evaluate, it can monitor {', '.join(names)}."
            )

    def _monitored_values(self, history: History) -> list[float]:
        """Return the monitored values; none before the first evaluation."""
        if history.is_evaluated and not history.evaluations:
            return []  # the names of the evaluated values are not known yet
        for columns in (history.evaluations, history):
            if self.monitor in columns:
                return columns[self.monitor]
        if not history.steps or not history.evaluations:
            return []
        names = [*(name for name in history.evaluations if name != "step"), *history]
        raise ValueError(f"EarlyStop monitors {self.monitor!r}, but the values are {', '.join(names)}.")

    def __repr__(self) -> str:
        return f"EarlyStop({self.monitor!r}, {self.patience}, min_delta={self.min_delta!r}, mode={self.mode!r})"


#: (number of steps made, columns of the latest step in the history), called after each step
Callback = Callable[[int, Mapping[str, Any]], Any]

#: The number of consecutive skipped steps after which a warning is issued.
WINDOW = 20


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The actions between steps; see `fit`. Raises ValueError for invalid counts, functions and schedules."""

    steps: int | None
    accumulation: int
    checkpoints: Checkpoints | None
    every: int
    schedule: Any
    switching: SwitchingRule | None
    evaluate: Callable[[Any], Any] | None
    evaluate_every: int
    stop: Callable[[History], bool] | None
    callbacks: tuple[Callback, ...] = ()

    def __post_init__(self) -> None:
        for name in ("every", "evaluate_every"):
            check_count(name, getattr(self, name))
        for verb in ("step", "state_dict", "load_state_dict"):
            if self.schedule is not None and not hasattr(self.schedule, verb):
                raise ValueError(f"schedule needs a method {verb}; {type(self.schedule).__name__} has none.")
        for name in ("evaluate", "stop", "switching"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ValueError(f"{name} must be a function, got a {type(function).__name__}.")
        for function in self.callbacks:
            if not callable(function):
                raise ValueError(f"callbacks must be functions (step, record), got a {type(function).__name__}.")

    def check_step(self, step: TrainingStep) -> None:
        """Raise ValueError for a schedule or a stop condition that would have no effect in a training of such steps."""
        if isinstance(self.schedule, step.schedules) and self.schedule.optimizer is not step.optimizer:
            raise ValueError("schedule belongs to another optimizer; create it with the optimizer of this training.")
        if isinstance(self.schedule, step.measure_schedules):
            raise ValueError(
                "fit passes no measure to its schedule, but ReduceLROnPlateau needs one at each step: write the loop "
                "yourself, or choose another schedule, such as CosineAnnealingLR."
            )
        if isinstance(self.stop, EarlyStop) and self.evaluate is None:
            self.stop.check_monitor((*COLUMNS, *step.metrics))


class Training:
    """A training: its parts by name, its history, and the number of batches taken."""

    def __init__(
        self, step: TrainingStep, simulation: Simulation, plan: TrainingPlan, batch_source: BatchSource
    ) -> None:
        self.step, self.simulation, self.plan, self.batch_source = step, simulation, plan, batch_source
        self.history, self.batches_taken = History(is_evaluated=plan.evaluate is not None), 0
        self.saved_steps = 0  # the number of steps in the latest checkpoint
        self.is_concluded = True  # True if all actions after the latest step are done
        self._has_short_step = False  # True if the latest step had too few batches, although there are more now
        self.manifest = new_manifest(step, plan.schedule, plan.switching, simulation)
        self.interrupts = Interrupts(plan.checkpoints is not None)
        parts = {
            **step.parts(simulation),
            "schedule": plan.schedule,
            "history": self.history,
            "observer": simulation.observer if has_state(simulation.observer) else None,
        }
        self.parts = {name: part for name, part in parts.items() if part is not None}

    def continue_from(self, batches_taken: int, is_concluded: bool) -> None:
        """Continue after `batches_taken` batches from the states of the parts."""
        self.batches_taken, self.is_concluded = batches_taken, is_concluded
        self.saved_steps = self.history.steps if is_concluded else -1
        changed = any(change["name"] == "accumulation" for change in self.manifest[CHANGES])
        self._has_short_step = batches_taken % self.plan.accumulation > 0 and not changed

    def run(self, bar: ProgressBar) -> None:
        """Make all steps."""
        if self.plan.checkpoints:
            for name, state in part_states(self.parts).items():
                encode(state, [], name)  # raises an error before any step if a state cannot be saved
        if self.plan.switching is not None:
            self.simulation.begin_following(self.plan.switching)
        with self.interrupts, bar:
            if not self.is_concluded:
                self._conclude_step()
            while group := self._next_batches():
                self._make_step(group, bar)
            if self.history.steps != self.saved_steps:
                self._save()

    def _next_batches(self) -> list[Batch]:
        """Return the batches of the next step; none if the training has ended."""
        with self._saving_on_error():
            group = [] if self._has_ended() else self.batch_source.take(self.plan.accumulation)
        if not group and not self.history.steps:
            raise ValueError("fit was given no batches: is the iterable a generator that was used before?")
        if group and self._has_short_step:
            self._has_short_step = False
            warn(
                f"The checkpoint ends with a step of fewer than accumulation={self.plan.accumulation} batches, because "
                "the batches ended there. A training that had more batches from the start would have other bits."
            )
        return group

    def _has_ended(self) -> bool:
        """True if no more steps are to be made."""
        plan, history = self.plan, self.history
        if plan.steps is not None and history.steps >= plan.steps:
            return True
        answer = plan.stop(history) if plan.stop else None
        if answer is None or isinstance(answer, int | list) and not answer:  # ``history["loss"] and ...`` before steps
            return False
        return flag("the result of stop", answer)

    def _make_step(self, group: list[Batch], bar: ProgressBar) -> None:
        """Make a step, and the actions that follow it."""
        row = self.step.make_step(group)
        self.history.add(row)
        self.batches_taken += len(group)
        self.is_concluded = False
        if isinstance(self.simulation.observer, Observer):
            self.simulation.observer.step(**row)
        if self.plan.schedule is not None:
            self.plan.schedule.step()
        if self.plan.callbacks:
            with self._saving_on_error():
                for callback in self.plan.callbacks:
                    callback(self.history.steps, dict(row))
        self._conclude_step()
        bar.advance(self.history.steps, row)

    def _conclude_step(self) -> None:
        """Evaluate after the latest step, switch the policy, warn, and write a checkpoint if it is due."""
        plan, steps = self.plan, self.history.steps
        if plan.evaluate and steps % plan.evaluate_every == 0:
            with self._saving_on_error():
                self.history.add_evaluation(
                    run_evaluation(self.step.model, plan.evaluate, self.step.aside(self.simulation))
                )
        if plan.switching is not None:
            self.step.switch(self.simulation, plan.switching, steps)
        self.is_concluded = True
        self._warn_of_skipped()
        if steps % plan.every == 0:
            self._save()

    def _warn_of_skipped(self) -> None:
        """Warn if all of the latest WINDOW steps were skipped."""
        steps, scaler = self.history.steps, self.step.scaler
        if scaler is None or steps % WINDOW or not all(self.history["skipped"][-WINDOW:]):
            return
        with self._saving_on_error():  # the warning may be an error
            warn(
                f"Each of the steps {steps - WINDOW + 1} to {steps} was skipped, since a gradient was not finite. The "
                f"loss scale is now {scaler.get_scale():g}. If history.not_finite lists these steps, the loss itself "
                "is infinite or NaN: check the data and the lr. Otherwise gradients overflow: begin with a smaller "
                "scale, or give the role activation_gradients a format with a larger range."
            )

    @contextmanager
    def _saving_on_error(self) -> Iterator[None]:
        """A ``with`` block for functions that do not change the training: on any error, the steps are saved first."""
        try:
            with self.interrupts.allow_interrupts():
                yield
        except BaseException as error:
            try:
                if self.history.steps != self.saved_steps:
                    self._save()
            except OSError as unwritten:
                error.add_note(f"The steps since the last checkpoint could not be written: {unwritten}")
            raise

    def _save(self) -> None:
        if self.plan.checkpoints:
            training_state = {
                BATCHES_TAKEN: self.batches_taken,
                CONCLUDED: self.is_concluded,
                MANIFEST: self.manifest_at(self.batches_taken),
            }
            self.plan.checkpoints.write(self.history.steps, {**part_states(self.parts), **training_state})
            self.saved_steps = self.history.steps

    def manifest_at(self, batches_taken: int) -> dict[str, Any]:
        """Return the manifest after `batches_taken` batches."""
        return self.manifest | {
            "batch_size": self.batch_source.batch_size,
            "data": self.batch_source.digests(batches_taken),
        }
