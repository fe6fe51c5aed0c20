"""Run operations with a formula as one call each, forward and backward, if nothing needs the single operations.

A row (`FormulaCall`) names the formula, the formulas of the gradients, and the tensors that they read. `FormulaNode`
runs every row. Its node is in the place of the node of PyTorch's operation, so that gradients are added in the same
order, and the results have the bits of the single operations. `is_alone` and `unwatched_place` check if one call may
replace single operations, each of which calls Python.

`kernel_of` returns a kernel that replaces PyTorch's kernel of an operation above autograd. So a row also runs if the
program calls the operation by another name, or by a function that a module stored before the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from numpy.typing import NDArray

from simfloat.arithmetic.target import adds_up
from simfloat.environment import in_usual_environment
from simfloat.formats import Format
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic, PendingEvents
from simfloat.simulation.inside import CompositeArithmetic
from simfloat.simulation.place import Place
from simfloat.torch.backward import current_node, takes_whole
from simfloat.torch.forward_log import Operand, is_recomputing, observed_at, pending_events_at, place_observed_once
from simfloat.torch.handlers import USERS
from simfloat.torch.open_run import active_run, is_transformed, outside_block, without_dispatch
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import Tag, array_on, match_layout, put_tag, tag_of, tagged_tensor, tensor_on

Tensor = torch.Tensor
Arguments = tuple[Any, ...]
aten = torch.ops.aten


def is_alone(run: RunContext) -> bool:
    """True if only the run receives the operations: no list, user's rule, mode, transform or other observer does.

    An observer that only adds up events, such as a `Recorder`, needs no single operations.
    """
    observer = run.simulation.observer
    if (observer is not None and not adds_up(observer)) or run.shown is not None or USERS:
        return False
    # Another mode, such as a FlopCounterMode of the program, needs the single operations.
    return torch._C._len_torch_dispatch_stack() == 1 and not is_transformed()


def unwatched_place(run: RunContext, operation: str) -> Place | None:
    """Return the place of an operation of the forward pass, if its operations need no separate places.

    Neither random bits nor overrides distinguish them, and float32 can represent their results and gradients.
    """
    if torch._C._is_any_autocast_enabled() or not (current_node() is None or is_recomputing()):
        return None
    # In a composite the operations have other places, and in an optimizer they are updates.
    if not is_alone(run) or run.composites or (run.optimizing.step and run.optimizing.optimizer is not None):
        return None
    calls = run.paths.calls
    place = run.simulation.place_at(operation, calls[-1][1] if calls else run.path, ())
    return place if place.is_uniform else None


def has_saved_tensor_hooks() -> bool:
    """True if hooks of the program save values for the backward pass, and may run operations again for it."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def are_plain(*tensors: Any) -> bool:
    """True if all are ordinary, nonempty tensors of float32 values."""
    for x in tensors:
        if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.dtype != torch.float32 or not x.numel():
            return False
        if x.layout is not torch.strided:
            return False
    return True


def _of_operand(g: Any, arguments: Sequence[Any], outputs: Sequence[Any], mask: list[bool]) -> Arguments:
    return g, *arguments


@dataclass(frozen=True, eq=False)
class FormulaCall:
    """An operation of PyTorch and its backward pass, by their formulas: (arithmetic, *arguments) -> values.

    `arguments_back` returns the arguments of the backward pass for (g, arguments, outputs, mask), where `outputs` are
    the values that the formula returns, and the mask contains a boolean for each operand. Tensors that the backward
    pass does not read are None.
    """

    name: str  # in policies
    operation: Any
    formula: Callable[..., Any]
    way_back: Any  # PyTorch's operation of the backward pass
    slopes: tuple[Callable[..., NDArray] | None, ...]  # for each operand; None if the gradient passes unchanged
    arguments_back: Callable[[Any, Sequence[Any], Sequence[Any], list[bool]], Arguments] = _of_operand
    operands: tuple[int, ...] = (0,)  # the numbers of the arguments that have gradients
    reads: tuple[int, ...] = ()  # the numbers of the arguments that the backward pass reads
    outputs: tuple[int, ...] = ()  # the numbers of the outputs that it reads
    is_composite: bool = True  # its steps have their own places
    serves: Callable[..., bool] | None = None  # returns True for arguments that the formulas support; None for all
    writes: Callable[..., tuple[int, ...]] | None = None  # returns the numbers of the arguments that it writes to
    recorded: Callable[..., Any] | None = None  # the backward pass by other operations of PyTorch than `way_back`
    is_product: bool = False  # the gradient of each factor reads only the other factor
    are_differentiable: bool = False  # all outputs have gradients, which `recorded` takes as its last arguments
    is_in_place: bool = False  # the result is written to the first argument
    has_own_layout: bool = False  # gradients are in C order, not in the order of the gradient of the result

    @cached_property
    def how(self) -> str:
        """The way of execution, for tables."""
        return "decomposition" if self.is_composite else "rule"

    @cached_property
    def returns_one(self) -> bool:
        """True if PyTorch's operation returns one tensor."""
        return len(self.operation._schema.returns) == 1


def kernel_of(call: FormulaCall, original: Any) -> Callable[..., Any]:
    """Return a kernel that runs the row `call` if possible, otherwise the original kernel."""
    schema = call.operation._schema.arguments
    names = {argument.name: number for number, argument in enumerate(schema)}
    defaults = [argument.default_value for argument in schema]

    def kernel(keys: Any, *args: Any, **options: Any) -> Any:
        run: Any = active_run()
        if run is not None and not has_saved_tensor_hooks():
            place, arguments = served_place(run, call), [*args, *defaults[len(args) :]]
            for name, value in options.items():
                arguments[names[name]] = value
            if place is not None and _are_supported(call, arguments):
                if call.serves is None or call.serves(*arguments):
                    return run_formula(run, call, place, tuple(arguments))
        return original.call_boxed(keys, *args, **options)

    return kernel


def _are_supported(call: FormulaCall, arguments: Sequence[Any]) -> bool:
    """True if the tensors are contiguous tensors of a forward pass, and only operands require gradients."""
    if call.is_in_place and not _is_writable(arguments[0]):
        return False
    # Results of a formula are in C order. For any other layout the single operations reproduce PyTorch's layout.
    for number, x in enumerate(arguments):
        if not isinstance(x, Tensor) or not x.is_floating_point() and number not in call.operands:
            continue
        if not are_plain(x) or not x.is_contiguous() or x.requires_grad and number not in call.operands:
            return False
        tag = tag_of(x)
        if tag.is_gradient or tag.narrow is not None or tag.is_weight and len(call.operands) == 1:
            return False
    return True


def _is_writable(x: Any) -> bool:
    """True if an operation may write to a tensor: not to views, leaves with gradients, parameters or moments."""
    # PyTorch numbers the nodes of writes to views differently, and raises an error for leaves with gradients.
    return not (x._is_view() or (x.requires_grad and x.is_leaf) or tag_of(x).owner is not None)


def served_place(run: RunContext, call: FormulaCall) -> Place | None:
    """Return the place of an operation if it may be part of a larger call, and is no composite that is rounded once."""
    place = unwatched_place(run, call.name)
    if place is None or (call.is_composite and place.is_fused):
        return None
    # Gradients of gradients have the bits of single operations, but an observer would count some operations more often.
    return None if call.are_differentiable and place.observer is not None else place


def run_formula(run: RunContext, call: FormulaCall, place: Place, arguments: Arguments) -> Tensor:
    """Return the result of a row for the arguments of PyTorch's operation."""
    # Every single operation starts with this: it notices a change of policy, and new memory of a parameter.
    if run.parameters.is_outdated:
        run.parameters.arguments_as_read(call.operation, arguments, {})
    # The table of the run lists the operation as if PyTorch had dispatched it.
    run.operation_counts.begin(call.operation, call.how, place.path)
    with without_dispatch():
        return apply_formula(run, call, place, arguments, *[arguments[number] for number in call.operands])


class Steps(CompositeArithmetic):
    """The arithmetic of a composite whose steps have uniform places: each step has one arithmetic in all calls."""

    def __init__(self, simulation: Simulation, place: Place) -> None:
        super().__init__(simulation, place, lambda step, _: step.forward)
        self._arithmetics: dict[str, Arithmetic] = {}

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """Compute an elementwise operation, which is also the name of the step."""
        arithmetic = self._arithmetics.get(operation)
        if arithmetic is None:
            arithmetic = self._arithmetics[operation] = self.place_of(operation).forward
            self._format = arithmetic.format
        return arithmetic.apply(operation, *operands)


def _arithmetic_at(run: RunContext, call: FormulaCall, place: Place) -> Any:
    """Return the arithmetic of a formula at its place."""
    if place.observer is not None:
        place = place_observed_once(place)
    if not call.is_composite:
        return place.forward
    # All steps of a uniform place have one format. Determined anew in each call, the arithmetics of the steps took
    # seven calls of Python for each operation.
    steps: Steps | None = place.bound_layers.get(Steps)
    if steps is None:
        steps = place.bound_layers[Steps] = Steps(run.simulation, place)
    return steps


class FormulaNode(torch.autograd.Function):
    """(run, row, place, arguments, *operands) -> the formula of the row for these arguments."""

    @staticmethod
    @in_usual_environment
    def forward(
        context: Any, run: RunContext, call: FormulaCall, place: Place, arguments: Arguments, *operands: Tensor | None
    ) -> Tensor | tuple[Tensor, ...]:
        """Return the results of PyTorch's operation."""
        present = operands if len(operands) == 1 else [x for x in operands if x is not None]
        note = run.notes.begin(place, present)  # type: ignore[arg-type]
        u, tensors = _arithmetic_at(run, call, place), list[Tensor]()
        outputs = call.formula(u, *run.parameters.arrays(arguments))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        format = u.format_of(outputs[0]) if call.is_composite else u.format
        tag = Tag(format)
        for array in outputs:
            tensors.append(tagged_tensor(array, tag))
        for number in () if call.writes is None else call.writes(*arguments):
            if arguments[number] is not None:
                put_tag(arguments[number], tag_of(arguments[number])._replace(format=format))
        if call.is_in_place:
            target: Any = operands[0]
            before = tag_of(target)
            target.copy_(tensors[0])
            run.note_overwrite(target, before, tag)
            context.mark_dirty(target)
            tensors[0] = target
        if note is not None:
            note.format, note.is_one_call = format, True
        # Otherwise autograd creates a tensor of zeros for a result without a gradient, and a formula would round zeros.
        context.set_materialize_grads(False)
        context.run, context.call, context.note, context.count = run, call, note, len(tensors)
        context.is_given = (True,) if present is operands else [x is not None for x in operands]
        context.arguments = [None if isinstance(x, Tensor) else x for x in arguments]
        # As in PyTorch, only the factors that the needed gradients read are saved.
        needed = context.needs_input_grad[:3:-1] if call.is_product else (True,) * len(call.reads)
        saved = [arguments[i] if is_read else None for i, is_read in zip(call.reads, needed, strict=True)]
        # Dispatch is off, so saving and unpacking call no operations. Autograd saves a detached alias of each of its
        # own results, and each alias would call Python.
        context.save_for_backward(*saved, *[tensors[i] for i in call.outputs])
        if not call.are_differentiable:
            context.mark_non_differentiable(*tensors[1:])
        return tensors[0] if call.returns_one else tuple(tensors)

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: Tensor | None, *others: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the operands."""
        call, run, needed = context.call, context.run, context.needs_input_grad[4:]
        of_outputs = others if call.are_differentiable and any(x is not None for x in others) else ()
        if g is None and not of_outputs:
            return (None,) * (4 + len(needed))
        with without_dispatch():
            saved = context.saved_tensors
        arguments, outputs = list(context.arguments), [None] * context.count
        for number, x in zip(call.reads, saved, strict=False):
            arguments[number] = x
        for number, x in zip(call.outputs, saved[len(call.reads) :], strict=True):
            outputs[number] = x
        if call.way_back is None:
            return None, None, None, None, g
        active = active_run()
        if active is not None and active is not run:
            raise outside_block(call.name)
        needed = list(needed) if active is None else needed_gradients(run, needed, context.is_given)
        back = call.arguments_back(g, arguments, outputs, needed)
        if active is None or torch.is_grad_enabled() or of_outputs:
            # After the block, a backward pass is PyTorch's own. With create_graph=True the pass itself is recorded, and
            # autograd needs PyTorch's operation for the node.
            is_recorded = torch.is_grad_enabled() or of_outputs or not call.are_differentiable
            way_back = call.recorded if is_recorded and call.recorded else call.way_back
            gradients = way_back(*back, *of_outputs)
            return None, None, None, None, *(gradients if isinstance(gradients, tuple | list) else (gradients,))
        assert g is not None
        with without_dispatch():
            path = run.path_of(context.note)
            for _number in range(sum(needed) if call.is_product else 1):
                run.operation_counts.begin(call.way_back, call.how, path)
            # The note has only the operands that are given.
            numbers = [sum(context.is_given[:i]) if x else None for i, x in enumerate(needed)]
            arrays = run.parameters.arrays(back)
            return None, None, None, None, *_gradients(run, call, context.note, g, arrays, numbers)


#: `apply` of the autograd function, without its check for transforms of torch.func, which are inactive.
apply_formula: Callable[..., Tensor] = super(torch.autograd.Function, FormulaNode).apply


def needed_gradients(run: RunContext, needed: Sequence[bool], is_given: Sequence[bool]) -> list[bool]:
    """Return which operands need a gradient in this backward pass, of those that require one and are given."""
    if run.backward_nodes.innermost.is_whole:
        return list(needed)
    # There is an edge for each operand that is given.
    edges = iter(current_node().next_functions)
    targets = [next(edges)[0] if has_edge else None for has_edge in is_given]
    return [a and run.backward_nodes.reaches(target) for a, target in zip(needed, targets, strict=True)]


def _gradients(
    run: RunContext, call: FormulaCall, note: Any, g: Tensor, arrays: list[Any], numbers: Sequence[int | None]
) -> list[Tensor | None]:
    """Compute the gradients of the operands with these numbers in the note; None for one that is not needed."""
    node, place, gradients = current_node()._sequence_nr(), note.place, list[Tensor | None]()
    if place.observer is not None:
        place = place_observed_once(place)
    for slope, number in zip(call.slopes, numbers, strict=True):
        if slope is None or number is None:
            gradients.append(None)
            continue
        operand = note.operands[number]
        find = place.to_operand if place.observer is None else partial(gradient_arithmetic, place)
        arithmetic = find(operand.path, number, operand.format)
        array = slope(arithmetic, *arrays)
        if operand.path is None:
            gradient: Tensor | None = gradient_tensor(array, arithmetic, node)
        else:
            gradient = store_gradient(run, place, operand, number, array, arithmetic, node)
        if gradient is not None and not (call.has_own_layout or g.is_contiguous()):
            tag, gradient = tag_of(gradient), match_layout(gradient, g)
            put_tag(gradient, tag)
        gradients.append(gradient)
    return gradients


def gradient_arithmetic(place: Place, path: str | None, number: int, format: Format | None) -> Arithmetic:
    """Return the arithmetic of the gradient of an operand; it keeps the events of a parameter's gradient."""
    if path is None or place.observer is None:
        return place.to_operand(path, number, format)
    key = PendingEvents, path, number, format
    arithmetic: Arithmetic | None = place.bound_layers.get(key)
    if arithmetic is None:
        events = pending_events_at(place, path)
        arithmetic = place.bound_layers[key] = place.to_weight(path, number, format).with_own_observer(events)
    elif isinstance(arithmetic.target.observer, PendingEvents):
        arithmetic.target.observer.pending.clear()  # of a call that raised an error
    return arithmetic


def store_gradient(
    run: RunContext, place: Place, operand: Operand, number: int, array: NDArray, arithmetic: Arithmetic, node: int,
    view: Any = None,
) -> Tensor | None:  # fmt: skip
    """Return the gradient of a parameter for autograd; None if it is complete, and was stored as `.grad`.

    If `.grad` exists, the gradient was added to it. Autograd would do the same, but by up to three operations that each
    call Python. `arithmetic` computed it and keeps its events, `number` is the number of the operand at the place, and
    `view` the operation between the parameter and the operand.
    """
    leaf, events = run.backward_nodes.innermost.completed.get(str(operand.path)), arithmetic.target.observer
    if leaf is not None and events is not None and isinstance(events, PendingEvents):
        events.release(operand.path if leaf.grad is None else None)
    if leaf is None or not takes_whole(leaf, str(operand.path)):
        return gradient_tensor(array, arithmetic, node)
    if leaf.grad is None:
        leaf.grad = tagged_tensor(array, Tag(arithmetic.target.format, True, operand.path, node=node))
        return None
    if view is not None:
        run.count_operation(view, "movement")
    run.operation_counts.begin(aten.add_.Tensor, "rule", run.paths.path or "")
    stored = place.to_stored(operand.path, number, operand.format)
    if place.observer is not None:
        stored = observed_at(str(operand.path), place, stored)
    leaf.grad.copy_(tensor_on(stored.add(array_on(leaf.grad), array)))
    put_tag(leaf.grad, tag_of(leaf.grad)._replace(format=stored.format))
    return None


def gradient_tensor(array: NDArray, arithmetic: Arithmetic, node: int) -> Tensor:
    """Return a gradient that the node of this number computed, with the events that the arithmetic has kept."""
    observer = arithmetic.target.observer
    events = observer.detach() if observer is not None and isinstance(observer, PendingEvents) else None
    return tagged_tensor(array, Tag(arithmetic.target.format, True, node=node, events=events))
