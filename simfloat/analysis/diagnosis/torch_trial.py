"""Trial trainings of copies of a PyTorch model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.analysis.attribution.torch_models import checked_loss, in_double, widen_to_float32
from simfloat.analysis.diagnosis.changes import UPCAST_LOSS, changes_of
from simfloat.analysis.diagnosis.torch_changes import (
    change_block,
    change_parts,
    device_of,
    upcast,
    widen_training,
)
from simfloat.analysis.diagnosis.trial import (
    Arrays,
    Batch,
    FaultRecorder,
    TrainingTrial,
    TrialMoment,
    check_parameters,
    prepare_simulation,
)
from simfloat.formats import FP32
from simfloat.policy import Policy
from simfloat.policy.policy import is_written
from simfloat.simulation.updates import COMPENSATION
from simfloat.torch.open_run import open_run
from simfloat.torch.optimizers import check_calls_no_closure
from simfloat.torch.simulated_model import Run
from simfloat.torch.tensors import NARROW, call_model
from simfloat.torch.wide_types import WideTypes

#: The name of an optimizer's step counter, which is a tensor, but not a moment.
STEP_COUNTER = "step"


class TorchTrial(TrainingTrial):
    """Trainings of copies of a PyTorch model, its optimizer and its GradScaler."""

    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: Callable[[Any, Any], Any],
        batches: Sequence[Batch],
        optimizer: Any,
        scaler: Any,
        seed: int,
        *,
        follows_program: bool = False,
    ) -> None:
        super().__init__(model, loss_fn, batches, optimizer, scaler, seed)
        self._follows_program, self._policy = follows_program, Policy(compute=FP32)
        self._dtype = next((parameter.dtype for parameter in model.parameters() if parameter.dtype in NARROW), None)
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"optimizer is one of torch.optim, got a {type(optimizer).__name__}.")
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise ValueError(f"scaler is a torch.amp.GradScaler, got a {type(scaler).__name__}.")
        if self._dtype is not None and not follows_program:
            raise ValueError(
                f"The model has parameters of {self._dtype}, which only 'as-written' follows: pass this policy, or "
                "model.float() and a policy with the formats of the model, such as 'bf16-standard'."
            )
        groups = [] if optimizer is None else optimizer.param_groups
        check_parameters(model, [parameter for group in groups for parameter in group["params"]])
        if optimizer is not None:
            check_calls_no_closure(optimizer, "diagnose")
        if open_run() is not None:
            raise ValueError("diagnose opens its own block: call it outside the block of simfloat.torch.simulate.")
        for x, y in batches:
            in_double((x, y))  # raises ValueError for NumPy arrays

    def gradients(self, policy: Policy, moment: TrialMoment, scale: float = 1.0) -> Arrays:
        """Return the gradients of the parameters at a moment.

        The loss is multiplied by `scale`, and the gradients are divided by it.
        """
        model, _, scaler = self._prepare_parts(moment.parts, policy)
        if scale != 1.0:
            scaler = self._new_scaler(scale)
        with self._simulation_block(model, policy, None, moment.state):
            self._compute_gradients(model, scaler, moment.batch)
        factor = 1.0 if scaler is None else scaler.get_scale()
        return {
            path: (torch.zeros_like(p) if p.grad is None else p.grad).detach().double().numpy() / factor
            for path, p in model.named_parameters()
        }

    def parameters(self, parts: Any) -> Arrays:
        """Return the parameters of a model by their paths."""
        return {path: p.detach().double().numpy() for path, p in parts[0].named_parameters()}

    def compensation(self, parts: Any, path: str) -> NDArray[np.float64] | float:
        """Return the compensation of Kahan's updates of a parameter; 0 if it has none."""
        return _torch_state_arrays(*parts[:2]).get(f"{path}.{COMPENSATION}", 0.0)

    def zero_gradient_step(self, policy: Policy, parts: Any, *, fresh: bool) -> tuple[Arrays, Arrays]:
        """Return parameters and moments before and after a step with zero gradients; `fresh` starts without moments."""
        model, optimizer, _ = self._prepare_parts(parts, policy)
        if fresh:
            optimizer.state.clear()
        before = _torch_state_arrays(model, optimizer)
        with self._simulation_block(model, policy, None):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
        return before, _torch_state_arrays(model, optimizer)

    def _copy_parts(self, parts: Any) -> Any:
        copies = super()._copy_parts(parts)
        if copies[1] is not None:
            vars(copies[1]).pop("step", None)  # the hook of a schedule
        return copies

    @property
    def has_narrow_parameters(self) -> bool:
        """True if a program keeps parameters in narrow dtypes."""
        return self._dtype is not None

    def _prepare_parts(self, parts: Any, policy: Policy) -> Any:
        """Return copies of the parts with the changes; for the reference of a program with own dtypes, in float32."""
        model, optimizer, scaler = self._copy_parts(parts)
        if self._is_widened(policy):
            widen_training(model, optimizer)
        for change in changes_of(policy):
            scaler = change_parts(change, model, optimizer, scaler)
        return model, optimizer, scaler

    def _original_form(self, parts: Any, policy: Policy) -> Any:
        """Return trained parts of a program without its changes, and in its own dtypes."""
        if not changes_of(policy):
            return parts
        model, optimizer, scaler = self._copy_parts(self.parts)
        model.load_state_dict(parts[0].state_dict())
        if optimizer is not None:
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({**parts[1].state_dict(), "param_groups": groups})
        return model, optimizer, scaler

    def _is_widened(self, policy: Policy) -> bool:
        """True if a program with its own dtypes runs in float32, as its reference."""
        return self._follows_program and not is_written(policy)

    def _new_scaler(self, scale: float) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(device_of(self.parts[0]), init_scale=scale)

    @contextmanager
    def _simulation_block(
        self, model: torch.nn.Module, policy: Policy, recorder: FaultRecorder | None, state: Any = None
    ) -> Iterator[Run]:
        """Open the block of a new run. PyTorch's random state starts from the seed, and is restored afterwards."""
        run = Run(model, policy, self.seed, recorder)
        prepare_simulation(run.simulation, model, state)
        self._policy = policy
        blocks = [change_block(change, self._dtype, device_of(model)) for change in changes_of(policy)]
        with torch.random.fork_rng(devices=[]), run, torch.enable_grad(), ExitStack() as stack:
            torch.manual_seed(self.seed)
            if self._is_widened(policy):
                stack.enter_context(WideTypes(torch.float32))
            for block in blocks:
                stack.enter_context(block or nullcontext())
            yield run

    def _loss(self, model: torch.nn.Module, x: Any, y: Any) -> torch.Tensor:
        x, y = widen_to_float32((x, y)) if self._is_widened(self._policy) else (x, y)
        prediction = call_model(model, x)
        if any(change.kind == UPCAST_LOSS for change in changes_of(self._policy)):
            prediction, y = upcast((prediction, y))
        return checked_loss(self.loss_fn(prediction, y), model)

    def _step_with_scaler(self, optimizer: Any, scaler: Any) -> bool:
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        return bool(scaler.get_scale() < before)


def _torch_state_arrays(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Arrays:
    """Return the parameters that the optimizer updates, and its arrays for each of them, in float64."""
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    arrays: Arrays = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            path = paths[id(parameter)]
            arrays[path] = parameter.detach().double().numpy().copy()
            for name, moment in optimizer.state.get(parameter, {}).items():
                if isinstance(moment, torch.Tensor) and name != STEP_COUNTER and moment.ndim:
                    arrays[f"{path}.{name}"] = moment.detach().double().numpy().copy()
    return arrays
