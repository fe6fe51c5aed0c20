"""Gradients of a PyTorch model: the roles that they used, and their work; the model runs unmodified."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.analysis.attribution.roles_used import PolicyPart, merge_parts, path_in_layer, place_parts
from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.formats import Format
from simfloat.policy import Policy
from simfloat.policy.policy import is_written, policy_in_type
from simfloat.policy.roles import ROLES, UPDATE, WIDEST
from simfloat.simulation.arithmetic import Silent, WorkMeter
from simfloat.torch import Run, simulate
from simfloat.torch.forward_log import parameters_of
from simfloat.torch.tensors import FORMAT_OF, call_model
from simfloat.torch.wide_types import WideTypes


class TorchRun:
    """Gradients of copies of a PyTorch model on one batch.

    The copies run in float64, or in the dtypes of the model under a policy that is written for them.
    """

    def __init__(self, model: torch.nn.Module, loss_fn: Callable[..., Any], batch: tuple[Any, Any], seed: int) -> None:
        self.model, self.loss_fn, self.seed = model, loss_fn, seed
        self.batch, self.wide_batch = batch, in_double(batch)
        self._named = list(model.named_parameters())

    def parts_and_gradient(self, policy: Policy) -> tuple[list[PolicyPart], NDArray[np.float64]]:
        """Return the parts of a run under `policy`, and the gradients of all parameters in one vector."""
        run, _, gradient = self._run(policy)
        stored = {path: _policy_in_dtype(policy, p.dtype).recipe(path, UPDATE).weights for path, p in self._named}
        return merge_parts(_parts(run, policy), stored), gradient

    def gradient(self, policy: Policy) -> NDArray[np.float64]:
        """Return the gradients of all parameters in one vector."""
        return self._run(policy)[2]

    def loss_and_gradient(self, policy: Policy) -> tuple[float, NDArray[np.float64]]:
        """Return the loss, and the gradients of all parameters in one vector."""
        return self._run(policy)[1:]

    def _run(self, policy: Policy) -> tuple[Run, float, NDArray[np.float64]]:
        model, (x, y) = copy.deepcopy(self.model), self.batch
        types: AbstractContextManager[Any] = nullcontext()
        if not is_written(policy):
            model, (x, y), types = model.double(), self.wide_batch, WideTypes(torch.float64)
        with torch.random.fork_rng(devices=[]), simulate(model, policy, self.seed, Silent()) as run, types:
            torch.manual_seed(self.seed)
            model.zero_grad()
            loss = self.loss_fn(call_model(model, x), y)
            checked_loss(loss, model).backward()
        gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters())
        return run, loss.item(), torch.cat([gradient.detach().double().reshape(-1) for gradient in gradients]).numpy()


def _policy_in_dtype(policy: Policy, dtype: torch.dtype) -> Policy:
    """Return the policy for a dtype of the program, if it follows dtypes."""
    return policy_in_type(policy, FORMAT_OF[dtype]) if is_written(policy) else policy


def checked_loss(loss: Any, model: torch.nn.Module) -> torch.Tensor:
    """Return the loss of a copy of a model, which must be one value with a gradient.

    Raises ValueError for anything else, and if the loss depends on a parameter that is not in the copy.
    """
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise ValueError(f"loss_fn(model(x), y) must be a torch.Tensor with one element and a gradient, got {loss!r}.")
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    for leaf in parameters_of(loss):
        if id(leaf) not in parameter_ids:
            raise ValueError(
                f"loss_fn uses a parameter of shape {tuple(leaf.shape)}, which the copy of the model "
                "does not have: make it a part of the model."
            )
    return loss


def in_double(x: Any) -> Any:
    """Convert floating-point tensors to float64, also in containers; raise ValueError for NumPy arrays."""
    if isinstance(x, np.ndarray):
        raise ValueError(
            f"A batch for a torch.nn.Module must contain tensors, got a NumPy array of shape {x.shape}; convert it "
            "by torch.as_tensor(x)."
        )
    if isinstance(x, torch.Tensor):
        return x.detach().double() if x.is_floating_point() else x
    if isinstance(x, dict):
        return {key: in_double(value) for key, value in x.items()}
    return type(x)(map(in_double, x)) if type(x) in (list, tuple) else x


def _parts(run: Run, policy: Policy) -> Iterator[PolicyPart]:
    """Yield the parts of all operations that ran; a role has several parts if its results have several formats."""
    for place in (each for untyped in run.simulation.places() for each in untyped.in_all_types):
        if place.operation == UPDATE:
            continue
        roles = [
            (place.path if parameter is None else path_in_layer(place.path, parameter), {role: value})
            for parameter, role, value in place.roles_used()
        ]
        weights = [path for path, values in roles if "compute_weights" in values]
        yield from place_parts(place, weights, roles, policy)


#: Bytes of a float32 value.
FLOAT_BYTES = 4


class TorchPass:
    """A forward and a backward pass of copies of a PyTorch model, in float64, which can represent every format.

    The copies keep their dtypes under a policy that follows them.
    If results take the widest format of their operands, data and parameters count in their own dtypes. Then the copies
    are in float32, or in float64 if the model is.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def format_of(self, parameter: torch.nn.Parameter) -> Format:
        """Return the format of the dtype of a parameter."""
        return FORMAT_OF[parameter.dtype]

    def run(self, loss_fn: Callable[[Any, Any], Any], batch: tuple[Any, Any], policy: Policy, meter: WorkMeter) -> None:
        """Run both passes under a policy, and count their work."""
        model, (x, y) = copy.deepcopy(self.model), in_double(batch)
        types: AbstractContextManager[Any] = nullcontext()
        if is_written(policy):
            x, y = batch
        elif takes_own_types(policy):
            model, (x, y) = widen_to_float32(model), widen_to_float32(batch)
        else:
            model, types = model.double(), WideTypes(torch.float64)
        run = Run(model, policy, 0, None)
        run.simulation.meter = meter
        model.zero_grad()
        with torch.random.fork_rng(devices=[]), run, types:
            loss = loss_fn(call_model(model, x), y)
            checked_loss(loss, model).backward()


def takes_own_types(policy: Policy) -> bool:
    """True if results take the widest format of their operands, and float32 can represent all formats of the policy."""
    values = [getattr(policy, role) for role in ROLES]
    values += [value for override in policy.overrides for _, value in override.roles]
    formats = [as_cast(value).format for value in values if isinstance(value, Format | Cast)]
    return WIDEST in values and all(format.fits_float32 for format in formats)


def widen_to_float32(x: Any) -> Any:
    """Convert dtypes of at most 16 bits to float32, in a model or in tensors, also in containers."""
    if isinstance(x, torch.nn.Module):
        narrow = any(part.is_floating_point() and part.itemsize < FLOAT_BYTES for part in x.state_dict().values())
        return x.float() if narrow else x
    if isinstance(x, torch.Tensor):
        return x.detach().float() if x.is_floating_point() and x.itemsize < FLOAT_BYTES else x
    if isinstance(x, dict):
        return {key: widen_to_float32(value) for key, value in x.items()}
    return type(x)(map(widen_to_float32, x)) if type(x) in (list, tuple) else x
