"""The backward pass: the walk from a result over the operations that made it.

Parents stand in tuples, and the walk follows them: the order of every addition of gradients is fixed by the program.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import is_frozen, is_on_gpu
from simfloat.arithmetic.observer import wants
from simfloat.autodiff.guards import check_unchanged
from simfloat.autodiff.variable import Node, SplitPart, Variable
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, FP64, Format
from simfloat.simulation.arithmetic import Arithmetic, PendingEvents
from simfloat.simulation.simulation import current


@in_usual_environment
def run_backward(root: Variable, gradient: NDArray) -> None:
    """Give every leaf that requires one the gradient of `root`, in the arithmetic of each operation's own place."""
    if root.node is None:
        _add_to_leaf(root, gradient)
        return
    uses = _uses(root)
    gradients: dict[int, NDArray] = {id(root): gradient}
    # Of complete gradients, where gradients may take the formats of results.
    formats: dict[int, Format] = {id(root): FP32 if gradient.dtype == np.float32 else FP64}
    ready, splits, balance = [root], SplitGradients(), root.gradient_scaler
    while ready:
        variable = ready.pop()
        node, incoming = variable.node, gradients.pop(id(variable))
        if node is None:
            # A gradient that was spread is a view of few numbers, and read-only.
            variable.receive(incoming.copy() if is_frozen(incoming) or is_on_gpu(incoming) else incoming)
            continue
        if node.guards:
            check_unchanged(node.guards, node.place)
        if node.place.takes_formats:
            incoming = _in_format_of_result(variable, node, incoming, formats[id(variable)])
        for number, parent in enumerate(node.parents):
            if parent.requires_grad:
                uses[id(parent)] -= 1
                complete = uses[id(parent)] == 0
                gradient_here, before = incoming, gradients.get(id(parent))
                if balance is not None:
                    gradient_here, before = balance.rescale(variable, node, number, incoming, before)
                gradients[id(parent)] = _contribution(node, number, gradient_here, before, complete, splits)
                if complete:
                    ready.append(parent)
                    if parent.node is not None and node.place.takes_formats:
                        formats[id(parent)] = node.arithmetic(number).format


def _add_to_leaf(root: Variable, gradient: NDArray) -> None:
    """What backward does to a tensor that no operation made."""
    if not root.requires_grad:
        raise ValueError("backward needs a tensor made, inside `simulate`, from one with requires_grad=True.")
    if root.grad is None:
        root.grad = gradient.copy()
        return
    simulation = current()
    path, place = simulation.path_of(root) if root.is_weight else None, simulation.place("add")
    node = Node((root,), (), place, (path,), (root.operand_in(simulation).stored_format,), root.origin)
    root.grad = node.arithmetic(0).add(root.grad, gradient)


def _uses(root: Variable) -> dict[int, int]:
    """How many contributions the gradient of each variable that leads to `root` will have, by identity."""
    uses: dict[int, int] = {}
    stack = [root]
    while stack:
        node = stack.pop().node
        if node is None:
            continue
        for parent in node.parents:
            if parent.requires_grad:
                if id(parent) not in uses:
                    uses[id(parent)] = 0
                    stack.append(parent)
                uses[id(parent)] += 1
    return uses


def _in_format_of_result(variable: Variable, node: Node, gradient: NDArray, format: Format) -> NDArray:
    """A complete gradient, of numbers of `format`, in the format that gradients of the operation's result have.

    Under automatic mixed precision PyTorch casts so what an operation in FP32 passes back to a narrow result, and what
    `backward` is given; the operation's derivatives all read the gradient that was cast.
    """
    if variable.format is None:
        return gradient
    arithmetic = node.place.to_activation(0, variable.format)
    return gradient if arithmetic.format == format else arithmetic.round(gradient)


def _contribution(
    node: Node, number: int, incoming: NDArray, before: NDArray | None, complete: bool, splits: SplitGradients
) -> NDArray:
    """The gradient of a parent so far, with what this use contributes to it; `complete` if it is the last one."""
    parent, place, path = node.parents[number], node.place, node.paths[number]
    arithmetic = node.arithmetic(number)
    if path is None or not (wants(place.observer, path, "backward") or wants(place.observer, place.path, "backward")):
        return _gradient(node, number, arithmetic, incoming, before, complete, splits)
    events = PendingEvents(place.observer, place.path)
    gradient = _gradient(node, number, arithmetic.with_observer(events), incoming, before, complete, splits)
    if complete and parent.node is None:
        # What a sum's gradient is rounded to is spread over all elements, and counts for each of them.
        is_spread = 0 in gradient.strides
        events.release(path, gradient.size if is_spread else None)
    else:
        events.release()
    return gradient


def _gradient(
    node: Node,
    number: int,
    arithmetic: Arithmetic,
    incoming: NDArray,
    before: NDArray | None,
    complete: bool,
    splits: SplitGradients,
) -> NDArray:
    parent, gradient = node.parents[number], node.derivatives[number](arithmetic, incoming)
    if isinstance(gradient, SplitPart):
        gradient = splits.with_part(parent, before, gradient, arithmetic)
    elif before is not None:
        gradient = arithmetic.add(before, gradient)
    if complete and parent.node is None and parent.grad is not None:
        # What earlier backward calls left is added to when the new gradient is complete, as in torch.
        gradient = node.to_stored(number, arithmetic).add(parent.grad, gradient)
    return gradient


class SplitGradients:
    """The gradients, in one backward pass, of variables that were split.

    The parts that one operation made are written into one array, for they share no element; what else contributes to
    the gradient is added. So a sequence that is split into its n steps costs n small arrays, not n large ones.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[NDArray, Any]] = {}  # an array that only we write to, and what split it

    def with_part(self, parent: Variable, before: NDArray | None, part: SplitPart, arithmetic: Arithmetic) -> NDArray:
        """The gradient of `parent`, `before` if there is one so far, with that of a part."""
        array, by = self._arrays.get(id(parent), (None, None))
        if before is None:
            array, by = np.zeros(parent.shape, part.numbers.dtype, like=part.numbers), part.by
        elif array is not before:
            array, by = before.copy(), None
        elif by is not part.by:
            by = None
        array[part.key] = part.numbers if by is part.by else arithmetic.add(array[part.key], part.numbers)
        self._arrays[id(parent)] = array, by
        return array
