"""The states of PyTorch's parts of a training, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch

from simfloat.torch.simulated_model import Run
from simfloat.train.torch_moments import check_moments


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
