"""The states of PyTorch's parts of a training, as they are stored.

PyTorch does not ask whether the state of an optimizer is complete when it loads one, so this is checked here.
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
    """Raise ValueError for a state that lacks moments which the optimizer's kind goes on from, or has others' shapes.

    A parameter of which the state holds nothing begins anew. Kinds that `simfloat.optim` lacks are not looked at.
    """
    name = type(optimizer).__name__
    kind = getattr(optim, name, None)
    if kind is None or not type(optimizer).__module__.startswith("torch."):
        return
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
        raise ValueError("load_state_dict takes what state_dict gives: a dictionary of 'state' and 'param_groups'.")
    ours = kind.__new__(kind)  # of which only the names and shapes of moments are asked
    for group, own_group in zip(state.get("param_groups", ()), optimizer.param_groups, strict=False):
        options = SimpleNamespace(**{**own_group, **group})
        for number, parameter in zip(group.get("params", ()), own_group["params"], strict=False):
            entry = state["state"].get(number) or {}
            moments = {key: value for key, value in entry.items() if value is not None}
            shapes = ours.shapes(tuple(parameter.shape))
            needed = ours.required_names(tuple(parameter.shape), options)
            if missing := [key for key in needed if moments and key not in moments]:
                raise ValueError(
                    f"The state of parameter {number} has no {' and no '.join(missing)}; {name} goes on from "
                    f"{', '.join(needed)}. Load a complete state, or leave out this parameter's to begin anew."
                )
            for key in needed:
                if moments and tuple(getattr(moments[key], "shape", ())) != shapes[key]:
                    raise ValueError(f"{key} of parameter {number} must have the shape {shapes[key]}.")


class TorchPart:
    """A model, optimizer or scaler of PyTorch, whose state is read and restored as stored, while its run is paused."""

    def __init__(self, part: Any, run: Run) -> None:
        self._part, self._run = part, run

    def state_dict(self) -> dict[str, Any]:
        """A copy of its state."""
        with self._run.paused():
            return dict(deepcopy(self._part.state_dict()))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring it into a state."""
        if isinstance(self._part, torch.optim.Optimizer):
            check_moments(self._part, state)
        with self._run.paused():
            self._part.load_state_dict(state)


class RandomState:
    """PyTorch's own random numbers on the CPU, of which dropout draws."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of PyTorch's generator."""
        return {"cpu": torch.get_rng_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from this state."""
        torch.set_rng_state(state["cpu"])
