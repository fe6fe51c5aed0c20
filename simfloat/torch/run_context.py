"""Store the state of a run while its block is open, and count its operations.

`OperationCounts` counts how each operation was carried out, in which layer, and how often. `RunContext` determines the
place of operations and the tags of their results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any

import torch

from simfloat.arithmetic.catalog import kind_of
from simfloat.formats import Format
from simfloat.policy.roles import MOVEMENT
from simfloat.simulation import Simulation
from simfloat.simulation.place import Place, widest_format
from simfloat.torch.backward import BackwardNodes, CurrentNode, Gradients, are_replicas, current_node
from simfloat.torch.forward_log import (
    ACCUMULATING,
    ForwardLog,
    LoggedOperation,
    Operand,
    rerun_number,
)
from simfloat.torch.open_run import is_scaling, outside_block, this_thread
from simfloat.torch.optimizers import OptimizerSteps
from simfloat.torch.parameters import StoredParameters
from simfloat.torch.paths import ModulePaths
from simfloat.torch.phases import (
    Backward,
    Clipping,
    Forward,
    ForwardInFormat,
    GradientSum,
    ReplicaMean,
    Update,
    target_of_rule,
)
from simfloat.torch.tensors import (
    FORMAT_OF,
    NOTHING,
    Tag,
    before_upcast,
    has_parts,
    numbers_of,
    put_own_tag,
    put_tag,
    result_type,
    stored_format,
    stored_tensor,
    tag_of,
    wrapped_gradients,
)

#: The entry of the table for results that PyTorch itself computed.
BY_PYTORCH = "PyTorch"


class OperationCounts:
    """The counts of operations so far.

    Operations are keyed by identity, because PyTorch's own comparison takes longer.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str], int] = {}
        self._functions: dict[int, Any] = {}
        self._last: tuple[int, str, str] = (0, "", "")

    def begin(self, function: Any, how: str, path: str) -> None:
        """Count an operation that is about to be carried out in this way."""
        # `OpOverload.__hash__` is a function in Python (torch 2.13), which a lookup by the operation itself would call
        # each time. `_functions` keeps every operation alive, so that no id is reused.
        self._last = key = id(function), how, path
        if key in self._counts:
            self._counts[key] += 1
        else:
            self._counts[key], self._functions[key[0]] = 1, function

    def exclude(self) -> None:
        """Count the operation that began last as carried out by PyTorch."""
        before = self._last
        self._counts[before] -= 1
        if not self._counts[before]:
            del self._counts[before]
        self.begin(self._functions[before[0]], BY_PYTORCH, before[2])

    def counts(self) -> Counter[tuple[Any, str, str]]:
        """Return the number of calls by operation, way of execution and path of the layer."""
        return Counter({(self._functions[key[0]], *key[1:]): count for key, count in self._counts.items()})


#: Operations with the places where they compute, in a dry run.
Shown = dict[tuple[str, Place], None]

#: The name in notes of the multiplication of a loss by its scale. PyTorch computes it in the dtype of the loss.
SCALE = "scale"

#: The operation by which autograd stores its own results; it creates no node.
DETACH = torch.ops.aten.detach.default


class RunContext:
    """The state of a run while its block is open."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.run: Any = None  # the `Run` of the user's program
        # A block inside a rule, with operations that are also dispatched to this run.
        self.redispatch: AbstractContextManager[Any] = nullcontext()
        self.notes = ForwardLog()
        self.paths = ModulePaths(simulation)
        self.parameters = StoredParameters(simulation)
        self.gradients = Gradients(simulation, lambda number: self.notes.by_number.get(number))
        self.backward_nodes = BackwardNodes(self._note_of, self.gradients)
        self.optimizing = OptimizerSteps(simulation)
        self.operation_counts = OperationCounts()
        self.shown: Shown | None = None  # only in a dry run, which lists operations without a rule
        self.constant_format: Format | None = None  # the format of values that depend on no tensor; None for data
        self.composites: tuple[str, ...] = ()  # the composites that run, the outermost first
        self._thread = this_thread()

    def begin(self) -> None:
        """Begin a block. Autograd numbers its nodes per thread, so nodes of another thread are forgotten."""
        if self._thread is not this_thread():
            self._thread = this_thread()
            # Numbers of nodes are counted per thread: in another thread they denote other nodes.
            self.notes = ForwardLog()
            self.backward_nodes.forget()
            self.paths.forget()
        self.notes.skip()

    def pause(self) -> None:
        """Stop following modules: PyTorch computes the operations that follow."""
        self.paths.pause()

    def resume(self) -> None:
        """Continue after PyTorch's own arithmetic, and read the parameters again."""
        self.paths.resume()
        self.notes.skip()
        self.parameters.renew()

    def check_between_steps(self, what: str = "A policy is switched") -> None:
        """Raise ValueError for an action that is not possible while a module, a backward pass or an optimizer runs."""
        self.paths.forget_ended_calls()
        module = self.paths.path
        if module is not None or current_node() is not None or self.optimizing.optimizer is not None:
            where = "a backward pass or an optimizer" if module is None else f"the module {module!r}"
            raise ValueError(f"{what} between steps, not while {where} runs.")
        self.paths.follow()

    @property
    def path(self) -> str:
        """The path of the module that runs forward or backward."""
        node = None if self.paths.calls else self.backward_nodes.current()
        return self.path_of(node and node.note)

    def path_of(self, note: LoggedOperation | None) -> str:
        """Return the path of the module that runs forward, otherwise the path of the note of the node that runs."""
        calls = self.paths.calls
        if calls:
            return calls[-1][1]
        return "" if note is None else note.place.path

    def count_operation(self, func: Any, how: str) -> None:
        """Count an operation that is about to be carried out in this way."""
        self.operation_counts.begin(func, how, self.path)

    def phase(self, operation: str, operands: Sequence[torch.Tensor], into: Tag = NOTHING) -> Forward | None:
        """Return the phase of an operation on these operands; None for counters of an optimizer."""
        node = self.backward_nodes.current()
        # If a policy rounded GradScaler's products, scales beyond its formats would raise errors; the first scale is
        # 2^16. The note makes the backward pass leave the gradient of this multiplication to PyTorch as well.
        if is_scaling():
            if operands and current_node() is None and torch.is_grad_enabled():
                self.notes.begin(self.simulation.place(SCALE, ""), operands)
            return None
        if node is not None:
            phase = self._backward(node, operation, operands)
            if phase is not None and torch.is_grad_enabled():
                phase.note = self._note_of_backward(phase.place, operands)
            return phase
        if into.is_weight:
            self.simulation.repeated_draws.update(None)  # what runs next uses other values
            # Not only optimizers write parameters: `p -= lr * p.grad` under no_grad is an update because its target is
            # a parameter.
            return self._update(str(into.owner), into)
        # With gradients enabled, an optimizer evaluates a closure: that is a forward pass. Operands without an owner
        # are counters and rates of the optimizer.
        if self.optimizing.optimizer is not None and not torch.is_grad_enabled():
            owner = next((tag.owner for x in operands if (tag := tag_of(x)).owner is not None), None)
            return None if owner is None else self._update(owner, into)
        gradients = [x for x in operands if tag_of(x).is_gradient]
        # Clipping and other arithmetic on gradients happens between backward pass and optimizer. Inside a module, or
        # together with an operand that requires a gradient, a gradient is input data of a forward pass.
        if gradients and self.paths.path is None and not any(stored_tensor(x).requires_grad for x in operands):
            # With a static graph, gradients become shares of replicas after the first backward pass, but still inside
            # its block.
            is_share = operation in ("multiply", "divide") and self.backward_nodes.innermost.nodes and are_replicas()
            place = self.simulation.place("update", tag_of(gradients[0]).owner or "")
            return (ReplicaMean if is_share else Clipping)(place, self.simulation)
        # Otherwise a product with such a tensor would take the role of gradients.
        for x in gradients:  # input data of a forward pass, such as a step towards a larger loss
            put_tag(x, tag_of(x)._replace(is_gradient=False))
        # The forward pass, or its recomputation by a checkpoint.
        place = self.in_operand_types(self.simulation.place(operation, self.path, self.composites), operands)
        is_written = self.notes.in_place
        if is_written and place.narrow is not None and tag_of(operands[0]).narrow is None:
            place = place.narrow
        note = None
        if torch.is_grad_enabled():
            note = self.notes.begin(place, operands)
        else:
            self.notes.skip()
        repeats = self.simulation.repeated_draws
        # The first operation of a simulation shows if another simulation ran with the same seed, policy and values.
        if not repeats.has_begun and self.shown is None:
            arrays = [numbers_of(x) for x in operands]
            repeats.begin(self.simulation.policy, place.path, operation, arrays)
        # In a recomputation by a checkpoint, the observer has received the events already in the first pass.
        place = place if current_node() is None else place.without_observer
        # PyTorch keeps the dtype of the tensor that is written to, and converts the other operand.
        if is_written and place.is_widest:
            return ForwardInFormat(place, self.simulation, note, stored_format(operands[0]))
        return Forward(place, self.simulation, note)

    def _update(self, owner: str, into: Tag) -> Update:
        return Update(self.simulation.place("update", owner), self.simulation, self.optimizing, into)

    def _backward(self, node: CurrentNode, operation: str, operands: Sequence[torch.Tensor]) -> Forward | None:
        if node.number == ACCUMULATING:
            return self.gradients.phase(current_node(), operation, operands)
        note, way = node.note, node.way
        if note is None:
            raise outside_block(current_node().name())
        # The backward pass of `loss * scale` starts a backward pass under a GradScaler.
        if note.place.operation == SCALE:
            return None
        # Each operation of the backward pass of a function of the program has its own place.
        if not note.operands and self._is_of_program(current_node()):
            place = self.simulation.place(operation, note.place.path, self.composites)
            note = LoggedOperation(self.in_operand_types(place, operands), ())
        # a backward pass inside a recomputed part: the observer received its events the first time
        if rerun_number() is not None:
            note = copy(note)
            note.place = note.place.without_observer
        # If a rule has named its operand, that is the operand. Otherwise it follows from the node that the operation
        # belongs to. If neither is known, the gradient has the role of the gradient of an activation, in the widest
        # format of the operands.
        number, part = target_of_rule()
        if part:
            note = copy(note)
            note.place = self.simulation.sibling(note.place, part, note.place.path, note.place.operations[:-1])
        operand: Operand | None = None
        own_format: Format | None = None
        if number is not None:
            operand = note.operand(number)
        elif way is not None:
            operand, own_format = way.operand_of_addition(operands) if way.results else (way.operand, None)
        # The engine adds the results of a node to other gradients while that node is still the current one.
        is_sum = way is not None and way is self.backward_nodes.ended
        # A moved parameter: the operations that read it have computed the shares, and their policy rounds the sum.
        is_movement = MOVEMENT in (note.place.operation, note.place.kind)
        if is_sum and operand is not None and operand.path is not None and is_movement:
            note, operand = self.gradients.reader(note, operand, operands)
        phase = (GradientSum if is_sum else Backward)(note, self.simulation, operand, way.events if way else None)
        if isinstance(phase, GradientSum):
            phase.own_format = own_format
        if self.composites and phase.is_fused:
            return phase.inside(operation)
        return phase.of_bias() if phase.is_of_bias(operation) else phase

    def in_place_of(self, path: str, x: Any) -> Any:
        """Return a tensor that replaces a parameter in a call, rounded to the `weights` of the parameter."""
        if path not in self.parameters.by_path or x is self.parameters.by_path[path]:
            return x
        if torch._C._functorch.is_gradtrackingtensor(x):
            raise wrapped_gradients()
        if torch._C._functorch.is_functorch_wrapped_tensor(x):
            raise ValueError(
                f"functional_call under vmap replaces {path!r} by a tensor that represents several; call the model "
                "with each of them in a loop."
            )
        copy = x.clone()
        # A clone is recorded, so gradients reach the tensor of the program through it, as in MAML's inner steps.
        self.parameters.stand_in(path, copy)
        note = None if copy.grad_fn is None else self.notes.at_node(copy.grad_fn)
        if note is not None:
            note.format, note.weight = tag_of(copy).format, path
        return copy

    def _note_of(self, node: Any) -> LoggedOperation | None:
        """Return the note of a node; for a function of the program, its name at the path of its module."""
        note = self.notes.at_node(node)
        path = self.paths.path_at(node._sequence_nr()) if note is None and self._is_of_program(node) else None
        if path is None:
            return note
        return LoggedOperation(self.simulation.place(node.name().removesuffix("Backward"), path), ())

    def _is_of_program(self, node: Any) -> bool:
        """True for the node of a torch.autograd.Function of the program; its operations have no nodes."""
        return isinstance(node, torch.autograd.function.BackwardCFunction) and self.notes.at_node(node) is None

    def _note_of_backward(self, place: Place, operands: Sequence[torch.Tensor]) -> LoggedOperation | None:
        """Note an operation of a recorded backward pass: its own backward pass has the same place."""
        if not self.backward_nodes.innermost.is_recorded:
            raise ValueError(
                f"{place.where}: a backward pass is recorded, by torch.enable_grad(), but not for gradients of "
                "gradients. Pass create_graph=True, do not use enable_grad, or use torch.utils.checkpoint for a part "
                "that runs again."
            )
        note = self.notes.begin(place, operands)
        if note is not None:
            note.is_of_backward = True
        return note

    def _note_operation(self, operation: str, operands: Sequence[torch.Tensor]) -> LoggedOperation | None:
        """Note an operation of the forward pass or of a backward pass, if autograd records it."""
        if not operands or not torch.is_grad_enabled():
            return None
        node = None if current_node() is None else self.backward_nodes.current()
        if node is None:
            place = self.simulation.place_at(operation, self.path_of(None), self.composites)
            return self.notes.begin(self.in_operand_types(place, operands), operands)
        leaf: Any = current_node()
        note = self.gradients.note(leaf.variable) if node.number == ACCUMULATING else node.note
        return None if note is None else self._note_of_backward(note.place, operands)

    def is_unrecorded(self, func: Any) -> bool:
        """True if autograd creates no node for an operation that moves values."""
        return not torch.is_grad_enabled() or (func is DETACH and self.notes.knows_last)

    def note(self, func: Any, operands: Sequence[torch.Tensor]) -> LoggedOperation | None:
        """Note a movement for the backward pass, if there is one."""
        if func is DETACH and self.notes.knows_last:
            return None
        return self._note_operation(_movement(func), operands)

    def place_of_movement(self, func: Any) -> Place:
        """Return the place of an operation that moves values."""
        return self.simulation.place(_movement(func), self.path, self.composites)

    @staticmethod
    def in_operand_types(place: Place, operands: Sequence[torch.Tensor]) -> Place:
        """Return the place in the dtype of the program, if the policy is written for such dtypes or keeps upcasts."""
        if place.is_written:
            return place.in_type(FORMAT_OF[result_type(operands)])
        wide = place.upcast
        return place if wide is None or before_upcast(operands) is None else wide

    def tag_of_moved(
        self, operands: Sequence[torch.Tensor], format_sources: Sequence[torch.Tensor] | None = None
    ) -> Tag:
        """Return the tag of values that were moved from these operands, or created without operands.

        The format of the result follows from `format_sources`, by default all operands; other operands may contain
        values that are put among them.
        """
        tags = [tag_of(x) for x in operands]
        formats = tags if format_sources is None else [tag_of(x) for x in format_sources]
        in_backward = self.backward_nodes.current() is not None
        format = None
        if formats and all(tag.format == formats[0].format for tag in formats):
            format = formats[0].format
        elif formats:
            # As in torch.cat of tensors of several formats: the widest format can represent all of these values.
            format = widest_format(stored_format(x) for x in (operands if format_sources is None else format_sources))
        if not tags:
            return Tag(self.constant_format if format is None else format, in_backward)
        first = tags[0]
        owner = next((tag.owner for tag in tags if tag.owner is not None), None)
        is_gradient = any(tag.is_gradient for tag in tags)
        # A movement of one parameter, such as a view or a transposition, is still the parameter: products round it as a
        # weight. Together with other values, in an optimizer or in the backward pass, it is not.
        is_weight = len(tags) == 1 and first.is_weight and self.optimizing.optimizer is None
        is_weight = is_weight and not in_backward
        return Tag(format, is_gradient, owner, is_weight, "", first.node, first.events, before_upcast(operands))

    def leave_to_pytorch(self, result: Any, operands: Sequence[torch.Tensor]) -> Any:
        """Return a result of PyTorch, count it, and mark it as a gradient if one of the operands is one."""
        self.operation_counts.exclude()
        if isinstance(result, torch.Tensor) and any(tag_of(x).is_gradient for x in operands):
            put_tag(result, Tag(is_gradient=True))
        return result

    def tag_of_target(self, target: torch.Tensor) -> Tag:
        """Return the tag of a tensor that is written to.

        A copy of a parameter, for example for an average, is not a parameter.
        """
        tag = tag_of(target)
        if not tag.is_weight:
            return tag
        # None if the copy was created in the block of another model
        parameter = self.parameters.by_path.get(str(tag.owner))
        # A clone of a parameter, as for an average of weights, has the tag of a weight, and movements pass it on. Only
        # writes to the memory of the model's own parameter are writes to a parameter.
        is_own = parameter is not None and parameter.untyped_storage().data_ptr() == target.untyped_storage().data_ptr()
        return tag if is_own else Tag(tag.format)

    def write(self, target: torch.Tensor, into: Tag, result: torch.Tensor, is_rounded: bool) -> None:
        """Write a result to the target with the tag `into`."""
        target.copy_(result)
        self.note_overwrite(target, into, tag_of(result), is_rounded)

    def note_overwrite(self, target: torch.Tensor, into: Tag, tag: Tag, is_rounded: bool = False) -> None:
        """Update the tag of a target after a write.

        Values in a parameter are rounded, unless they are the result of a rounding.
        """
        if into.is_weight:
            path = str(into.owner)
            # A result that was rounded to `weights` needs no second rounding. Rounding it again would change nothing,
            # but would take the time of a pass.
            if is_rounded and tag.format == self.parameters.update_place(path).recipe.weights:
                self.parameters.note_written(path)
            else:
                self.parameters.conform(path, target)
            return
        if has_parts(target):
            self.parameters.renew()
        is_whole = target.numel() * target.element_size() == target.untyped_storage().nbytes()
        format = tag.format
        # DistributedDataParallel copies gradients into flat buckets, where each keeps the role of its own parameter.
        if not is_whole and tag.is_gradient and tag.owner is not None and are_replicas():
            put_own_tag(target, Tag(format, True, tag.owner))  # in a bucket of several gradients
            return
        # A part was written: the memory contains values of both formats.
        if not is_whole and into.format != format:
            formats = [x for x in (into.format, format) if x is not None]
            format = widest_format(formats) if len(formats) == 2 else None
        put_tag(
            target,
            into._replace(
                format=format,
                is_gradient=into.is_gradient or tag.is_gradient,
                owner=tag.owner if into.owner is None else into.owner,
            ),
        )

    @contextmanager
    def part_of(self, operation: str) -> Iterator[Place]:
        """Open a block in which a program calls the parts of `operation`, above autograd; yield its place."""
        before = self.composites
        place = self.simulation.place(operation, self.path, before)
        self.composites = (*before, operation)
        try:
            yield place
        finally:
            self.composites = before

    @contextmanager
    def inside(self, operation: str, operands: Sequence[torch.Tensor]) -> Iterator[None]:
        """Open a block whose operations are parts of the composite `operation` on these operands."""
        if not self.composites:
            note = self._note_operation(operation, operands)
            if note is not None:
                note.is_composite = True
        before = self.composites
        self.composites = (*before, operation)
        try:
            with self.redispatch:
                yield
        finally:
            self.composites = before


def _movement(func: Any) -> str:
    """Return the name of an operation that moves values, as policies use it."""
    name = func.overloadpacket.__name__
    return name if kind_of(name) == MOVEMENT else MOVEMENT
