"""A forward and a backward pass of a PyTorch model, whose work is counted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from simfloat.attribution.of_torch import checked_loss, in_double, refuse_own_types
from simfloat.policy import Policy
from simfloat.simulation.metering import WorkMeter
from simfloat.torch.simulated_model import Run
from simfloat.torch.tensor_arguments import called


class TorchPass:
    """That of copies in float64, which holds every format."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def check(self, policy: Policy) -> None:
        """Raise ValueError for a policy that follows the model's types, which the copies do not have."""
        refuse_own_types(policy, "cost")

    def run(self, loss_fn: Callable[[Any, Any], Any], batch: tuple[Any, Any], policy: Policy, meter: WorkMeter) -> None:
        """Make it under a policy, and count its work."""
        model, (x, y) = copy.deepcopy(self.model).double(), in_double(batch)
        run = Run(model, policy, 0, None)
        run.simulation.meter = meter
        model.zero_grad()
        with torch.random.fork_rng(devices=[]), run:
            loss = loss_fn(called(model, x), y)
            checked_loss(loss, model).backward()
