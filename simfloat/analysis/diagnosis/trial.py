"""A recorder that keeps the first NaN or infinite result that the training under the reference does not make.

Trainings that are tried on copies: steps under a policy, gradients at some weights, a step without a gradient.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.analysis.attribution.measure import results_behind_loss
from simfloat.arithmetic.machines import on_cpu
from simfloat.autodiff import Tensor
from simfloat.kernels.rounding.events import INFINITE, NAN, OVERFLOW
from simfloat.nn import Module
from simfloat.optim import LossScale, Optimizer, StaticLossScale
from simfloat.policy import Policy
from simfloat.simulation import Simulation
from simfloat.simulation.context import changed_context
from simfloat.telemetry import Recorder
from simfloat.telemetry.advice import POLES, Entries, FirstNaN
from simfloat.telemetry.entries import (
    Key,
    cause_of_nan,
    count_overflowed_sums,
    count_sums_beyond_fp32,
    count_zeros,
    counts_by_name,
)

#: What made an infinite result, in words as those of the causes of NaN.
OVERFLOWED, OVERFLOWED_SUM, DIVIDED = "an overflow", "an overflow inside a sum", "a division by 0"
LOGARITHM = "log(0)"
INHERITED = "an infinite operand, in data, masks or parameters"

#: Operations that divide.
DIVISIONS = ("divide", "reciprocal", "rsqrt")

#: What is counted of an operation at a place in a step: infinite results, and NaN.
NonFiniteCounts = tuple[int, int]


class FaultRecorder(Recorder):
    """Counts as a Recorder, and keeps the first NaN or infinity.

    `first` names that result, and `entries_at_first` holds the counts until then. If a loss scale skips the step, both
    move to `skipped`. With the recorder of another training as `reference`, a result counts only if the operation makes
    more infinite results, or more NaN, at its place in the step than it made under the reference. Infinities whose keys
    are in `excused` do not count.
    """

    def __init__(self, reference: FaultRecorder | None = None, excused: Collection[Key] = ()) -> None:
        super().__init__()
        self._reference, self._excused = reference, excused
        self._non_finite_counts: dict[tuple[int, Key], NonFiniteCounts] = {}
        self.first: FirstNaN | None = None
        self.entries_at_first: Entries = []
        self.skipped: list[tuple[FirstNaN, Entries]] = []
        self._was_infinite = False  # a result, of operands that no rounding made

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call."""
        nan, infinite, step, key = (
            int(events[NAN]),
            int(events[INFINITE]),
            self._series.steps,
            Key(path, operation, phase),
        )
        cause = cause_of_nan(events) if nan else ""
        super().observe(events, operation, path, phase)
        if not nan and not infinite:
            return
        before = self._non_finite_counts.get((step, key), (0, 0))
        infinite, nan = counts = before[0] + infinite, before[1] + nan
        self._non_finite_counts[step, key] = counts
        if self.first is not None:
            return
        reference_counts = (0, 0) if self._reference is None else self._reference.count_non_finite(step, key)
        if nan <= reference_counts[1] and (infinite <= reference_counts[0] or key in self._excused):
            self._was_infinite |= key in self._excused or self._reference is None and infinite > 0
            return
        if nan <= reference_counts[1]:
            cause = _cause_of_infinity(events, operation, self._was_infinite)
        self._was_infinite |= infinite > reference_counts[0]
        if cause:
            self.first = FirstNaN(step, path, operation, phase, cause)
            self.entries_at_first = self.entries()

    def count_non_finite(self, step: int, key: Key) -> NonFiniteCounts:
        """Count the infinite results and the NaN that an operation made at a place in a step."""
        return self._non_finite_counts.get((step, key), (0, 0))

    def step(self, /, **values: float) -> None:
        """End a step."""
        if values.get("skipped") == 1 and self.first is not None and self.first.step == self._series.steps:
            self.skipped.append((self.first, self.entries_at_first))
            self.first, self.entries_at_first = None, []
        super().step(**values)

    def share(self, kind: str, key: Key) -> float:
        """The share of the results counted by `key` that had an event; of underflow, of those that are not exactly 0.

        Overflow is what stopped at the largest number. Zero where nothing was counted.
        """
        events = self._events.get((key.path, key.operation, key.phase))
        if events is None:
            return 0.0
        counts = counts_by_name(events)
        total = counts["total"]
        if kind == "overflow":
            return max(counts[kind] - int(events[INFINITE]), 0) / total
        if kind == "underflow":
            total += counts["underflow"] - counts["nan"] - count_zeros(events)
        return counts[kind] / total if total > 0 else 0.0

    def first_step(self, kind: str, key: Key) -> int:
        """The first step in which a result counted by `key` had an event; 0 if none had."""
        steps = np.flatnonzero(self.series(*key[::2], operation=key.operation)[kind])
        return int(steps[0]) if steps.size else 0


def _cause_of_infinity(events: NDArray[np.int64], operation: str, was_infinite: bool) -> str:
    """Return the cause of an infinite result of finite operands; empty if there is none.

    Nothing was infinite before the first one, except for values that no rounding made, such as masks. If results of
    these were infinite before, a quotient may be a quotient of such a value.
    """
    if events[INFINITE] <= 0:
        return ""
    if events[OVERFLOW]:  # a mode that saturates leaves nothing infinite
        return OVERFLOWED
    if count_overflowed_sums(events) or count_sums_beyond_fp32(events):
        return OVERFLOWED_SUM
    if operation not in POLES:
        return ""
    return INHERITED if was_infinite else DIVIDED if operation in DIVISIONS else LOGARITHM


Loss = Callable[[Any, Any], Any]
Batch = tuple[Any, Any]

#: Arrays by path, of parameters, or of what an optimizer keeps: at the parameter's path with its name below.
Arrays = dict[str, NDArray[np.float64]]


@dataclass
class TrialRecord:
    """The record of one training: the loss of each step, the counts, and the copies of the parts at the end."""

    fault_recorder: FaultRecorder
    losses: list[float] = field(default_factory=list)
    parts: Any = None  # model, optimizer, loss scale
    state: Any = None  # of the simulation: its random streams, and what delayed scalings met

    @property
    def has_diverged(self) -> bool:
        """Whether it ended with a loss that is not finite."""
        return bool(self.losses) and not np.isfinite(self.losses[-1])


class TrialMoment(NamedTuple):
    """A point of a training: model, optimizer and loss scale, the next batch, and the simulation's state, if any."""

    parts: Any
    batch: Batch
    state: Any = None


class TrainingTrial:
    """Trainings of copies of one model with the same batches and seeds; a subclass for each front end."""

    def __init__(
        self, model: Any, loss_fn: Loss, batches: Sequence[Batch], optimizer: Any, scaler: Any, seed: int
    ) -> None:
        self.parts: Any = (model, optimizer, scaler)  # as they were given
        self.loss_fn, self.batches, self.seed = loss_fn, batches, seed

    def train(
        self, policy: Policy, steps: int, scale: float | None = None, recorder: FaultRecorder | None = None
    ) -> TrialRecord:
        """Train for so many steps, but for none behind a loss that is not finite, or an event that ends the recording.

        `scale` is a loss scale in place of the given one. A `recorder` beside the reference ends at its first event.
        """
        is_alone = recorder is None
        record = TrialRecord(FaultRecorder() if recorder is None else recorder)
        model, optimizer, scaler = parts = self._copy_parts(self.parts)
        scaler = scaler if scale is None else self._new_scaler(scale)
        with self._simulation_block(model, policy, record.fault_recorder) as simulation:
            for step in range(steps):
                loss = self._compute_gradients(model, scaler, self.batches[step % len(self.batches)])
                skipped = self._step_optimizer(optimizer, scaler)
                record.losses.append(float(loss.item()))
                record.fault_recorder.step(skipped=float(skipped))
                is_over = not skipped and not np.isfinite(record.losses[-1])
                if is_over or not is_alone and record.fault_recorder.first is not None:
                    break
        record.parts, record.state = parts, simulation.state
        return record

    def gradients(self, policy: Policy, moment: TrialMoment, scale: float = 1.0) -> Arrays:
        """The gradients of the parameters at a moment, of the loss times a scale, which is taken out."""
        raise NotImplementedError

    def zero_gradient_step(self, policy: Policy, parts: Any, *, fresh: bool) -> tuple[Arrays, Arrays]:
        """Parameters and moments before and after a step whose gradients are zero; `fresh`: with no moments yet."""
        raise NotImplementedError

    def parameters(self, parts: Any) -> Arrays:
        """The parameters of a model by their paths."""
        raise NotImplementedError

    def weight_decay(self) -> bool:
        """Whether the optimizer lets weights decay."""
        groups = self.parts[1].param_groups if self.parts[1] is not None else []
        return any(group.get("weight_decay") for group in groups)

    def _copy_parts(self, parts: Any) -> Any:
        """Copies of model, optimizer and loss scale that belong together."""
        return copy.deepcopy(parts)

    def _new_scaler(self, scale: float) -> Any:
        """A loss scale that begins with this factor."""
        raise NotImplementedError

    def _simulation_block(self, model: Any, policy: Policy, recorder: FaultRecorder | None, state: Any = None) -> Any:
        """A block of a simulation of its own, which has a state."""
        raise NotImplementedError

    def _loss(self, model: Any, x: Any, y: Any) -> Any:
        """The loss of a copy; ValueError for what is none."""
        raise NotImplementedError

    def _compute_gradients(self, model: Any, scaler: Any, batch: Batch) -> Any:
        """Compute the gradients of the parameters, times the loss scale if there is one; return the loss."""
        model.zero_grad()
        loss = self._loss(model, *batch)
        (loss if scaler is None else scaler.scale(loss)).backward()
        return loss

    def _step_optimizer(self, optimizer: Any, scaler: Any) -> bool:
        """Step the optimizer, if there is one; return whether the loss scale skipped the step."""
        if optimizer is None:
            return False
        if scaler is None:
            optimizer.step()
            return False
        return self._step_with_scaler(optimizer, scaler)

    def _step_with_scaler(self, optimizer: Any, scaler: Any) -> bool:
        """Step the optimizer through the loss scale; return whether the scale skipped the step."""
        raise NotImplementedError


def prepare_simulation(simulation: Simulation, model: Any) -> None:
    """Let a simulation repeat draws, on purpose, and know all layers: a step alone meets those with parameters only."""
    simulation.repeated_draws.is_silenced = True
    for path, _ in model.named_modules():
        simulation.note_path(path)


def check_parameters(model: Any, parameters: Iterable[Any]) -> None:
    """Raise ValueError unless all parameters that an optimizer updates are the model's."""
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in parameter_ids for parameter in parameters):
        raise ValueError("The optimizer updates parameters that are not the model's: make it with model.parameters().")


class TensorTrial(TrainingTrial):
    """Trainings of copies of a model of this package."""

    def __init__(
        self,
        model: Module,
        loss_fn: Loss,
        batches: Sequence[Batch],
        optimizer: Optimizer | None,
        scaler: LossScale | None,
        seed: int,
    ) -> None:
        super().__init__(model, loss_fn, batches, optimizer, scaler, seed)
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise ValueError(f"optimizer is one of simfloat.optim, got a {type(optimizer).__name__}.")
        if scaler is not None and not isinstance(scaler, LossScale):
            raise ValueError(f"scaler is a loss scale of simfloat.optim, got a {type(scaler).__name__}.")
        check_parameters(model, [] if optimizer is None else optimizer.params)

    def gradients(self, policy: Policy, moment: TrialMoment, scale: float = 1.0) -> Arrays:
        """The gradients of the parameters at a moment, of the loss times a scale, which is taken out."""
        model, _, scaler = self._copy_parts(moment.parts)
        if scale != 1.0:
            scaler = self._new_scaler(scale)
        with self._simulation_block(model, policy, None, moment.state):
            self._compute_gradients(model, scaler, moment.batch)
        factors = {path: 1.0 if scaler is None else scaler.scale_of(p) for path, p in model.named_parameters()}
        return {
            path: np.zeros(p.shape) if p.grad is None else np.asarray(on_cpu(p.grad), np.float64) / factors[path]
            for path, p in model.named_parameters()
        }

    def parameters(self, parts: Any) -> Arrays:
        """The parameters of a model by their paths."""
        return {path: np.asarray(on_cpu(p.data), np.float64) for path, p in parts[0].named_parameters()}

    def zero_gradient_step(self, policy: Policy, parts: Any, *, fresh: bool) -> tuple[Arrays, Arrays]:
        """Parameters and moments before and after a step whose gradients are zero; `fresh`: with no moments yet."""
        model, optimizer, _ = self._copy_parts(parts)
        if fresh:
            optimizer.state = [{} for _ in optimizer.state]
        for parameter in optimizer.params:
            parameter.grad = np.zeros_like(parameter.data, np.float32)
        before = _state_arrays(model, optimizer)
        with self._simulation_block(model, policy, None):
            optimizer.step()
        return before, _state_arrays(model, optimizer)

    def _new_scaler(self, scale: float) -> LossScale:
        return StaticLossScale(scale)

    @contextmanager
    def _simulation_block(
        self, model: Module, policy: Policy, recorder: FaultRecorder | None, state: Any = None
    ) -> Iterator[Simulation]:
        """A block of a simulation of its own, outside of whatever runs."""
        simulation = Simulation(policy, self.seed, recorder)
        if state is not None:
            simulation.load_state(state)
        prepare_simulation(simulation, model)
        with simulation, changed_context(path="", composites=(), names=None), np.errstate(all="ignore"):
            yield simulation

    def _loss(self, model: Module, x: Any, y: Any) -> Tensor:
        loss: Any = self.loss_fn(model(x), y)
        results_behind_loss(
            loss, {id(parameter) for parameter in model.parameters()}
        )  # refuses what is no loss of the copy's
        return loss

    def _step_with_scaler(self, optimizer: Optimizer, scaler: LossScale) -> bool:
        scaler.unscale_(optimizer)
        skipped = scaler.is_skipping(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return skipped


def _state_arrays(model: Module, optimizer: Optimizer) -> Arrays:
    """The parameters that the optimizer updates and what it keeps of each, in float64."""
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    arrays = {}
    for parameter, moments in zip(optimizer.params, optimizer.state, strict=True):
        path = paths[id(parameter)]
        arrays[path] = np.array(on_cpu(parameter.data), np.float64)
        arrays |= {
            f"{path}.{name}": np.array(on_cpu(array), np.float64) for name, array in moments.items() if array.ndim
        }
    return arrays
