"""torch.func.functional_call: a model is called with tensors of the program's in the place of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from simfloat.torch.open_run import active_run


def with_other_weights(function: Callable[..., Any]) -> Callable[..., Any]:
    """The call, for which tensors that take a parameter's place are weights: rounded, and used, as the parameter is."""

    @wraps(function)
    def call(module: torch.nn.Module, others: dict[str, Any], *args: Any, **options: Any) -> Any:
        run = active_run()
        if run is None:
            return function(module, others, *args, **options)
        above = next((path for path, each in run.run.model.named_modules() if each is module), None)
        if above is None:
            raise ValueError(
                f"functional_call calls a {type(module).__name__} that is no part of the simulated model; simulate a "
                "torch.nn.ModuleList of all modules that are called."
            )
        prefix = f"{above}." if above else ""
        weights = {name: run.in_place_of(prefix + name, x) for name, x in others.items()}
        return function(module, weights, *args, **options)

    return call
