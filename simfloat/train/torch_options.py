"""With which arguments a learning rate schedule of PyTorch was made, as far as it keeps them."""

from __future__ import annotations

from inspect import signature
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

#: Arguments that are no options: a part of its own, where the schedule stands, and what is printed.
NO_OPTIONS = ("optimizer", "last_epoch", "verbose")


def schedule_options(schedule: LRScheduler) -> dict[str, Any]:
    """Its options by name; those of schedules inside of it begin with their number."""
    found: dict[str, Any] = {}
    for name in signature(type(schedule)).parameters:
        kept = [vars(schedule)[key] for key in (name, f"_{name}", f"{name}s") if key in vars(schedule)]
        if name in NO_OPTIONS or not kept:
            continue
        if isinstance(kept[0], list | tuple) and any(isinstance(one, LRScheduler) for one in kept[0]):
            for number, one in enumerate(kept[0]):
                inner = {f"{number}.{option}": value for option, value in schedule_options(one).items()}
                found |= {str(number): type(one).__name__, **inner}
        else:
            found[name] = kept[0]
    return found
