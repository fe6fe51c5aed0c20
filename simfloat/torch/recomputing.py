"""torch.utils.checkpoint: what runs again in the backward pass sees the random draws and scales of the first pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.utils import checkpoint

from simfloat.simulation import Simulation
from simfloat.torch.open_run import running


class Again:
    """A part of a forward pass that begins now, for being run again."""

    def __init__(self, function: Callable[..., Any], simulation: Simulation) -> None:
        self._function, self._simulation, self._moment = function, simulation, simulation.moment()

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run it again as it ran first."""
        with self._simulation.again_from(self._moment):
            return self._function(*args, **options)


def reentrant(before: staticmethod) -> staticmethod:
    """The forward pass of the function of autograd that runs its part again in a backward pass of its own."""

    @wraps(before.__func__)
    def forward(context: Any, function: Callable[..., Any], *args: Any) -> Any:
        run = running()
        again = function if run is None else Again(function, run.simulation)
        results = before.__func__(context, function, *args)
        context.run_function = again
        return results

    return staticmethod(forward)


def remembering(before: Callable[..., Any]) -> Callable[..., Any]:
    """What remembers a part that is run again when numbers that it did not keep are asked for."""

    @wraps(before)
    def begin(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        run = running()
        return before(function if run is None else Again(function, run.simulation), *args, **options)

    return begin


def forward_pass() -> staticmethod:
    """The forward pass, as its class has it."""
    found: staticmethod = vars(checkpoint.CheckpointFunction)["forward"]
    return found
