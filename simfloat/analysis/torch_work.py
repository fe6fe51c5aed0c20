"""Run a forward and a backward pass of a PyTorch model, and count the work."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from simfloat.analysis.attribution.torch_models import checked_loss, in_double, refuse_own_types
from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.formats import Format
from simfloat.policy import Policy
from simfloat.policy.roles import ROLES, WIDEST
from simfloat.simulation.arithmetic import WorkMeter
from simfloat.torch.simulated_model import Run
from simfloat.torch.tensors import call_model

#: Bytes of a float32 value.
FLOAT_BYTES = 4


class TorchPass:
    """A forward and a backward pass of copies of a PyTorch model, in float64, which can represent every format.

    If results take the widest format of their operands, data and parameters count in their own dtypes. Then the copies
    are in float32, or in float64 if the model is.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def check(self, policy: Policy) -> None:
        """Raise ValueError for a policy that follows the dtypes of the model, because the copies do not have them."""
        refuse_own_types(policy, "cost")

    def run(self, loss_fn: Callable[[Any, Any], Any], batch: tuple[Any, Any], policy: Policy, meter: WorkMeter) -> None:
        """Run both passes under a policy, and count their work."""
        model, (x, y) = copy.deepcopy(self.model), in_double(batch)
        if takes_own_types(policy):
            model, (x, y) = widen_to_float32(model), widen_to_float32(batch)
        else:
            model = model.double()
        run = Run(model, policy, 0, None)
        run.simulation.meter = meter
        model.zero_grad()
        with torch.random.fork_rng(devices=[]), run:
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
