"""Trainings of copies of a PyTorch model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any

import torch

from simfloat.attribution.of_torch import checked_loss, in_double
from simfloat.diagnosis.trial import Arrays, Batch, Course, TrialMoment
from simfloat.diagnosis.watch import Watch
from simfloat.policy import Policy
from simfloat.torch.open_run import opened
from simfloat.torch.simulated_model import Run
from simfloat.torch.tensor_arguments import called

#: What an optimizer counts in tensors, which is no moment.
COUNTER = "step"


class TorchTrial:
    """Those of a PyTorch model, its optimizer and its GradScaler."""

    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: Callable[[Any, Any], Any],
        batches: Sequence[Batch],
        optimizer: Any,
        scaler: Any,
        seed: int,
    ) -> None:
        self.parts, self.loss_fn, self.batches, self.seed = (model, optimizer, scaler), loss_fn, batches, seed
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"optimizer is one of torch.optim, got a {type(optimizer).__name__}.")
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise ValueError(f"scaler is a torch.amp.GradScaler, got a {type(scaler).__name__}.")
        own = {id(parameter) for parameter in model.parameters()}
        if optimizer is not None and any(id(p) not in own for group in optimizer.param_groups for p in group["params"]):
            raise ValueError(
                "The optimizer updates parameters that are not the model's: make it with model.parameters()."
            )
        closure = None if optimizer is None else signature(type(optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is Parameter.empty:
            name = type(optimizer).__name__
            raise ValueError(f"{name} calls a closure, which diagnose does not have; give another optimizer.")
        if opened() is not None:
            raise ValueError("diagnose opens a block of its own: call it outside of simfloat.torch.simulate's.")
        for x, y in batches:
            in_double((x, y))  # refuses NumPy's arrays

    def train(self, policy: Policy, steps: int) -> Course:
        """So many steps, but none behind the one with the first NaN or overflow to infinity."""
        course = Course(Watch())
        model, optimizer, scaler = parts = _copies(self.parts)
        with self._simulated(model, policy, course.watch) as run:
            for step in range(steps):
                x, y = self.batches[step % len(self.batches)]
                model.zero_grad()
                loss = self._loss(model, x, y)
                (loss if scaler is None else scaler.scale(loss)).backward()
                skipped = _updated(optimizer, scaler)
                course.losses.append(float(loss.detach()))
                course.watch.step(skipped=float(skipped))
                if course.watch.first is not None:
                    break
        course.parts, course.state = parts, run.state
        return course

    def gradients(self, policy: Policy, moment: TrialMoment, scale: float = 1.0) -> Arrays:
        """The gradients of the parameters at a moment, of the loss times a scale, which is taken out."""
        model, _, scaler = _copies(moment.parts)
        if scale != 1.0:
            scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        model.zero_grad()
        with self._simulated(model, policy, None, moment.state):
            loss = self._loss(model, *moment.batch)
            (loss if scaler is None else scaler.scale(loss)).backward()
        factor = 1.0 if scaler is None else scaler.get_scale()
        return {
            path: (torch.zeros_like(p) if p.grad is None else p.grad).detach().double().numpy() / factor
            for path, p in model.named_parameters()
        }

    def step_of_zeros(self, policy: Policy, parts: Any, *, fresh: bool) -> tuple[Arrays, Arrays]:
        """Parameters and moments before and after a step whose gradients are zero; `fresh`: with no moments yet."""
        model, optimizer, _ = _copies(parts)
        if fresh:
            optimizer.state.clear()
        before = _arrays(model, optimizer)
        with self._simulated(model, policy, None):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
        return before, _arrays(model, optimizer)

    def weight_decay(self) -> bool:
        """Whether the optimizer lets weights decay."""
        groups = self.parts[1].param_groups if self.parts[1] is not None else []
        return any(group.get("weight_decay") for group in groups)

    @contextmanager
    def _simulated(
        self, model: torch.nn.Module, policy: Policy, watch: Watch | None, state: Any = None
    ) -> Iterator[Run]:
        """A block of a run of its own; PyTorch's random numbers begin at the seed, and go on after it as before."""
        run = Run(model, policy, self.seed, watch)
        if state is not None:
            run.load_state(state)
        run.simulation.repeats.is_settled = True  # it repeats draws on purpose
        with torch.random.fork_rng(devices=[]), run, torch.enable_grad():
            torch.manual_seed(self.seed)
            yield run

    def _loss(self, model: torch.nn.Module, x: Any, y: Any) -> torch.Tensor:
        return checked_loss(self.loss_fn(called(model, x), y), model)


def _copies(parts: Any) -> Any:
    """Copies of model, optimizer and scaler that belong together, without the hook of a schedule on `step`."""
    copies = copy.deepcopy(parts)
    if copies[1] is not None:
        vars(copies[1]).pop("step", None)
    return copies


def _updated(optimizer: Any, scaler: Any) -> bool:
    """Step the optimizer, if there is one; whether the loss scale skipped the step."""
    if optimizer is None:
        return False
    if scaler is None:
        optimizer.step()
        return False
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    return bool(scaler.get_scale() < before)


def _arrays(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Arrays:
    """The parameters that the optimizer updates and what it keeps of each, in float64."""
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    found: Arrays = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            path = paths[id(parameter)]
            found[path] = parameter.detach().double().numpy().copy()
            for name, kept in optimizer.state.get(parameter, {}).items():
                if isinstance(kept, torch.Tensor) and name != COUNTER and kept.ndim:
                    found[f"{path}.{name}"] = kept.detach().double().numpy().copy()
    return found
