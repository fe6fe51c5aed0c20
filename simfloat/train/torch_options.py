"""The arguments of PyTorch's schedules of learning rates and GradScalers, as far as these objects keep them."""

from __future__ import annotations

from collections.abc import MutableMapping
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

from torch.amp import GradScaler
from torch.optim.lr_scheduler import LRScheduler

#: Arguments that are no options: a part of its own, where the schedule stands, and what is printed.
NO_OPTIONS = ("optimizer", "last_epoch", "verbose")

#: What a GradScaler was made with, by the names of its state.
SCALER_OPTIONS = ("growth_factor", "backoff_factor", "growth_interval")

#: The scale that each began with, which loading a state changes.
_FIRST_SCALES: MutableMapping[GradScaler, float | None] = WeakKeyDictionary()


def scaler_options(scaler: GradScaler) -> dict[str, Any]:
    """Its options by name; none where it is disabled."""
    state = scaler.state_dict()
    first = _FIRST_SCALES.setdefault(scaler, getattr(scaler, "_init_scale", None))
    return {"init_scale": first, **{name: state[name] for name in SCALER_OPTIONS}} if state else {}


def schedule_options(schedule: LRScheduler) -> dict[str, Any]:
    """Its options by name; those of schedules inside of it begin with their number."""
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
