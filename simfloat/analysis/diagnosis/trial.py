"""Trial trainings of copies: steps under a policy, gradients at some weights, and a step with zero gradients.

A recorder keeps the first NaN or infinite result that does not occur in the training under the reference.
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
from simfloat.analysis.diagnosis.changes import changes_of, set_eps
from simfloat.arithmetic.machines import on_cpu
from simfloat.autodiff import Tensor
from simfloat.kernels.rounding.events import INFINITE, NAN, OVERFLOW
from simfloat.nn import Module
from simfloat.optim import LossScale, Optimizer, StaticLossScale
from simfloat.policy import Policy
from simfloat.policy.policy import delays_scales
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

#: The causes of an infinite result, in the words that are used for causes of NaN.
OVERFLOWED, OVERFLOWED_SUM, DIVIDED = "an overflow", "an overflow inside a sum", "a division by 0"
LOGARITHM = "log(0)"
INHERITED = "an infinite operand, in data, masks or parameters"

#: Operations that may divide by zero; a power does so only if its exponent is negative.
DIVISIONS = ("divide", "reciprocal", "rsqrt", "power")

#: The numbers of infinite results and of NaN of an operation at a place in a step.
NonFiniteCounts = tuple[int, int]


class FaultRecorder(Recorder):
    """A Recorder that keeps the first NaN or infinity.

    `first` is that result, and `entries_at_first` has the counts at that time. If a loss scale skips the step, both
    move to `skipped`. `reference` is the recorder of another training: a result counts only if the operation has more
    infinite results, or more NaN, at its place in the step than under the reference. Infinities with a key in `excused`
    do not count.
    """

    def __init__(self, reference: FaultRecorder | None = None, excused: Collection[Key] = ()) -> None:
        super().__init__()
        self._reference, self._excused = reference, excused
        self._non_finite_counts: dict[tuple[int, Key], NonFiniteCounts] = {}
        self.first: FirstNaN | None = None
        self.entries_at_first: Entries = []
        self.skipped: list[tuple[FirstNaN, Entries]] = []
        self._was_infinite = False  # True after an infinite result of operands that were not rounded

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
            cause = _cause_of_infinity(events, key, self._was_infinite)
        self._was_infinite |= infinite > reference_counts[0]
        if cause:
            self.first = FirstNaN(step, path, operation, phase, cause)
            self.entries_at_first = self.entries()

    def count_non_finite(self, step: int, key: Key) -> NonFiniteCounts:
        """Count the infinite results and the NaN of an operation at a place in a step."""
        return self._non_finite_counts.get((step, key), (0, 0))

    def step(self, /, **values: float) -> None:
        """End a step."""
        if values.get("skipped") == 1 and self.first is not None and self.first.step == self._series.steps:
            self.skipped.append((self.first, self.entries_at_first))
            self.first, self.entries_at_first = None, []
        super().step(**values)

    def share(self, kind: str, key: Key) -> float:
        """Return the share of the results counted by `key` that had an event; zero if nothing was counted.

        For underflow, the total excludes NaN and results that are exactly 0. Overflow counts results that saturated.
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
        """Return the first step in which a result counted by `key` had an event; 0 if none had one."""
        steps = np.flatnonzero(self.series(*key[::2], operation=key.operation)[kind])
        return int(steps[0]) if steps.size else 0


def _cause_of_infinity(events: NDArray[np.int64], key: Key, was_infinite: bool) -> str:
    """Return the cause of an infinite result of finite operands; empty if there is none.

    No operand was infinite before the first infinite result, except values that were not rounded, such as masks. If
    operations on these had infinite results before, a quotient may be a quotient of such a value.
    """
    if events[INFINITE] <= 0:
        return ""
    if events[OVERFLOW]:  # in a saturating mode, no result is infinite
        return OVERFLOWED
    if count_overflowed_sums(events) or count_sums_beyond_fp32(events):
        return OVERFLOWED_SUM
    # In a narrow dtype of the program, the quotient of an optimizer is a step of the last addition.
    if key.phase == key.operation == "update":
        return DIVIDED
    if key.operation not in POLES:
        return ""
    return INHERITED if was_infinite else DIVIDED if key.operation in DIVISIONS else LOGARITHM


Loss = Callable[[Any, Any], Any]
Batch = tuple[Any, Any]

#: Arrays by path: the parameters, and the arrays of an optimizer as ``path.name``.
Arrays = dict[str, NDArray[np.float64]]


@dataclass
class TrialRecord:
    """The record of one training: the loss of each step, the counts, and the copies of the parts at the end."""

    fault_recorder: FaultRecorder
    losses: list[float] = field(default_factory=list)
    parts: Any = None  # model, optimizer, loss scale
    state: Any = None  # of the simulation: its random streams and the histories of delayed scalings

    @property
    def has_diverged(self) -> bool:
        """True if the training ended with a loss that is not finite."""
        return bool(self.losses) and not np.isfinite(self.losses[-1])


class TrialMoment(NamedTuple):
    """A moment of a training: model, optimizer and loss scale, the next batch, and the simulation's state."""

    parts: Any
    batch: Batch
    state: Any = None


class TrainingTrial:
    """Trainings of copies of one model with the same batches and seeds; each front end has a subclass."""

    def __init__(
        self, model: Any, loss_fn: Loss, batches: Sequence[Batch], optimizer: Any, scaler: Any, seed: int
    ) -> None:
        self.parts: Any = (model, optimizer, scaler)  # the originals
        self.loss_fn, self.batches, self.seed = loss_fn, batches, seed

    def train(
        self, policy: Policy, steps: int, scale: float | None = None, recorder: FaultRecorder | None = None
    ) -> TrialRecord:
        """Train for `steps` steps.

        The training ends early after a loss that is not finite, or, with a given `recorder`, after its first event.
        `scale` is a loss scale that replaces the given one.
        """
        is_alone = recorder is None
        record = TrialRecord(FaultRecorder() if recorder is None else recorder)
        model, optimizer, scaler = parts = self._prepare_parts(self.parts, policy)
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
        record.parts, record.state = self._original_form(parts, policy), simulation.state
        return record

    def gradients(self, policy: Policy, moment: TrialMoment, scale: float = 1.0) -> Arrays:
        """Return the gradients of the parameters at a moment.

        The loss is multiplied by `scale`, and the gradients are divided by it.
        """
        raise NotImplementedError

    def zero_gradient_step(self, policy: Policy, parts: Any, *, fresh: bool) -> tuple[Arrays, Arrays]:
        """Return parameters and moments before and after a step with zero gradients; `fresh` starts without moments."""
        raise NotImplementedError

    def parameters(self, parts: Any) -> Arrays:
        """Return the parameters of a model by their paths."""
        raise NotImplementedError

    def compensation(self, parts: Any, path: str) -> NDArray[np.float64] | float:
        """Return the compensation of Kahan's updates of a parameter; 0 if it has none."""
        return 0.0

    def weight_decay(self) -> bool:
        """True if the optimizer has weight decay."""
        groups = self.parts[1].param_groups if self.parts[1] is not None else []
        return any(group.get("weight_decay") for group in groups)

    @property
    def has_narrow_parameters(self) -> bool:
        """True if a program keeps parameters in narrow dtypes."""
        return False

    def module_path(self, path: str) -> str:
        """Return the path of the innermost module around a module or parameter."""
        modules = dict(self.parts[0].named_modules())
        while path not in modules:
            path = path.rpartition(".")[0]
        return path

    def module_at(self, path: str) -> Any:
        """Return the innermost module around a module or parameter."""
        return dict(self.parts[0].named_modules())[self.module_path(path)]

    def _copy_parts(self, parts: Any) -> Any:
        """Return copies of model, optimizer and loss scale that belong together."""
        return copy.deepcopy(parts)

    def _prepare_parts(self, parts: Any, policy: Policy) -> Any:
        """Return copies of the parts as they run under a policy, with its changes of the program."""
        model, optimizer, scaler = self._copy_parts(parts)
        for change in changes_of(policy):
            set_eps(change, model, optimizer)
        return model, optimizer, scaler

    def _original_form(self, parts: Any, policy: Policy) -> Any:
        """Return trained parts in the form of the originals, so that they can be prepared for another policy."""
        return parts

    def _new_scaler(self, scale: float) -> Any:
        """Return a loss scale that begins with this factor."""
        raise NotImplementedError

    def _simulation_block(self, model: Any, policy: Policy, recorder: FaultRecorder | None, state: Any = None) -> Any:
        """Return the block of a new simulation, which has a state."""
        raise NotImplementedError

    def _loss(self, model: Any, x: Any, y: Any) -> Any:
        """Return the loss of a copy; raise ValueError if it is not a loss."""
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


def prepare_simulation(simulation: Simulation, model: Any, state: dict[str, Any] | None) -> None:
    """Continue from a state if there is one, allow a simulation to repeat draws, and register all layers.

    A single step uses only layers with parameters. A remedy may have replaced delayed scales.
    """
    if state is not None:
        unused = () if delays_scales(simulation.policy) else ("casts",)
        simulation.load_state({key: value for key, value in state.items() if key not in unused})
    simulation.repeated_draws.is_silenced = True
    for path, _ in model.named_modules():
        simulation.note_path(path)


def check_parameters(model: Any, parameters: Iterable[Any]) -> None:
    """Raise ValueError unless all parameters that an optimizer updates belong to the model."""
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in parameter_ids for parameter in parameters):
        raise ValueError(
            "The optimizer updates parameters that are not in the model: create it with model.parameters()."
        )


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
        """Return the gradients of the parameters at a moment.

        The loss is multiplied by `scale`, and the gradients are divided by it.
        """
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
        """Return the parameters of a model by their paths."""
        return {path: np.asarray(on_cpu(p.data), np.float64) for path, p in parts[0].named_parameters()}

    def zero_gradient_step(self, policy: Policy, parts: Any, *, fresh: bool) -> tuple[Arrays, Arrays]:
        """Return parameters and moments before and after a step with zero gradients; `fresh` starts without moments."""
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
        """Open the block of a new simulation, outside of any module that runs."""
        simulation = Simulation(policy, self.seed, recorder)
        prepare_simulation(simulation, model, state)
        with simulation, changed_context(path="", composites=(), names=None), np.errstate(all="ignore"):
            yield simulation

    def _loss(self, model: Module, x: Any, y: Any) -> Tensor:
        loss: Any = self.loss_fn(model(x), y)
        results_behind_loss(
            loss, {id(parameter) for parameter in model.parameters()}
        )  # raises ValueError for an invalid loss
        return loss

    def _step_with_scaler(self, optimizer: Optimizer, scaler: LossScale) -> bool:
        scaler.unscale_(optimizer)
        skipped = scaler.is_skipping(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return skipped


def _state_arrays(model: Module, optimizer: Optimizer) -> Arrays:
    """Return the parameters that the optimizer updates, and its arrays for each of them, in float64."""
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    arrays = {}
    for parameter, moments in zip(optimizer.params, optimizer.state, strict=True):
        path = paths[id(parameter)]
        arrays[path] = np.array(on_cpu(parameter.data), np.float64)
        arrays |= {
            f"{path}.{name}": np.array(on_cpu(array), np.float64) for name, array in moments.items() if array.ndim
        }
    return arrays
