"""The record of operations, and the backward pass, which walks from a result through the operations that led to it.

Every operation begins with its place and operands, and ends with its result and its node.

Parents are stored in tuples, and the walk follows them: the program fixes the order of every addition of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.catalog import Reads
from simfloat.arithmetic.target import adds_up, wants
from simfloat.autodiff.variable import (
    BoundOperation,
    ChangeGuard,
    Derivative,
    GradientArithmetic,
    Guard,
    Node,
    SplitPart,
    Trace,
    Variable,
    as_variable,
    change_error,
    guard_of,
)
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, FP64, Format
from simfloat.simulation.arithmetic import Arithmetic, PendingEvents
from simfloat.simulation.context import CONTEXT, context_in_block
from simfloat.simulation.formulas import sum_to_shape
from simfloat.simulation.place import Place, contains, widest_format
from simfloat.simulation.simulation import Simulation, current
from simfloat.simulation.streams import Streams

#: The class of the tensors that operations return.
Result = TypeVar("Result")

Operand = Variable | ArrayLike


class OperationResult(NamedTuple):
    """The result of an operation, from which a tensor is created."""

    numbers: NDArray
    format: Format | None
    node: Node | None
    made_with: Streams | None = None
    moved: Variable | None = None


class Operations(Variable, Generic[Result]):
    """Operations as methods: each returns its result as a tensor."""

    @staticmethod
    def from_result(result: OperationResult) -> Result:
        """Return a result as a tensor."""
        raise NotImplementedError


class BegunOperation(NamedTuple):
    """An operation on these operands, before it is computed."""

    bound: BoundOperation
    operands: tuple[Variable, ...]  # as used: parameters are rounded to the role weights
    is_recorded: bool  # True if it is recorded for backward
    simulation: Simulation

    @property
    def forward(self) -> Arithmetic:
        """The arithmetic of the result."""
        place = self.bound.place
        if not place.is_widest:
            return place.forward
        # As in array promotion, 0-dimensional operands are ignored next to arrays, and constants next to results.
        operands = self.operands
        counting = [x for x in operands if x.ndim] or [x for x in operands if x.format is not None] or operands
        return place.forward_in(widest_format(x.stored_format for x in counting))


def begin(operation: str, *operands: Operand) -> BegunOperation:
    """Begin an operation, which may read only the values of `BegunOperation.operands`, not of `operands`.

    A parameter with values outside its format is used as rounded to it; the stored values do not change.
    """
    variables = [x if isinstance(x, Variable) else as_variable(x) for x in operands]
    now = CONTEXT.get()
    if now.is_in_generator or now.simulation is None:
        now = context_in_block()
    simulation = now.simulation
    used, paths, requires_grad = [], [], False
    for x in variables:
        path = None
        if x.is_weight:
            place = simulation.update_place(x)
            path, x = place.path, x.operand_at(place)
        else:
            if x.moved is not None:
                path = simulation.path_of(x.moved)
            if x.made_with is not None:
                simulation.repeated_draws.continue_from(x.made_with)
        used.append(x)
        paths.append(path)
        requires_grad = requires_grad or x.requires_grad
    key = operation, now.path, now.composites, tuple(paths)
    bound = simulation.bound_operations.get(key) or _bind(simulation, *key)
    if not simulation.repeated_draws.has_begun:
        simulation.repeated_draws.begin(simulation.policy, now.path, operation, [x.numbers for x in used])
    is_recorded = now.recording and requires_grad
    if is_recorded and bound.border is not None:
        used = [_enter_fused_composite(x, path, bound.border) for x, path in zip(used, paths, strict=True)]
    return BegunOperation(bound, tuple(used), is_recorded, simulation)


def _bind(
    simulation: Simulation, operation: str, path: str, composites: tuple[str, ...], parameters: tuple[str | None, ...]
) -> BoundOperation:
    """Return an operation at its place, on operands that are the parameters at these paths, or activations."""
    place = simulation.place_at(operation, path, composites)
    around = place.fused_composite
    border = simulation.place_at(around[-1], path, around[:-1]) if around else None
    key = operation, path, composites, parameters
    bound: BoundOperation = simulation.bound_operations.setdefault(key, BoundOperation(place, parameters, border))
    return bound


def _enter_fused_composite(x: Variable, path: str | None, border: Place) -> Variable:
    """Return an operand for an operation inside a fused composite: unchanged, or as a copy that marks the border.

    The gradient of a tensor from outside, such as a parameter that the composite uses without receiving it as an
    operand, is rounded to its role where it leaves the composite: at the place of the composite, the border.
    """
    around = border.operations
    if not x.requires_grad or (x.node is not None and x.node.place.operations[: len(around)] == around):
        return x
    formats = (x.stored_format,) if border.takes_formats else ()
    bound = BoundOperation(border, (path,), None)
    node = Node((_trace_of(x),), (lambda u, g: u.round(g),), bound, formats, x.origin)
    return Variable(x.numbers, True, x.format, node)


def _trace_of(x: Variable) -> Variable:
    """Return the variable that the record keeps: a leaf, a parameter, or the history of a result."""
    return x.trace if x.trace is not None else x if x.node is None else Trace(x)


def finish(
    started: BegunOperation,
    numbers: NDArray,
    format: Format | None,
    *derivatives: Derivative,
    reads: Reads = "",
    is_view: bool = False,
    inside: Sequence[Place] = (),
) -> OperationResult:
    """Return the result, recorded if one of the operands requires a gradient.

    The arrays that derivatives read are guarded until the backward pass. A view may share the array of the first
    operand. `inside` are the places of the steps of a composite.
    """
    bound, operands, is_recorded, _ = started
    place = bound.place
    moved = _parameter_of(operands[0]) if is_view and place.kind == "movement" else None
    if not is_recorded:
        return OperationResult(numbers, format, None, place.streams, moved)
    formats = _formats_of_gradients(place, operands, format) if place.takes_formats else ()
    read = tuple([x.numbers for x in operands]) if place.is_contraction else ()
    origin = operands[0].origin if is_view and _shares(numbers, operands[0].numbers) else ChangeGuard()
    guards = _guards(operands, reads) if reads else []
    if reads in ("result", "both"):
        guards.append(origin)
    # As in `_trace_of`, written out.
    parents = tuple([x.trace if x.trace is not None else x if x.node is None else Trace(x) for x in operands])
    node = Node(parents, derivatives, bound, formats, origin, guards, read, inside)
    return OperationResult(numbers, format, node, place.streams, moved)


def _formats_of_gradients(place: Place, operands: Sequence[Variable], result: Format | None) -> tuple[Format, ...]:
    """Return the formats of the gradients of operands, if gradients take formats."""
    # A 0-dimensional operand does not widen a result in 16 bits, and the sum of its gradient is in 16 bits as well.
    return tuple(
        [
            result
            if place.is_widest and not x.ndim and result is not None and contains(x.stored_format, result)
            else x.stored_format
            for x in operands
        ]
    )


def _parameter_of(operand: Variable) -> Variable | None:
    """Return the parameter that an operand is, or of which it is a moved view."""
    return _trace_of(operand) if operand.is_weight else operand.moved


def _shares(a: NDArray, b: NDArray) -> bool:
    """True if two arrays are the same, or views of the same array."""
    return (a if a.base is None else a.base) is (b if b.base is None else b.base)


def _guards(operands: tuple[Variable, ...], reads: Reads) -> list[Guard]:
    """Return guards of the operands that derivatives read, except plain numbers, which cannot be written to."""
    if reads == "other":
        operands = tuple([x for x, other in zip(operands, operands[::-1], strict=True) if other.requires_grad])
    guards: list[Guard] = []
    for x in operands if reads != "result" else ():
        if x.node is not None:
            origin = x.node.origin
            guards.append(origin if origin.watched is None else origin.guard())
        elif x.is_weight:
            guards.append(x.origin)
        elif x.numbers.ndim or type(x) is not Variable:
            guards.append(guard_of(x.numbers))
    return guards


def copy_if_recorded(started: BegunOperation, array: NDArray) -> NDArray:
    """Return indices or a mask that derivatives read, as a copy if the operation is recorded."""
    return array.copy() if started.is_recorded else array


def round_to_shape(arithmetic: Arithmetic, gradient: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Round a gradient to its role: its sum over the broadcast axes, or the gradient itself."""
    return arithmetic.round(gradient) if gradient.shape == shape else sum_to_shape(arithmetic, gradient, shape)


@in_usual_environment
def run_backward(root: Variable, gradient: NDArray) -> None:
    """Add the gradient of `root` to every leaf that requires one, in the arithmetic of the place of each operation."""
    if root.node is None:
        _add_to_leaf(root, gradient)
        return
    uses = _uses(root)
    gradients: dict[int, NDArray] = {id(root): gradient}
    # Formats of gradients so far, if gradients may take the formats of results.
    formats: dict[int, Format] = {id(root): FP32 if gradient.dtype == np.float32 else FP64}
    ready, splits, balance = [root], SplitGradients(), root.gradient_scaler
    while ready:
        variable = ready.pop()
        node, incoming = variable.node, gradients.pop(id(variable))
        if node is None:
            # A broadcast gradient is a read-only view of few elements.
            is_own = type(incoming) is np.ndarray and incoming.flags.writeable
            variable._grad = incoming if is_own else incoming.copy()
            continue
        bound = node.bound
        for guard in node.guards:
            if guard.watched is not None and not guard.is_intact():
                raise change_error(guard, bound.place)
        takes_formats = bound.place.takes_formats
        if takes_formats:
            incoming = _in_format_of_result(variable, node, incoming, formats[id(variable)])
        for number, parent in enumerate(node.parents):
            if parent.requires_grad:
                uses[id(parent)] -= 1
                complete = uses[id(parent)] == 0
                gradient_here, before = incoming, gradients.get(id(parent))
                if balance is not None:
                    gradient_here, before = balance.rescale(variable, node, number, incoming, before)
                arithmetic = bound.to_operands[number] or node.arithmetic(number)
                addition = arithmetic
                if takes_formats:
                    if before is not None or not complete:
                        format = _format_of_sum(parent, arithmetic.format, formats.get(id(parent)))
                        addition = arithmetic.in_format(format)
                    formats[id(parent)] = addition.format
                contribution = _observed_contribution if bound.is_observed[number] else _contribution
                gradients[id(parent)] = contribution(
                    node, number, arithmetic, addition, gradient_here, before, complete, splits
                )
                if complete:
                    ready.append(parent)


def _add_to_leaf(root: Variable, gradient: NDArray) -> None:
    """Run backward for a tensor that is not the result of an operation."""
    if not root.requires_grad:
        raise ValueError(
            "backward needs the result of an operation, inside `simulate`, on a tensor with requires_grad=True."
        )
    if root.grad is None:
        root.grad = gradient.copy()
        return
    simulation = current()
    path, place = simulation.path_of(root) if root.is_weight else None, simulation.place("add")
    format = root.operand_in(simulation).stored_format
    root.grad = place.to_operand(path, 0, format).add(root.grad, gradient)


def _uses(root: Variable) -> dict[int, int]:
    """Return the number of contributions to the gradient of each variable that leads to `root`, by identity."""
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


def _format_of_sum(parent: Variable, share: Format, before: Format | None) -> Format:
    """Return the format in which a share of this format is added to the gradient of `parent`, so far in `before`.

    As under automatic mixed precision, the shares of the gradient of a result are added in the format of the gradient,
    because each use has its own cast. A leaf is cast once for all products: their shares are added in the narrow one.
    """
    if parent.node is not None and parent.format is not None:
        return parent.node.place.format_of_gradient(parent.format)
    return share if before is None else widest_format((before, share))


def _in_format_of_result(variable: Variable, node: Node, gradient: NDArray, format: Format) -> NDArray:
    """Return a complete gradient, with values of `format`, in the format of gradients of the result of the operation.

    Under automatic mixed precision, PyTorch casts in this way the gradient that an FP32 operation passes back to a
    narrow result, and the argument of `backward`. All derivatives of the operation read the cast gradient.
    """
    if variable.format is None:
        return gradient
    arithmetic = node.place.to_activation(0, variable.format)
    return gradient if arithmetic.format == format else arithmetic.round(gradient)


def _observed_contribution(
    node: Node, number: int, u: Arithmetic, addition: Arithmetic, g: NDArray, before: NDArray | None, complete: bool,
    splits: SplitGradients,
) -> NDArray:  # fmt: skip
    """Return the gradient of a parent as `_contribution` does; the observer receives the last rounding at its path."""
    bound = node.bound
    path, spare = bound.paths[number], bound.gradient_arithmetics[number]
    # Another thread, or a backward pass within this one, takes another arithmetic from the list, or makes one.
    own = spare.pop() if spare else None
    if own is None or own.arithmetic is not u:
        own = _own_arithmetic(bound.place, path, u)
    observed, events = own.observed, own.events
    if events is None:
        if own.is_reusable:
            spare.append(own)
        return _contribution(node, number, u, addition, g, before, complete, splits)
    addition = observed if addition is u else addition.with_observer(observed.target.observer)
    gradient = _contribution(node, number, observed, addition, g, before, complete, splits)
    if complete and node.parents[number].node is None:
        # The gradient of a sum is one rounded value that is broadcast to all elements; its events count for each of
        # them.
        is_spread = 0 in gradient.strides
        events.release(path, gradient.size if is_spread else None)
    else:
        events.release()
    if own.is_reusable:
        spare.append(own)
    return gradient


def _own_arithmetic(place: Place, path: str | None, u: Arithmetic) -> GradientArithmetic:
    """Return the arithmetic of a gradient whose last rounding counts at the path of a parameter."""
    observer, layer = place.observer, place.path
    # An observer of another class may need other events later.
    is_reusable = adds_up(observer)
    if path is None or not (wants(observer, path, "backward") or wants(observer, layer, "backward")):
        return GradientArithmetic(u, u, None, is_reusable)
    events = PendingEvents(observer, layer)
    return GradientArithmetic(u, u.with_own_observer(events), events, is_reusable)


def _contribution(
    node: Node, number: int, u: Arithmetic, addition: Arithmetic, g: NDArray, before: NDArray | None, complete: bool,
    splits: SplitGradients,
) -> NDArray:  # fmt: skip
    """Return the gradient of a parent including the contribution of this use, computed by `u` from the gradient `g` of
    the result, and added by `addition`; `complete` is True for the last use.
    """
    parent, gradient = node.parents[number], node.derivatives[number](u, g)
    is_wide = addition is not u and not contains(addition.format, u.format)
    if isinstance(gradient, SplitPart):
        part = gradient._replace(numbers=addition.round(gradient.numbers)) if is_wide else gradient
        gradient = splits.with_part(parent, before, part, addition)
    else:
        gradient = addition.round(gradient) if is_wide else gradient
        gradient = gradient if before is None else addition.apply("add", before, gradient)
    if complete and parent.node is None and parent._grad is not None:
        # As in PyTorch, the gradient of earlier backward calls is added only when the new gradient is complete.
        stored = node.to_stored(number, u) if node.bound.place.takes_formats else u
        gradient = stored.apply("add", parent._grad, gradient)
    return gradient


class SplitGradients:
    """The gradients, in one backward pass, of variables that were split.

    The parts that one operation returned share no element, so their gradients are written into one array; other
    contributions are added. For a sequence that is split into its n steps, this takes n small arrays, not n large
    ones.
    """

    def __init__(self) -> None:
        # An array that only this class writes to, and the operation that split it.
        self._arrays: dict[int, tuple[NDArray, Any]] = {}

    def with_part(self, parent: Variable, before: NDArray | None, part: SplitPart, arithmetic: Arithmetic) -> NDArray:
        """Return the gradient of `parent`, `before` or zeros, with the gradient of a part added."""
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
