"""One training step of a PyTorch model, inside the block of its run, as in a loop in PyTorch.

Batches become tensors with the dtype of the model, and integers become torch.long. The manifest contains the arguments
of PyTorch's schedules and GradScalers, as far as these objects store them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.amp import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._python_dispatch import _disable_current_modes

from simfloat.common import as_rectangular_array, check_loss_function
from simfloat.simulation import Simulation
from simfloat.simulation.switching import SwitchingRule
from simfloat.torch.forward_log import parameters_of
from simfloat.torch.open_run import active_run, open_run
from simfloat.torch.optimizers import check_calls_no_closure
from simfloat.torch.simulated_model import Run
from simfloat.torch.tensors import FORMAT_OF, call_model, numbers_of, put_own_tag, replace_tensors, tag_of, tensor_of
from simfloat.train.data import Batch
from simfloat.train.step import Replicas, TrainingStep, as_number, gradient_norm, group_options, mean_over_replicas
from simfloat.train.torch_states import RandomState, TorchPart

#: Arguments of schedules that are not options: the optimizer is a separate part, the others are progress and printing.
NO_OPTIONS = ("optimizer", "last_epoch", "verbose")

#: The constructor arguments of a GradScaler, by the names in its state.
SCALER_OPTIONS = ("growth_factor", "backoff_factor", "growth_interval")

#: The initial scale of each GradScaler, stored here because loading a state changes the scaler's own value.
_FIRST_SCALES: MutableMapping[GradScaler, float | None] = WeakKeyDictionary()


def scaler_options(scaler: GradScaler) -> dict[str, Any]:
    """Return the options of a GradScaler by name; none if it is disabled."""
    state = scaler.state_dict()
    first = _FIRST_SCALES.setdefault(scaler, getattr(scaler, "_init_scale", None))
    return {"init_scale": first, **{name: state[name] for name in SCALER_OPTIONS}} if state else {}


def schedule_options(schedule: LRScheduler) -> dict[str, Any]:
    """Return the options of a schedule by name; the names of an inner schedule's options begin with its number."""
    options: dict[str, Any] = {}
    for name in signature(type(schedule)).parameters:
        arguments = [vars(schedule)[key] for key in (name, f"_{name}", f"{name}s") if key in vars(schedule)]
        if name in NO_OPTIONS or not arguments:
            continue
        if isinstance(arguments[0], list | tuple) and any(
            isinstance(inner_schedule, LRScheduler) for inner_schedule in arguments[0]
        ):
            for number, inner_schedule in enumerate(arguments[0]):
                inner = {f"{number}.{option}": value for option, value in schedule_options(inner_schedule).items()}
                options |= {str(number): type(inner_schedule).__name__, **inner}
        else:
            options[name] = arguments[0]
    return options


def batch_tensors(part: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Convert arrays and numbers of a batch to tensors, also in lists, tuples and dictionaries.

    Floating-point arrays get the dtype `dtype`, and integers torch.long; the tensors are on `device`. Booleans keep
    their dtype, and so do tensors, which are moved from the CPU to `device`. Raises ValueError for arrays of any other
    kind.
    """
    if isinstance(part, torch.Tensor):
        if part.device == device or part.device.type != "cpu":
            return part
        with _disable_current_modes():
            return part.to(device)
    if isinstance(part, dict):
        return {key: batch_tensors(value, dtype, device) for key, value in part.items()}
    if isinstance(part, list | tuple) and any(isinstance(inner, torch.Tensor | np.ndarray) for inner in part):
        return type(part)(batch_tensors(inner, dtype, device) for inner in part)
    array = as_rectangular_array(part, "a batch")
    if array.dtype.kind in "iu":
        array, dtype = array.astype(np.int64), torch.int64
    elif array.dtype.kind == "b":
        dtype = torch.bool
    elif array.dtype.kind != "f":
        raise ValueError(
            f"A batch of a PyTorch model must contain tensors or arrays of numbers; got an array of {array.dtype} in a "
            f"{type(part).__name__}."
        )
    with _disable_current_modes():
        return tensor_of(array.copy(), dtype).to(device)


class TorchReplicas(Replicas):
    """The replicas of a PyTorch model."""

    def reduce(self, parameter: torch.nn.Parameter, gradients: Sequence[torch.Tensor | None]) -> None:
        """Set the gradient of a parameter to the mean over the replicas; None is a gradient of zeros."""
        tag = next(tag_of(gradient) for gradient in gradients if gradient is not None)
        place = active_run().simulation.place("update", tag.owner or "")
        u = place.in_type(FORMAT_OF[parameter.dtype]).to_replicas
        with _disable_current_modes():
            mean = mean_over_replicas(u, [None if g is None else numbers_of(g) for g in gradients])
            parameter.grad = tensor_of(mean, parameter.dtype).to(parameter.device)
            put_own_tag(parameter.grad, tag._replace(format=u.format))

    def copy_buffers(self) -> dict[str, torch.Tensor]:
        """Return copies of the buffers, by path."""
        with _disable_current_modes():
            return {path: buffer.detach().clone() for path, buffer in self.model.named_buffers()}

    def put_buffers(self, buffers: dict[str, torch.Tensor]) -> None:
        """Write these values to the buffers of the model, and remove other buffers, which a forward pass registered."""
        with _disable_current_modes(), torch.no_grad():
            buffers_now = dict(self.model.named_buffers())
            for path in {**buffers_now, **buffers}:
                prefix, _, name = path.rpartition(".")
                of_module = self.model.get_submodule(prefix)._buffers
                now, value = buffers_now.get(path), buffers.get(path)
                if value is None:
                    del of_module[name]
                elif now is None or now.shape != value.shape or now.dtype != value.dtype:
                    of_module[name] = value.clone()
                else:
                    now.copy_(value)


class TorchStep(TrainingStep):
    """The step of a PyTorch model, with an optimizer of torch.optim; raises ValueError if parts do not belong together.

    It consists of `model.zero_grad()`, the backward passes of all losses, each divided by the number of batches, the
    scaler's `unscale_`, clipping, and the optimizer's step.
    """

    model: Any
    optimizer: Any
    scaler: Any

    schedules = torch.optim.lr_scheduler.LRScheduler
    measure_schedules = torch.optim.lr_scheduler.ReduceLROnPlateau

    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: Callable[[Any, Any], Any],
        optimizer: torch.optim.Optimizer,
        **options: Any,
    ) -> None:
        super().__init__(model, loss_fn, optimizer, **options)  # type: ignore[arg-type]
        if self.machine is not None:
            raise ValueError(
                "device is supported only for models of simfloat.nn; move a PyTorch model before the block, by "
                "model.to(device)."
            )
        self._run = _open_run(model)
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._type = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())

    @staticmethod
    def simulation_in_force() -> Simulation:
        """Return the simulation of the run whose block is open."""
        run = active_run()
        if run is None:
            paused = "the run is paused here" if open_run() is not None else "there is no such block here"
            raise ValueError(
                "A PyTorch model is trained inside of `with simfloat.torch.simulate(model, policy):`, in which "
                f"simfloat.train.fit is called; {paused}."
            )
        return run.simulation

    @staticmethod
    def check_parts(model: Any, loss_fn: Any, optimizer: Any, scaler: Any) -> None:
        """Raise ValueError if a part is of the wrong kind, or if the parts do not belong together."""
        check_loss_function(loss_fn)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"A PyTorch model takes an optimizer of torch.optim, got a {_full_name(optimizer)}.")
        check_calls_no_closure(optimizer, "fit")
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise ValueError(f"The scaler of a PyTorch model is a torch.amp.GradScaler, got a {_full_name(scaler)}.")
        parameter_ids = {id(parameter) for parameter in model.parameters()}
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) not in parameter_ids:
                raise ValueError(
                    f"The optimizer updates a parameter of shape {tuple(parameter.shape)}, which does not belong to "
                    "the model: create it with model.parameters(), or make the parameter a part of the model."
                )

    def paths(self) -> list[str]:
        """Return the paths of all modules and parameters of the run."""
        model = self._run.model
        return [path for named in (model.named_modules(), model.named_parameters()) for path, _ in named]

    def parts(self, simulation: Simulation) -> dict[str, Any]:
        """Return the parts with states in checkpoints, including PyTorch's random numbers."""
        torch_parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        return {
            **{name: None if part is None else TorchPart(part, self._run) for name, part in torch_parts.items()},
            "simulation": self._run,
            "torch": RandomState(),
        }

    def options(self, schedule: Any) -> dict[str, Mapping[str, Any]]:
        """Return the options of optimizer, scaler and schedule for the manifest."""
        optimizer, scaler, has_rates = self.optimizer, self.scaler, isinstance(schedule, self.schedules)
        return {
            "optimizer": group_options(optimizer.defaults, optimizer.param_groups, has_rates),
            "scaler": {} if scaler is None else scaler_options(scaler),
            "schedule": schedule_options(schedule) if has_rates else {},
        }

    def versions(self) -> dict[str, str]:
        """Return PyTorch's version."""
        return {"torch": str(torch.__version__)}

    @contextmanager
    def aside(self, simulation: Simulation) -> Iterator[None]:
        """A ``with`` block for an evaluation, which changes no bit and records nothing for backward."""
        with self._run.aside(), torch.no_grad():
            yield

    def switch(self, simulation: Simulation, rule: SwitchingRule, steps: int) -> None:
        """Ask the rule for the policy of the next step, after `steps` steps."""
        self._run.follow(rule, steps)

    def replay(self, schedule: Any, steps: int) -> None:
        """Advance a new schedule by `steps` steps."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")  # the optimizer stepped earlier
            super().replay(schedule, steps)

    def open_replicas(self) -> TorchReplicas:
        """Return the context manager in which the replicas of a step compute their gradients."""
        return TorchReplicas(self.model)

    def _add_gradients(
        self, batches: Sequence[Batch], losses: list[float], metric_values: list[dict[str, float]]
    ) -> None:
        self.model.zero_grad()
        for batch in batches:
            x, y = (batch_tensors(part, self._type, self._device) for part in batch)
            output = call_model(self.model, x)
            loss = self._checked_loss(self.loss_fn(output, y))
            losses.append(float(loss.detach()))
            share = loss / len(batches) if len(batches) > 1 else loss
            (share if self.scaler is None else self.scaler.scale(share)).backward()
            metric_values.append(self._metric_values(output, y))

    def _metric_values(self, output: Any, y: Any) -> dict[str, float]:
        """Return the values of the metrics, computed in PyTorch's own arithmetic."""
        if not self.metrics:
            return {}
        with self._run.paused(), torch.no_grad():
            output = replace_tensors(output, torch.Tensor.detach)
            return {name: as_number(name, of(output, y)) for name, of in self.metrics.items()}

    def _update(self) -> dict[str, Any]:
        optimizer, scaler, stepped = self.optimizer, self.scaler, []
        row = {"scale": scaler.get_scale() if scaler else 1.0, "scaled_norm": self._gradient_norm()}
        if scaler:
            scaler.unscale_(optimizer)
            if scaler.is_enabled() and all(p.grad is None for p in self._parameters):
                raise ValueError("No parameter of the optimizer has a gradient, which the scaler needs: is it frozen?")
        row["norm"] = self._gradient_norm()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, self.clip)
        hook = optimizer.register_step_post_hook(lambda *_: stepped.append(True))
        try:
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
        finally:
            hook.remove()
        return row | {"skipped": not stepped}

    def _gradient_norm(self) -> float:
        with _disable_current_modes():
            return gradient_norm([numbers_of(p.grad) for p in self._parameters if p.grad is not None])

    def _checked_loss(self, loss: Any) -> torch.Tensor:
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise ValueError(
                f"loss_fn(model(x), y) must give a tensor of one number with a gradient, got {_loss_text(loss)}."
            )
        if not self._is_checked:
            _check_leaves(loss, self.model)
            self._is_checked = True
        return loss


def _open_run(model: torch.nn.Module) -> Run:
    """Return the run of the open block; raise ValueError if the model is not a part of the simulated model."""
    run: Run = active_run().run
    parameter_ids = {id(parameter) for parameter in run.model.parameters()}
    if any(id(parameter) not in parameter_ids for parameter in model.parameters()):
        raise ValueError(
            f"fit was given a {type(model).__name__} with parameters that are not those of the model which this block "
            f"simulates, a {type(run.model).__name__}; give simulate the model that is trained."
        )
    return run


def _full_name(part: Any) -> str:
    """Return the class of a part with its module: both front ends have an SGD."""
    return f"{type(part).__module__}.{type(part).__name__}"


def _loss_text(loss: Any) -> str:
    if not isinstance(loss, torch.Tensor):
        return f"a {type(loss).__name__}"
    return f"one of shape {tuple(loss.shape)}" + ("" if loss.requires_grad else " without a gradient")


def _check_leaves(loss: torch.Tensor, model: torch.nn.Module) -> None:
    """Raise ValueError if the loss depends on a parameter that does not belong to the model."""
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    for leaf in parameters_of(loss):
        if id(leaf) not in parameter_ids:
            raise ValueError(
                f"The loss depends on a parameter of shape {tuple(leaf.shape)}, which does not belong to the model: it "
                "would not be trained or saved. Make it a part of the model."
            )
