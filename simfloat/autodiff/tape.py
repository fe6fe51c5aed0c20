"""The record of operations, and the walk back over it.

Parents stand in lists, and the walk follows them: the order of every addition of gradients is fixed by the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.observer import Observer, wants
from simfloat.autodiff.place import Place, Unit
from simfloat.autodiff.simulation import current

if TYPE_CHECKING:
    from simfloat.autodiff.tensor import Tensor

#: The gradient of a parent from that of the result, every operation rounded by the unit.
Derivative = Callable[[Unit, NDArray], NDArray]


class Node(NamedTuple):
    """An operation that was carried out: what came in, how to go back, and where it ran."""

    parents: tuple[Tensor, ...]
    derivatives: tuple[Derivative | None, ...]
    place: Place


def run_backward(root: Tensor, gradient: NDArray) -> None:
    """Give every leaf that requires one the gradient of `root`, in the arithmetic of each operation's own place."""
    if root.node is None:
        if not root.requires_grad:
            raise ValueError("backward needs a tensor made, inside `simulate`, from one with requires_grad=True.")
        unit = current().place("backward", root.path).to_activation
        root.grad = np.array(gradient) if root.grad is None else unit.apply("add", root.grad, gradient)
        return
    uses = _uses(root)
    gradients: dict[int, NDArray] = {id(root): gradient}
    ready = [root]
    while ready:
        tensor = ready.pop()
        node, incoming = tensor.node, gradients.pop(id(tensor))
        if node is None:
            # Broadcast gradients are read-only views.
            tensor.grad = incoming if incoming.flags.writeable and incoming.base is None else incoming.copy()
            continue
        for parent, derivative in zip(node.parents, node.derivatives, strict=True):
            if derivative is not None and parent.requires_grad:
                uses[id(parent)] -= 1
                complete = uses[id(parent)] == 0
                _contribute(parent, derivative, incoming, node.place, gradients, complete)
                if complete:
                    ready.append(parent)


def _uses(root: Tensor) -> dict[int, int]:
    """How many contributions the gradient of each tensor that leads to `root` will have."""
    uses: dict[int, int] = {}
    stack = [root]
    while stack:
        node = stack.pop().node
        if node is None:
            continue
        for parent, derivative in zip(node.parents, node.derivatives, strict=True):
            if derivative is not None and parent.requires_grad:
                if id(parent) not in uses:
                    uses[id(parent)] = 0
                    stack.append(parent)
                uses[id(parent)] += 1
    return uses


class _Collected(Observer):
    """An observer that keeps what it hears, to be passed on later."""

    def __init__(self) -> None:
        self.heard: list[tuple[NDArray[np.int64], str]] = []

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        self.heard.append((events, operation))


def _contribute(
    parent: Tensor,
    derivative: Derivative,
    incoming: NDArray,
    place: Place,
    gradients: dict[int, NDArray],
    complete: bool,
) -> None:
    """Add what one use of `parent` contributes to its gradient; `complete` if it is the last one."""
    unit = place.to_weight if parent.is_weight else place.to_activation
    observer = place.simulation.observer
    collected = _Collected()
    if parent.is_weight and (wants(observer, parent.path, "backward") or wants(observer, place.path, "backward")):
        unit = unit._replace(observer=collected)
    before, gradient = gradients.get(id(parent)), derivative(unit, incoming)
    if before is not None:
        gradient = unit.apply("add", before, gradient)
    if complete and parent.node is None and parent.grad is not None:
        # What earlier backward calls left is added to when the new gradient is complete, as in torch.
        gradient = unit.apply("add", parent.grad, gradient)
    gradients[id(parent)] = gradient
    if observer is not None and collected.heard:
        # The rounding that finished a parameter's gradient belongs to the parameter, the others to the layer.
        *steps, (events, operation) = collected.heard
        for step_events, step_operation in steps:
            observer.observe(step_events, step_operation, place.path, "backward")
        observer.observe(events, operation, parent.path if complete else place.path, "backward")
