"""Which module of a model runs, as its hooks tell."""

from __future__ import annotations

from typing import Any

import torch

from simfloat.simulation import Simulation


class Paths:
    """The paths of the modules that run, the innermost last."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._hooks: list[Any] = []
        self.running: list[str] = []

    def begin(self, model: torch.nn.Module) -> None:
        """Listen to the modules of a model; one that occurs twice has the path that is listed first."""
        for path, module in model.named_modules():
            self._hooks += [
                module.register_forward_pre_hook(lambda *_, path=path: self._enter(path)),
                module.register_forward_hook(lambda *_: self._leave(), always_call=True),
            ]

    def end(self) -> None:
        """Listen no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self.running = [], []

    def _enter(self, path: str) -> None:
        self._simulation.note_path(path)
        self.running.append(path)

    def _leave(self) -> None:
        if self.running:
            self.running.pop()
