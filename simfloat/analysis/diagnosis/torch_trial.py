"""Trial trainings of copies of a PyTorch model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from simfloat.analysis.attribution.torch_models import checked_loss, in_double
from simfloat.analysis.diagnosis.trial import (
    Arrays,
    Batch,
    FaultRecorder,
    TrainingTrial,
    TrialMoment,
    check_parameters,
    prepare_simulation,
)
from simfloat.policy import Policy
from simfloat.torch.open_run import open_run
from simfloat.torch.optimizers import check_calls_no_closure
from simfloat.torch.simulated_model import Run
from simfloat.torch.tensors import NARROW, call_model

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
    ) -> None:
        super().__init__(model, loss_fn, batches, optimizer, scaler, seed)
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"optimizer is one of torch.optim, got a {type(optimizer).__name__}.")
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise ValueError(f"scaler is a torch.amp.GradScaler, got a {type(scaler).__name__}.")
        narrow = next((parameter.dtype for parameter in model.parameters() if parameter.dtype in NARROW), None)
        if narrow is not None:
            raise ValueError(
                f"diagnose also trains under the reference, which does not support parameters of {narrow}: pass "
                "model.float(), and a policy with the formats of the model, such as 'bf16-standard'."
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
        model, _, scaler = self._copy_parts(moment.parts)
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

    def zero_gradient_step(self, policy: Policy, parts: Any, *, fresh: bool) -> tuple[Arrays, Arrays]:
        """Return parameters and moments before and after a step with zero gradients; `fresh` starts without moments."""
        model, optimizer, _ = self._copy_parts(parts)
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

    def _new_scaler(self, scale: float) -> torch.amp.GradScaler:
        return torch.amp.GradScaler("cpu", init_scale=scale)

    @contextmanager
    def _simulation_block(
        self, model: torch.nn.Module, policy: Policy, recorder: FaultRecorder | None, state: Any = None
    ) -> Iterator[Run]:
        """Open the block of a new run. PyTorch's random state starts from the seed, and is restored afterwards."""
        run = Run(model, policy, self.seed, recorder)
        if state is not None:
            run.load_state(state)
        prepare_simulation(run.simulation, model)
        with torch.random.fork_rng(devices=[]), run, torch.enable_grad():
            torch.manual_seed(self.seed)
            yield run

    def _loss(self, model: torch.nn.Module, x: Any, y: Any) -> torch.Tensor:
        return checked_loss(self.loss_fn(call_model(model, x), y), model)

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
