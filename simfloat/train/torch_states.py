"""The states of PyTorch objects in a training, as they are stored.

PyTorch does not check that the state of an optimizer is complete when it is loaded, so this module does.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim import Optimizer

from simfloat import optim
from simfloat.torch.simulated_model import Run


def check_moments(optimizer: Optimizer, state: Any) -> None:
    """Raise ValueError if a state lacks moments from which the optimizer continues, or has moments of another shape.

    A parameter without an entry starts anew. Optimizers without a counterpart in `simfloat.optim` are not checked.
    """
    name = type(optimizer).__name__
    kind = getattr(optim, name, None)
    if kind is None or not type(optimizer).__module__.startswith("torch."):
        return
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
        raise ValueError("load_state_dict takes a result of state_dict: a dictionary with 'state' and 'param_groups'.")
    ours = kind.__new__(kind)  # used only for the names and shapes of moments
    for group, own_group in zip(state.get("param_groups", ()), optimizer.param_groups, strict=False):
        options = SimpleNamespace(**{**own_group, **group})
        for number, parameter in zip(group.get("params", ()), own_group["params"], strict=False):
            entry = state["state"].get(number) or {}
            moments = {key: value for key, value in entry.items() if value is not None}
            shapes = ours.shapes(tuple(parameter.shape))
            needed = ours.required_names(tuple(parameter.shape), options)
            if missing := [key for key in needed if moments and key not in moments]:
                raise ValueError(
                    f"The state of parameter {number} has no {' and no '.join(missing)}; {name} continues from "
                    f"{', '.join(needed)}. Load a complete state, or leave out this parameter to start it anew."
                )
            for key in needed:
                if moments and tuple(getattr(moments[key], "shape", ())) != shapes[key]:
                    raise ValueError(f"{key} of parameter {number} must have the shape {shapes[key]}.")


class TorchPart:
    """A PyTorch model, optimizer or scaler; its state is read and restored as stored, while the run is paused."""

    def __init__(self, part: Any, run: Run) -> None:
        self._part, self._run = part, run

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        with self._run.paused():
            return dict(deepcopy(self._part.state_dict()))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        if isinstance(self._part, torch.optim.Optimizer):
            check_moments(self._part, state)
        with self._run.paused():
            self._part.load_state_dict(state)


class RandomState:
    """The states of PyTorch's random generators, which dropout uses."""

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the generators of the CPU and of GPUs."""
        on_gpus = {"cuda": torch.cuda.get_rng_state_all()} if torch.cuda.is_initialized() else {}
        return {"cpu": torch.get_rng_state(), **on_gpus}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from these states."""
        torch.set_rng_state(state["cpu"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])
