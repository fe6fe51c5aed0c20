"""torch.utils.checkpoint: what runs again in the backward pass sees the random draws and scales of the first pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import torch
from torch.utils import checkpoint

from simfloat.torch.open_run import OpenRun, active_run

#: The number of the node in whose backward pass a part of the forward pass runs again.
_runs_again: ContextVar[int | None] = ContextVar("simfloat.torch again", default=None)


@contextmanager
def recomputing() -> Iterator[None]:
    """A block in which a part of a forward pass runs again, inside of the backward pass of a node."""
    node: Any = torch._C._current_autograd_node()
    # The number of the node tells a recomputation from the backward pass of an inner checkpoint, which runs in the same
    # context: there the current node is another one, and its operations are gradients.
    before = _runs_again.set(None if node is None else node._sequence_nr())
    try:
        yield
    finally:
        _runs_again.reset(before)


def is_recomputing() -> bool:
    """Whether a part of the forward pass runs again: in the backward pass of this node, not of another one inside."""
    number = _runs_again.get()
    if number is None:
        return False
    node: Any = torch._C._current_autograd_node()
    return node is not None and node._sequence_nr() == number


def is_within_rerun() -> bool:
    """Whether a part of the forward pass runs again, or a backward pass inside of it."""
    return _runs_again.get() is not None


class RecomputedPart:
    """A part of a forward pass that begins now, for being run again, at the same path."""

    def __init__(self, function: Callable[..., Any], run: OpenRun) -> None:
        self._function, self._run = function, run
        self._moment, self._path, self._policy = run.simulation.stream_positions(), run.path, run.simulation.policy

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run it again as it ran first. Raises ValueError under another policy, by which numbers would be others."""
        # Recomputed activations would differ from those that the first pass handed on, and gradients would be of
        # neither pass.
        if self._run.simulation.policy != self._policy:
            raise ValueError(
                f"torch.utils.checkpoint runs a part of the module {self._path!r} again under another policy than that "
                "of its first pass; go the way back before the policy is switched."
            )
        # As TransformerEngine and Megatron do with their generators: the same random bits and the same amaxes as in the
        # first pass, and afterwards on from where both were.
        with self._run.simulation.replay_from(self._moment), self._run.at_path(self._path), recomputing():
            return self._function(*args, **options)


def reentrant(before: staticmethod) -> staticmethod:
    """The forward pass of the function of autograd that runs its part again in a backward pass of its own."""

    @wraps(before.__func__)
    def forward(context: Any, function: Callable[..., Any], *args: Any) -> Any:
        run = active_run()
        again = function if run is None else RecomputedPart(function, run)
        results = before.__func__(context, function, *args)
        # After the first run: until then PyTorch's own `run_function` is the one that the context has.
        context.run_function = again
        return results

    return staticmethod(forward)


def remembering(before: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that remembers a part, which runs again when autograd asks for values that were dropped."""

    @wraps(before)
    def begin(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        run = active_run()
        return before(function if run is None else RecomputedPart(function, run), *args, **options)

    return begin


def forward_pass() -> staticmethod:
    """The forward pass, as its class has it."""
    method: staticmethod = vars(checkpoint.CheckpointFunction)["forward"]
    return method
