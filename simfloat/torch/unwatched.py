"""Whether several operations may be carried out as one call, since nobody looks at, or tells apart, single ones."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from simfloat.torch.gradients import current_node
from simfloat.torch.open_run import is_transformed
from simfloat.torch.recomputing import is_recomputing
from simfloat.torch.rules.search import USERS
from simfloat.torch.run_context import RunContext


def is_alone(run: RunContext) -> bool:
    """Whether operations come to the run only: nothing observes or lists them, and no rule, mode or transform does
    something else with them.
    """
    if run.simulation.observer is not None or run.shown is not None or USERS:
        return False
    # Another mode, such as a FlopCounterMode of the program's, wants to see single operations.
    return len(_get_current_dispatch_mode_stack()) == 1 and not is_transformed()


def is_unwatched(run: RunContext, operation: str = "linear") -> bool:
    """Whether a layer's operations in the forward pass need no place of their own: neither draws nor overrides tell
    them apart, and float32 holds their results and gradients.
    """
    # In a composite operations have other places, and in an optimizer they are updates.
    if not is_alone(run) or run.is_inside or run.optimizing.optimizer is not None:
        return False
    if torch.is_autocast_enabled("cpu") or not run.simulation.place(operation, run.path).is_uniform:
        return False
    return current_node() is None or is_recomputing()


def has_saved_tensor_hooks() -> bool:
    """Whether hooks of the program's keep what the way back reads, and may run operations again for it."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def is_plain(x: Any) -> bool:
    """Whether it is an ordinary tensor of float32 numbers, one at least."""
    is_usual = type(x) in (torch.Tensor, torch.nn.Parameter) and x.dtype == torch.float32 and x.layout is torch.strided
    return is_usual and x.numel() > 0
