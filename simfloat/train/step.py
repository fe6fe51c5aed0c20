"""One step of a training (forward, backward, update), with replicas, and the evaluation between steps.

Replicas of a model run one after another: each takes a part of the batch, and their gradients are reduced to one.
Options of an optimizer may differ between its groups. An evaluation changes no bit of the training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import Device, is_on_gpu, on_cpu
from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.parameter import begin_update
from simfloat.autodiff.variable import Variable
from simfloat.common import as_rectangular_array, check_loss_function, one_number, type_name
from simfloat.nn import Module
from simfloat.nn.module import names_of
from simfloat.optim import LossScale, LRScheduler, Optimizer, ReduceLROnPlateau, clip_grad_norm_
from simfloat.optim.clipping import sequential_sum, sum_of_squares
from simfloat.optim.options import name_of, number_from_zero
from simfloat.simulation import Simulation, no_grad
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.simulation import current
from simfloat.simulation.switching import SwitchingRule
from simfloat.sums import all_reduce, sequential
from simfloat.train.data import Batch
from simfloat.train.history import COLUMNS
from simfloat.train.states import is_tensor


def split_batch(batch: Batch, replicas: int) -> list[Batch]:
    """Return the equal parts of a batch along the first axis, one for each replica.

    Raises ValueError if the parts would have different sizes: the mean of their losses would not be the loss of the
    batch.
    """
    xs, ys = (_split(part, replicas) for part in batch)
    return list(zip(xs, ys, strict=True))


def _split(part: Any, replicas: int) -> Sequence[Any]:
    """Return the parts of an array, or of each array in a list, tuple or dictionary."""
    if isinstance(part, dict):
        values = zip(*(_split(inner, replicas) for inner in part.values()), strict=True)
        return [dict(zip(part, each, strict=True)) for each in values]
    if isinstance(part, list | tuple) and any(hasattr(inner, "shape") for inner in part):
        return [type(part)(each) for each in zip(*(_split(inner, replicas) for inner in part), strict=True)]
    array = part if hasattr(part, "shape") else as_rectangular_array(part, "a batch")
    if not array.ndim or not len(array) or len(array) % replicas:
        raise ValueError(
            f"Each batch is split into replicas={replicas} parts of one size along its first axis; got {array.shape}."
        )
    size = len(array) // replicas
    return [array[size * number : size * (number + 1)] for number in range(replicas)]


class Replicas:
    """A ``with`` block that stores the gradients of each replica; at its end, it reduces them to one gradient.

    Every replica begins with the same buffers, and the final buffers are those of the first replica.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._parameters = list(model.parameters())
        self._initial_buffers = self.copy_buffers()
        self._first_buffers: dict[str, Any] = {}
        self._gradients: list[list[Any]] = []

    def __enter__(self) -> Self:
        return self

    def keep_gradients(self) -> None:
        """Store the present gradients as those of the next replica."""
        self._gradients.append([parameter.grad for parameter in self._parameters])
        if len(self._gradients) == 1:
            self._first_buffers = self.copy_buffers()
        self.put_buffers(self._initial_buffers)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        self.put_buffers(self._first_buffers)
        for parameter, gradients in zip(self._parameters, zip(*self._gradients, strict=True), strict=True):
            if any(gradient is not None for gradient in gradients):
                self.reduce(parameter, gradients)

    def reduce(self, parameter: Any, gradients: Sequence[Any]) -> None:
        """Set the gradient of a parameter to the mean over the replicas; None is a gradient of zeros."""
        parameter.grad = mean_over_replicas(begin_update(parameter).to_replicas, gradients)

    def copy_buffers(self) -> dict[str, Any]:
        """Return copies of the buffers, by path."""
        return {path: array.copy() for path, array in self.model.named_buffers()}

    def put_buffers(self, buffers: dict[str, Any]) -> None:
        """Set the buffers of the model's modules to copies of these arrays."""
        modules = dict(self.model.named_modules())
        for path, array in buffers.items():
            module, _, name = path.rpartition(".")
            setattr(modules[module], name, array.copy())


def mean_over_replicas(u: Arithmetic, gradients: Sequence[NDArray | None]) -> NDArray:
    """Return the mean of the gradients as a ring of replicas does: each divides its gradient, then they are added."""
    present = next(gradient for gradient in gradients if gradient is not None)
    replicas = np.array(float(len(gradients)))
    shares = [u.divide(np.zeros_like(present) if g is None else g, replicas) for g in gradients]
    target = u.target
    adds = sequential(target.format, rounding=target.rounding)
    return all_reduce(np.stack(shares), accumulate=adds, stream=target.stream, observer=target.observer)


def group_options(names: Iterable[str], groups: Sequence[Mapping[str, Any]], has_schedule: bool) -> dict[str, Any]:
    """Return each option as its value, or as a tuple if the groups differ; with a schedule, lr is the first lr."""
    options = {}
    for name in names:
        first = "initial_lr" if name == "lr" and has_schedule else name
        values = [group.get(first, group[name]) for group in groups]
        options[name] = values[0] if all(value == values[0] for value in values) else tuple(values)
    return options


def run_evaluation(model: Any, evaluate: Callable[[Any], Any], aside: AbstractContextManager[Any]) -> dict[str, float]:
    """Return the numbers of `evaluate(model)` by name, computed with the model in evaluation mode.

    `aside` is a block in which `evaluate` changes no bit of the training.
    """
    with _evaluation_mode(model), aside:
        values = evaluate(model)
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"evaluate must return numbers by name, such as {{'accuracy': 0.9}}, got {values!r}.")
    if "step" in values:
        raise ValueError("evaluate cannot use the name 'step', because the history stores the step of its call there.")
    return {name: as_number(f"evaluate's {name}", value) for name, value in values.items()}


def as_number(what: str, value: Any) -> float:
    """Return the value as a float; raise ValueError, with the name `what`, if it is not a number."""
    if isinstance(value, Real):
        return float(value)
    number = one_number(value.tolist() if is_tensor(value) else on_cpu(value))
    if number is None:
        raise ValueError(f"{what} must be a number, got {value!r}.")
    return number


@contextmanager
def _evaluation_mode(model: Any) -> Iterator[None]:
    """A ``with`` block in which the model is in evaluation mode."""
    modes = [(module, module.training) for _, module in model.named_modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


#: (output of the model as arrays, target) -> a number
Metric = Callable[[Any, Any], Any]


class TrainingStep:
    """The parts of a step, checked once: the constructor raises ValueError if they do not belong together."""

    #: The class of schedules that belong to an optimizer, and the class of schedules that need a measure.
    schedules: type[Any] = LRScheduler
    measure_schedules: type[Any] = ReduceLROnPlateau

    def __init__(
        self,
        model: Module,
        loss_fn: Callable[[Any, Any], Any],
        optimizer: Optimizer,
        *,
        scaler: LossScale | None,
        clip: float | None,
        accumulation: int,
        metrics: Mapping[str, Metric] | None = None,
        machine: Device | None = None,
        replicas: int = 1,
    ) -> None:
        self.check_parts(model, loss_fn, optimizer, scaler)
        if clip is not None:
            number_from_zero("clip", clip)
        metrics = _checked_metrics(metrics)
        if reserved := [name for name in metrics if name in COLUMNS]:
            raise ValueError(f"A metric cannot be called {reserved[0]!r}, which is a column of every history.")
        self.model, self.loss_fn, self.optimizer, self.scaler = model, loss_fn, optimizer, scaler
        self.clip, self.accumulation, self.metrics, self.machine = clip, accumulation, metrics, machine
        self.replicas = replicas
        self._is_checked = False  # True after the parameters on which the loss depends were checked

    @staticmethod
    def simulation_in_force() -> Simulation:
        """Return the simulation of the open block; raise an error outside of any."""
        return current()

    @staticmethod
    def check_parts(model: Any, loss_fn: Any, optimizer: Any, scaler: Any) -> None:
        """Raise ValueError if a part is of the wrong kind, or if the parts do not belong together."""
        _check_kinds(model, loss_fn, optimizer, scaler)
        _check_parameters(model, optimizer)

    def paths(self) -> list[str]:
        """Return the paths of all modules and parameters, which overrides of the policy may name."""
        names = names_of(self.model)
        return [*names.modules.values(), *names.parameters.values()]

    def parts(self, simulation: Simulation) -> dict[str, Any]:
        """Return the parts with states in checkpoints, by name; None for a part that is missing."""
        trained_parts = {name: getattr(self, name) for name in ("model", "optimizer", "scaler")}
        return {**trained_parts, "simulation": simulation}

    def options(self, schedule: Any) -> dict[str, Mapping[str, Any]]:
        """Return the options of optimizer, scaler and schedule for the manifest."""
        has_rates = isinstance(schedule, LRScheduler)
        return {
            "optimizer": group_options(self.optimizer.options, self.optimizer.param_groups, has_rates),
            "scaler": self.scaler.options() if self.scaler else {},
            "schedule": schedule.arguments() if has_rates else {},
        }

    def versions(self) -> dict[str, str]:
        """Return the versions of other packages that compute, by name."""
        return {}

    @contextmanager
    def aside(self, simulation: Simulation) -> Iterator[None]:
        """A ``with`` block for an evaluation, which changes no bit and records nothing for backward."""
        with simulation.aside(), no_grad():
            yield

    def switch(self, simulation: Simulation, rule: SwitchingRule, steps: int) -> None:
        """Ask the rule for the policy of the next step, after `steps` steps."""
        simulation.follow(rule, steps)

    def replay(self, schedule: Any, steps: int) -> None:
        """Advance a new schedule by `steps` steps."""
        for _ in range(steps):
            schedule.step()

    def make_step(self, batches: Sequence[Batch]) -> dict[str, Any]:
        """Make a step with these batches, whose gradients are added; return its row of the history."""
        losses: list[float] = []
        measured: list[dict[str, float]] = []
        if self.replicas == 1:
            self._add_gradients(batches, losses, measured)
        else:
            shares = [split_batch(batch, self.replicas) for batch in batches]
            with self.open_replicas() as replicas:
                for each in zip(*shares, strict=True):
                    self._add_gradients(each, losses, measured)
                    replicas.keep_gradients()
        row = {"loss": _mean(losses), "lr": float(self.optimizer.param_groups[0]["lr"]), **self._update()}
        return row | {name: _mean([values[name] for values in measured]) for name in self.metrics}

    def open_replicas(self) -> Replicas:
        """Return the context manager in which the replicas of a step compute their gradients."""
        return Replicas(self.model)

    def _add_gradients(
        self, batches: Sequence[Batch], losses: list[float], metric_values: list[dict[str, float]]
    ) -> None:
        """Add the gradients of these batches; append their losses and the values of the metrics to the lists."""
        self.model.zero_grad()
        for batch in batches:
            x, y = batch if self.machine is None else (_move_batch(part, self.machine) for part in batch)
            output = self.model(x)
            loss = _checked_loss(self.loss_fn(output, y))
            losses.append(loss.item())
            self._backward(loss, len(batches))
            arrays = _output_arrays(output)
            metric_values.append({name: as_number(name, of(arrays, y)) for name, of in self.metrics.items()})

    def _backward(self, loss: Tensor, batches: int) -> None:
        """Add the gradients of a loss divided by the number of batches of the step."""
        if not self._is_checked:
            _check_leaves(loss, self.model)
            self._is_checked = True
        share = loss / batches if batches > 1 else loss
        (self.scaler.scale(share) if self.scaler else share).backward()

    def _update(self) -> dict[str, Any]:
        """Step the optimizer; return the scale, the norms, and whether the step was skipped."""
        optimizer, scaler, skipped = self.optimizer, self.scaler, False
        row: dict[str, Any] = {"scale": scaler.get_scale() if scaler else 1.0}
        scaled_norm = norm = _optimizer_norm(optimizer)
        if scaler:
            scaler.unscale_(optimizer)
            norm, skipped = _optimizer_norm(optimizer), scaler.is_skipping(optimizer)
        if self.clip is not None and not skipped:
            clip_grad_norm_(optimizer.params, self.clip)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        return row | {"skipped": skipped, "scaled_norm": scaled_norm, "norm": norm}


def _check_kinds(model: Any, loss_fn: Any, optimizer: Any, scaler: Any) -> None:
    if not isinstance(model, Module):
        raise ValueError(f"fit trains a simfloat.nn.Module or a torch.nn.Module, got a {type_name(model)}.")
    check_loss_function(loss_fn)
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"fit takes an optimizer of simfloat.optim, got a {type_name(optimizer)}.")
    if scaler is not None and not isinstance(scaler, LossScale):
        raise ValueError(f"scaler must be a loss scale of simfloat.optim, got a {type_name(scaler)}.")


def _checked_metrics(metrics: Any) -> Mapping[str, Metric]:
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics must be functions by name, {{'accuracy': function}}; got {type(metrics).__name__}.")
    for name, metric in metrics.items():
        if not callable(metric):
            raise ValueError(f"{name} must be a function, got a {type(metric).__name__}.")
    return metrics


def _check_parameters(model: Module, optimizer: Optimizer) -> None:
    """Raise ValueError if a parameter does not belong to the model: a checkpoint would not contain it."""
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    for number, parameter in enumerate(optimizer.params):
        if id(parameter) not in parameter_ids:
            raise ValueError(
                f"The optimizer updates {name_of(number, parameter)} of shape {parameter.shape}, which does not belong "
                "to the model: create it with model.parameters(), or make the parameter a part of the model."
            )


def _checked_loss(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.size != 1:
        got = f"one of shape {loss.shape}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise ValueError(f"loss_fn(model(x), y) must give a Tensor of one element, got {got}.")
    return loss


def _check_leaves(loss: Tensor, model: Module) -> None:
    """Raise ValueError if the loss depends on a parameter that does not belong to the model."""
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    visited: set[int] = set()
    stack: list[Variable] = [loss]
    while stack:
        variable = stack.pop()
        if isinstance(variable, Parameter) and id(variable) not in parameter_ids:
            raise ValueError(
                f"The loss depends on {variable.path or 'a parameter'} of shape {variable.shape}, which does not "
                "belong to the model: it would not be trained or saved. Make it a part of the model; use a "
                "simfloat.nn.ModuleList instead of a Python list of layers. Run parts that shall not learn inside "
                "`with simfloat.no_grad()`."
            )
        parents = variable.node.parents if variable.node else ()
        stack += (parent for parent in parents if parent.requires_grad and id(parent) not in visited)
        visited.update(map(id, parents))


def _output_arrays(output: Any) -> Any:
    """Return the output of a model with arrays instead of tensors."""
    if isinstance(output, Tensor):
        return output.data
    return type(output)(map(_output_arrays, output)) if isinstance(output, list | tuple) else output


def _move_batch(part: Any, machine: Device) -> Any:
    """Move the arrays of a batch to the device."""
    if isinstance(part, list | tuple):
        return type(part)(_move_batch(inner, machine) for inner in part)
    return machine.to_device(part) if isinstance(part, np.ndarray) or is_on_gpu(part) else part


def gradient_norm(gradients: Iterable[NDArray]) -> float:
    """Return the Euclidean norm of all gradients, in float64."""
    return math.sqrt(sequential_sum(map(sum_of_squares, gradients)))


def _optimizer_norm(optimizer: Optimizer) -> float:
    return gradient_norm(p.grad for p in optimizer.params if p.grad is not None)


def _mean(values: Sequence[float]) -> float:
    return sequential_sum(values) / len(values)
