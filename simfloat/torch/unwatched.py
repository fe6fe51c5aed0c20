"""Whether several operations may be carried out as one call, since nobody looks at, or tells apart, single ones."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from simfloat.torch.gradients import current_node
from simfloat.torch.recomputing import is_recomputing
from simfloat.torch.rules.search import USERS
from simfloat.torch.run_context import RunContext


def is_alone(run: RunContext) -> bool:
    """Whether operations come to the run only: nothing observes or lists them, and no rule, mode or transform does
    something else with them.
    """
    if run.simulation.observer is not None or run.shown is not None or USERS:
        return False
    return len(_get_current_dispatch_mode_stack()) == 1 and not torch._C._are_functorch_transforms_active()


def is_unwatched(run: RunContext) -> bool:
    """Whether a layer's operations in the forward pass need no place of their own: nor draws or overrides tell them
    apart, and float32 holds their results.
    """
    if not is_alone(run) or run.is_inside or run.simulation.policy.overrides:
        return False
    place = run.simulation.place("linear", run.path)
    if place.draws or place.takes_formats or place.keeps_histories or place.is_written:
        return False
    if not place.forward.format.fits_float32 or torch.is_autocast_enabled("cpu"):
        return False
    return current_node() is None or is_recomputing()
