"""Check if one call may replace several operations of PyTorch, each of which calls Python."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from simfloat.simulation.place import Place
from simfloat.torch.backward import current_node
from simfloat.torch.forward_log import is_recomputing
from simfloat.torch.handlers import USERS
from simfloat.torch.open_run import is_transformed
from simfloat.torch.run_context import RunContext


def is_alone(run: RunContext) -> bool:
    """True if only the run receives the operations: no observer, list, user's rule, mode or transform does."""
    if run.simulation.observer is not None or run.shown is not None or USERS:
        return False
    # Another mode, such as a FlopCounterMode of the program, needs the single operations.
    return len(_get_current_dispatch_mode_stack()) == 1 and not is_transformed()


def unwatched_place(run: RunContext, operation: str) -> Place | None:
    """Return the place of an operation of the forward pass, if its operations need no separate places.

    Neither random bits nor overrides distinguish them, and float32 can represent their results and gradients.
    """
    # In a composite the operations have other places, and in an optimizer they are updates.
    if not is_alone(run) or run.composites or run.optimizing.optimizer is not None:
        return None
    if torch.is_autocast_enabled("cpu") or not (current_node() is None or is_recomputing()):
        return None
    place = run.simulation.place_at(operation, run.path, ())
    return place if place.is_uniform else None


def has_saved_tensor_hooks() -> bool:
    """True if hooks of the program save values for the backward pass, and may run operations again for it."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def are_plain(*tensors: Any) -> bool:
    """True if all are ordinary, nonempty tensors of float32 values."""
    for x in tensors:
        if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.dtype != torch.float32 or not x.numel():
            return False
        if x.layout is not torch.strided:
            return False
    return True
