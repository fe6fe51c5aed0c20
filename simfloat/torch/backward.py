"""Follow the backward pass of a PyTorch model: the operand of each gradient, and when a gradient is complete.

`Gradients` recognizes when the gradient of a parameter is complete. `BackwardNodes` follows autograd's nodes: the edges
between them show to which operand each result belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import torch

from simfloat.arithmetic.target import wants
from simfloat.formats import FP32, Format, nearest_even
from simfloat.policy.roles import WIDEST
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import PendingEvents
from simfloat.simulation.place import Place, contains
from simfloat.torch.deferring import DeferredOperations, DeferredRecordedOperations
from simfloat.torch.forward_log import (
    ACCUMULATING,
    LoggedOperation,
    Operand,
    Origin,
    nodes_behind,
    observed_at,
    rerun_number,
)
from simfloat.torch.narrowing import StraightThroughRounding, cast_gradient
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.phases import Backward, CompleteGradient, Forward, ReplicaMean
from simfloat.torch.tensors import (
    FORMAT_OF,
    WIDE,
    Tag,
    array_on,
    check_unwrapped,
    has_parts,
    put_own_tag,
    stored_format,
    tag_of,
    tensor_on,
    weight_path,
)
from simfloat.uninterrupted import uninterrupted

current_node = torch._C._current_autograd_node


class Gradients:
    """The gradients of a run's parameters."""

    def __init__(self, simulation: Simulation, made_by: Callable[[int], LoggedOperation | None]) -> None:
        self.simulation = simulation
        self._made_by = made_by  # finds the operation of the autograd node with a number
        self.policy_place: Place | None = None  # the place whose policy the current backward pass follows

    def phase(self, node: Any, operation: str, operands: Sequence[torch.Tensor]) -> Forward:
        """Return the phase of an operation on the gradient of a leaf: an addition to `.grad`, or part of a hook.

        Among replicas, a multiplication computes the share of one replica in the mean over all.
        """
        tags = [tag_of(x) for x in operands]
        for tag in tags:
            if tag.events is not None:
                tag.events.release()
        # The addition to `.grad` and the hooks of the program, including those of DistributedDataParallel, run under
        # the node of a leaf. Their operands distinguish them: a complete gradient has an owner.
        owner = next((tag.owner for tag in tags if tag.owner is not None), None)
        if owner is not None and operation in ("multiply", "divide") and are_replicas():
            return ReplicaMean(self.simulation.place("update", owner), self.simulation)
        if owner is None:
            note = self.note(node.variable)
            return Backward(note, self.simulation, note.operands[0])
        leaf = node.variable
        way = self._backward_phase(leaf, weight_path(leaf), stored_format(leaf), tags[-1])
        complete = CompleteGradient(way.forward_note, self.simulation, way.operand)
        # A hook may also add. Only an operand in the memory of `.grad` makes it the accumulation, which an observer
        # receives at the path of the parameter.
        stored = None if leaf.grad is None else leaf.grad.data_ptr()
        complete.is_addition = operation == "add" and any(x.data_ptr() == stored for x in operands)
        return complete

    def note(self, leaf: torch.Tensor) -> LoggedOperation:
        """Return a note for the leaf, as an addition, for operations of the backward pass that reach it."""
        path = weight_path(leaf)
        layer = (path or "").rpartition(".")[0]
        simulation, under = self.simulation, self.policy_place
        place = simulation.place("add", layer) if under is None else simulation.sibling(under, "add", layer)
        return LoggedOperation(place.in_type(FORMAT_OF[leaf.dtype]), (Operand(0, path, stored_format(leaf)),))

    def reader(
        self, moved: LoggedOperation, operand: Operand, shares: Sequence[torch.Tensor]
    ) -> tuple[LoggedOperation, Operand]:
        """Return the operation that read a moved parameter and computed the last of these parts of its gradient.

        If the tags do not identify this operation, return the movement and its operand.
        """
        for tag in map(tag_of, reversed(shares)):
            note, read = self._reading(tag, operand.path)
            if note is not None and read is not None:
                reading = LoggedOperation(note.place, note.operands, note.format)
                reading.weight = moved.weight
                return reading, read._replace(format=operand.format)
        return moved, operand

    def _reading(self, tag: Tag, path: str | None) -> tuple[LoggedOperation | None, Operand | None]:
        """Return the operation that computed a gradient, and its operand that is the parameter at a path, if known."""
        note = None if tag.node is None else self._made_by(tag.node)
        return note, None if note is None else next((x for x in note.operands if x.path == path), None)

    def _backward_phase(self, leaf: torch.Tensor, path: str | None, parameter_format: Format, tag: Tag) -> Backward:
        """Return the phase in which a gradient with this tag reached a leaf with this path and format.

        It belongs to the operation that read the parameter. If that operation is unknown, the phase is an addition in
        the layer of the parameter.
        """
        # The tag has the node that computed the gradient. The operation of this node read the parameter, and an
        # override of that operation applies to the gradient. Additions of several shares in autograd's engine have no
        # place.
        note, read = self._reading(tag, path)
        if note is None or read is None or path is None:
            note = self.note(leaf)
            return Backward(note, self.simulation, note.operands[0])
        way = Backward(note, self.simulation, read)
        way = way.of_bias() if way.has_bias() and read is note.operands[2] else way
        way.in_type(leaf.dtype)
        # The note is copied, because its place gets the dtype of the leaf. The note of the forward pass does not
        # change.
        way.forward_note = LoggedOperation(way.place, way.forward_note.operands)
        way.operand = Operand(way.operand.number if way.operand else 0, path, parameter_format)
        return way

    def complete_gradient(
        self, leaf: torch.Tensor, path: str, gradient: torch.Tensor | None, accumulates: bool
    ) -> torch.Tensor | None:
        """Return the complete gradient of the parameter at a path, in the format of `weight_gradients`.

        If `weight_gradients` is the parameter's own format, values in a narrower format stay unchanged. None stands for
        a gradient that a backward pass omitted. An observer receives the events of the last rounding at the path of the
        parameter. If `.grad` has values already, the last rounding is the addition to them, which follows.
        """
        if gradient is None:
            return None
        tag, parameter_format = tag_of(gradient), stored_format(leaf)
        way = self._backward_phase(leaf, path, parameter_format, tag)
        place = way.place
        chosen = place.recipe_of_parameter(path).weight_gradients
        format = parameter_format if chosen == WIDEST else chosen
        where = place.path if accumulates and leaf.grad is not None else path
        has_format = (
            tag.format == format
            or chosen == WIDEST
            and tag.format is not None
            and contains(parameter_format, tag.format)
        )
        # A gradient may consist of parts that were rounded one by one. The events belong to the last rounding only if
        # they cover all elements.
        is_last = has_format and tag.events is not None and tag.events.count == gradient.numel()
        if tag.events is not None:
            tag.events.release(where if is_last else None)
        if not has_format or not is_last and wants(place.observer, where, "backward"):
            arithmetic = observed_at(
                where, place, place.to_weight(path, way.operand.number if way.operand else 0, parameter_format)
            )
            if has_format:  # the rounding only counts: an observer must not use random bits
                arithmetic = arithmetic.with_rounding(nearest_even)
            gradient = StraightThroughRounding.apply(gradient, arithmetic)
        # The values have the format already, so nothing is rounded. But autograd would copy the tensor if it is a view
        # or has other references.
        elif accumulates and leaf.grad is None and not torch.is_grad_enabled():
            gradient = _in_own_memory(gradient, leaf)
        # Only this part of the memory gets the tag: gradients of several parameters may be parts of one flat tensor.
        put_own_tag(gradient, Tag(format, True, path, node=tag.node))
        return gradient


def _in_own_memory(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Return a gradient in memory without other references, so that autograd uses it as `.grad` without a copy.

    If a gradient has other references, for example from the results of a node, autograd copies it, by two operations
    that are dispatched to the run.
    """
    is_plain = gradient.dtype == leaf.dtype and gradient.dtype in WIDE
    if not (is_plain and gradient.is_contiguous() and leaf.is_contiguous()):
        return gradient
    with without_dispatch():
        return tensor_on(array_on(gradient).copy())


def are_replicas() -> bool:
    """True if this process is one of several that torch.distributed connects."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class BackwardNode:
    """The backward pass through one node, to the operands of its operation that require a gradient.

    Operations of the node belong to `operand`. If the operands have different roles, an operation can be assigned to
    its operand only when the node returns its results. Until then all operations are deferred; they are then carried
    out for each operand.
    """

    def __init__(self, node: Any, backward_pass: BackwardPass, simulation: Simulation) -> None:
        self.note, self._simulation = backward_pass.notes[node], simulation
        self._node, self._pass = node, backward_pass
        self.events: list[PendingEvents] = []  # of the roundings so far
        self.deferred: DeferredOperations | None = None  # while the node computes
        self.results: Sequence[Any] = ()  # after its end, until the next node has ended

    @cached_property
    def operands(self) -> list[Operand | None]:
        """The operand at the end of each edge of the node; None for an operand that requires no gradient."""
        # Most nodes are views or one call, and no operation asks for their operands.
        return _operands(self._node, self._pass)

    @cached_property
    def operand(self) -> Operand | None:
        """The operand that operations of the node belong to."""
        first = min([x for x in self.operands if x is not None], default=None, key=attrgetter("number"))
        return first and self._before_cast(first)

    def narrows(self, operand: Operand) -> bool:
        """True if autograd may cast the gradient of an operand: the result may have a wider format than the operand."""
        place, format = self.note.place, self.note.format  # the format of a composite is not noted
        if place.narrow is not None and operand.path is not None:
            return True  # its gradient has the role `weight_gradients`, not the format of the parameter
        keeps_formats = place.takes_formats or place.narrow is not None
        return keeps_formats and format != operand.format and (format is None or not contains(operand.format, format))

    def format_of_sum(self, edge: int) -> Format | None:
        """Return the format in which autograd adds the contributions to the gradient at an edge; None for a leaf."""
        made = self._pass.notes.get(self._node.next_functions[edge][0])
        return None if made is None else Backward(made, self._simulation, None).format_of_gradient

    def _before_cast(self, operand: Operand) -> Operand:
        """Return an operand as operations read it: beside upcast values, they compute its gradient in FP32."""
        is_wide = self.note.place.narrow is not None and self.narrows(operand)
        return operand._replace(path=None, format=FP32) if is_wide else operand

    def begin(self, *_: Any) -> None:
        """Begin to defer the operations of a node whose operands have different roles."""
        # Neither shape nor storage shows to which operand a result of a formula belongs: several operands may have one
        # shape, and results may share memory. Only the position of a result among the results of the node shows it, and
        # that is known in `end`.
        self.deferred = DeferredRecordedOperations() if torch.is_grad_enabled() else DeferredOperations()

    def end(self, results: Sequence[Any], *_: Any) -> tuple[Any, ...]:
        """Return the results of the node, each rounded in the role of its operand."""
        deferred, self.deferred = self.deferred, None
        self._release_all_but(results)
        rounded_results: list[Any] = []
        for edge, (operand, result) in enumerate(zip(self.operands, results, strict=False)):
            if operand is not None and isinstance(result, torch.Tensor):
                if deferred is not None:
                    self.operand = self._before_cast(operand)
                if deferred is not None and deferred.is_waiting(result):
                    result = deferred.carry_out(result)
                    self._release_all_but([result])
                if self.narrows(operand) and (operand.path or not contains(operand.format, stored_format(result))):
                    # Additions and movements pass a gradient on unchanged, and other formulas compute it in FP32.
                    result = cast_gradient(Backward(self.note, self._simulation, operand, self.events), result)
                    self._release_all_but([result])
                if self.note.place.takes_formats and self._pass.is_added(self._node.next_functions[edge][0]):
                    sum_format = self.format_of_sum(edge)
                    if sum_format is not None and not contains(sum_format, stored_format(result)):
                        way = Backward(self.note, self._simulation, operand, self.events)
                        result = cast_gradient(way, result, sum_format)
                        self._release_all_but([result])
                # The formula of an addition returns one tensor as the gradients of both operands.
                if deferred is not None and any(result is x for x in rounded_results):
                    result = result.view_as(result)  # a separate tensor, to distinguish the two later
            rounded_results.append(result)
        if deferred is not None:
            deferred.end()
        self.results = rounded_results
        return (*rounded_results, *results[len(rounded_results) :])

    def _release_all_but(self, results: Sequence[Any]) -> None:
        """Pass on all events, except for the last roundings of these results, which may complete gradients."""
        # Autograd may still add these results to others. Only the hook of the leaf can determine which rounding of a
        # parameter's gradient was the last one, so the events of the last roundings stay with the tensors until it
        # runs.
        last = [id(tag_of(x).events) for x in results if isinstance(x, torch.Tensor)]
        for events in self.events:
            if id(events) not in last:
                events.release()
        self.events.clear()

    def operand_of_addition(self, operands: Sequence[torch.Tensor]) -> tuple[Operand | None, Format | None]:
        """Return the operand whose gradient is a term of this addition, and the format of its sum, if known."""
        for edge, (operand, result) in enumerate(zip(self.operands, self.results, strict=False)):
            if operand is not None and any([result is x for x in operands]):
                for events in (tag_of(x).events for x in operands):
                    if events is not None:
                        events.release()
                return operand, self.format_of_sum(edge)
        return self.operand, None


class CurrentNode(NamedTuple):
    """The autograd node that computes."""

    number: int
    note: LoggedOperation | None  # of the operation that created it
    way: BackwardNode | None  # None if no operation of the run created it


class BackwardPass:
    """A backward pass: its nodes, each with the number of shares of its gradient, their notes, and the leaves.

    `accumulates` is True if gradients are added to `.grad`, `is_recorded` if the pass itself is recorded for gradients
    of gradients, and `is_whole` if it reaches all leaves.
    """

    def __init__(
        self, nodes: dict[Any, int], accumulates: bool = False, is_recorded: bool = False, is_whole: bool = True
    ) -> None:
        self.nodes, self.accumulates, self.is_recorded, self.is_whole = nodes, accumulates, is_recorded, is_whole
        self.notes: dict[Any, LoggedOperation] = {}
        self.leaves: dict[Any, torch.Tensor] = {}
        self.ways: dict[Any, BackwardNode] = {}  # of nodes with hooks, and of nodes whose operations are dispatched
        self.completed: dict[str, Any] = {}  # the parameters whose gradient is completed by a single call, by path
        self.paths_with_hooks: frozenset[str] = frozenset()  # of leaves with a hook of this pass or of an outer one

    def is_added(self, node: Any) -> bool:
        """True if several nodes compute parts of the gradient that the edge to this node passes on."""
        return self.nodes.get(node, 0) > 1


class BackwardNodes:
    """The nodes of the backward passes that run."""

    def __init__(self, note_of: Callable[[Any], LoggedOperation | None], gradients: Gradients) -> None:
        self._note_of, self._gradients = note_of, gradients
        self.ended: BackwardNode | None = None  # the last one that ended: operations under it add its results to others
        self.innermost = BackwardPass({})  # the innermost pass that runs
        self._current = CurrentNode(-1, None, None)

    def current(self) -> CurrentNode | None:
        """Return the node whose backward pass runs; None in a forward pass, and while a part of one runs again."""
        node = current_node()
        if node is None:
            return None
        number = node._sequence_nr()
        if number == rerun_number():
            return None
        # A formula has several operations, and each of them asks for its node. Numbers of nodes are not reused.
        if number != self._current.number:
            way = self._way(node)
            self._current = CurrentNode(number, self._note_of(node) if way is None else way.note, way)
        return self._current

    def _way(self, node: Any) -> BackwardNode | None:
        """Return the pass through a node; None if no operation of the run created the node."""
        ways = self.innermost.ways
        if node not in ways and node in self.innermost.notes:
            ways[node] = BackwardNode(node, self.innermost, self._gradients.simulation)
        return ways.get(node)

    def forget(self) -> None:
        """Forget the current node, when passes begin and end."""
        self._current = CurrentNode(-1, None, None)

    def share_count(self, node: Any) -> int:
        """Return the number of shares in the gradient of a leaf in the current backward pass; 0 for other nodes."""
        return self.innermost.nodes.get(node, 0) if node._sequence_nr() == ACCUMULATING else 0

    def reaches(self, node: Any) -> bool:
        """True if the backward pass needs the gradient that an edge to this node passes on."""
        try:
            return bool(torch._C._will_engine_execute_node(node))
        except RuntimeError:  # a leaf; torch.autograd.grad returns its gradient
            return True

    def _end(self, way: BackwardNode, results: Sequence[Any]) -> tuple[Any, ...]:
        # Autograd adds the results of a node to older gradients only after the hooks of the node. So the results are
        # kept until the next node has ended, and an addition recognizes them by identity. A tensor with this reference
        # is copied when it becomes `.grad`; the copies took 9 % of a step of an MLP before complete gradients got their
        # own memory.
        rounded_results = way.end(results)
        if self.ended is not None:
            self.ended.results = ()  # autograd has added them to earlier gradients
        self.ended = way
        return rounded_results

    @contextmanager
    def open(self, roots: Iterable[Any], accumulates: bool, is_recorded: bool, is_whole: bool) -> Iterator[None]:
        """Open a block in which a backward pass runs from these tensors; see `BackwardPass` for the other arguments."""
        hooks: list[Any] = []
        # The graph is traversed before the engine starts, because the engine does not report the graph. The number of
        # edges to a node is the number of shares in its gradient.
        inner = BackwardPass(nodes_behind(roots), accumulates, is_recorded, is_whole)
        outer, place_before = self.innermost, self._gradients.policy_place
        for node in inner.nodes:
            # The node of an operation without a derivative has the number of a leaf.
            if node._sequence_nr() == ACCUMULATING and hasattr(node, "variable"):
                inner.leaves[node] = node.variable
            elif (note := self._note_of(node)) is not None:
                inner.notes[node] = note
        check_unwrapped(inner.leaves.values())
        try:
            with uninterrupted():
                # Ctrl-C between two of these lines would leave hooks of a pass that never ran on nodes that other
                # passes share. `uninterrupted` takes about 1 us per backward pass.
                self.forget()
                self.innermost, inner.paths_with_hooks = inner, outer.paths_with_hooks
                self._gradients.policy_place = next((note.place for note in inner.notes.values()), None)
                completes = accumulates and is_whole and not is_recorded and not are_replicas()
                has_sums = max(inner.nodes.values(), default=0) > 1
                for node, note in inner.notes.items():
                    if completes and note.is_one_call:
                        inner.completed.update(self._parameters_completed_by(node))
                    if has_sums or not (note.is_one_call and not is_recorded):
                        hooks += self._listen(node, note)
                for leaf in inner.leaves.values():
                    path = weight_path(leaf)
                    # A backward pass inside of this one reaches the same hook.
                    if path is not None and path not in inner.completed and path not in inner.paths_with_hooks:
                        inner.paths_with_hooks |= {path}
                        hooks.append(self._listen_to_leaf(leaf, path))
            yield
        finally:
            with uninterrupted():
                self._gradients.policy_place, self.ended, self.innermost = place_before, None, outer
                self.forget()
                inner.ways.clear()  # each refers to the pass
                for hook in hooks:
                    hook.remove()

    def _listen_to_leaf(self, leaf: torch.Tensor, path: str) -> Any:
        # This is a hook of the leaf, not of its node: it runs before autograd adds the gradient to `.grad`, and
        # autograd adds its return value. It also receives gradients that autograd copied in between.
        return leaf.register_hook(
            lambda g: self._gradients.complete_gradient(leaf, path, g, self.innermost.accumulates)
        )

    def _listen(self, node: Any, note: LoggedOperation) -> list[Any]:
        is_sorted = note.is_one_call and not self.innermost.is_recorded  # its rule names the operand of each result
        is_added = any(map(self.innermost.is_added, map(itemgetter(0), node.next_functions)))
        is_single = len(node.next_functions) < 2 and note.place.observer is None
        keeps_formats = note.place.takes_formats or note.place.narrow is not None
        if (is_sorted or is_single and not keeps_formats) and not is_added:
            return []
        way = self._way(node)
        assert way is not None
        casts = keeps_formats and not is_sorted and any(map(way.narrows, note.operands))
        if is_single and not is_added and not casts:
            return []
        operands = [x for x in way.operands if x is not None]
        has_several = not is_sorted and len(operands) > 1 and len({_role(note, x) for x in operands}) > 1
        hooks = [node.register_prehook(way.begin)] if has_several else []
        has_formats = keeps_formats or any([x.path is not None for x in operands])
        # A hook is a Python call for each node of the pass. With hooks only where gradients are added, and other
        # changes, the step of an MLP went from 5.0 to about 4.0 times the time of torch in float32.
        if not (hooks or casts) and not (has_formats and (is_added or note.place.observer is not None)):
            return []  # nothing is added and no events wait, or all shares have the same format
        return [*hooks, node.register_hook(lambda results, _: self._end(way, results))]

    def _parameters_completed_by(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Yield the weight and the bias of a linear layer that is one call, by path.

        A parameter is included only if its gradient has no other shares and no hooks.
        """
        # The edges of a LayerProduct lead to x, to the transposed weight, and to the bias. A view by `t()` is a
        # separate node before the leaf of the weight. Hooks of the program need the gradient from autograd.
        counts, leaves = self.innermost.nodes, self.innermost.leaves
        for target, _ in node.next_functions[1:]:
            if target not in leaves and counts.get(target) == 1 and target.name() == "TBackward0":
                ((target, _),) = target.next_functions
            leaf = leaves.get(target)
            if leaf is None or counts[target] != 1 or leaf._backward_hooks or leaf._post_accumulate_grad_hooks:
                continue
            path = weight_path(leaf)
            if path is not None and _is_plain(leaf.grad, path):
                yield path, leaf


def takes_whole(leaf: torch.Tensor, path: str) -> bool:
    """True if a complete gradient of the parameter at a path may be stored as `.grad`, or added to it in its memory."""
    # A hook of the program may have set `.grad` during the pass.
    return leaf.is_contiguous() and _is_plain(leaf.grad, path)


def _is_plain(grad: torch.Tensor | None, path: str) -> bool:
    """True if there is no gradient of the parameter at a path, or an ordinary one, in its own memory."""
    if grad is None:
        return True
    is_plain = type(grad) is torch.Tensor and grad.dtype == torch.float32 and grad.layout is torch.strided
    if not is_plain or grad.requires_grad or not grad.is_contiguous() or has_parts(grad):
        return False
    tag = tag_of(grad)
    return tag.is_gradient and tag.owner == path


def _operands(node: Any, backward_pass: BackwardPass) -> list[Operand | None]:
    """Return the operand at the end of each edge of the node; None for an operand that requires no gradient."""
    # Operands are matched to edges by their origin, not by position: a node has an edge for every differentiable input,
    # while the note counts floating-point operands. Each match is removed from the list, because both operands of x * x
    # have the same origin.
    note = backward_pass.notes[node]
    left, operands = list(note.operands), list[Operand | None]()
    for number, (target, result) in enumerate(node.next_functions):
        if target is None:
            operands.append(None)
            continue
        path, format, origin = _edge_target(target, result, backward_pass)
        for candidate in left:
            if candidate.origin == origin:
                left.remove(candidate)
                number, format = candidate.number, candidate.format
                # An upcast parameter is treated as a parameter only in products.
                path = path if note.place.narrow is None else candidate.path
                break
        operands.append(Operand(number, path, format))
    return operands


def _edge_target(target: Any, result: int, backward_pass: BackwardPass) -> tuple[str | None, Format, Origin]:
    """Return the target of an edge: the path of the parameter that it leads to, if any, the format, and the origin."""
    leaf = backward_pass.leaves.get(target)
    if leaf is not None:
        tag = tag_of(leaf)
        path = tag.owner if tag.is_weight else None
        return path, tag.format or FORMAT_OF[leaf.dtype], (ACCUMULATING, id(leaf))
    note, origin = backward_pass.notes.get(target), (target._sequence_nr(), result)
    return (None, FP32, origin) if note is None else (note.weight, note.format or FP32, origin)


def _role(note: LoggedOperation, operand: Operand) -> tuple[Format, str | None, int]:
    """Return the properties that distinguish the gradients of two operands.

    These are the format, events, overrides that name parameters, random bits, and amax histories.
    """
    place, path = note.place, operand.path
    recipe = place.recipe if path is None else place.recipe_of_parameter(path)
    role = recipe.activation_gradients if path is None else recipe.weight_gradients
    format = operand.format if role == WIDEST else role
    if path is None and place.narrow is not None:  # a gradient of 16-bit values, beside those of upcast ones
        format = place.to_activation(operand.number, operand.format).format
    # Two gradients with the same role need not be distinguished, and then nothing waits. With random bits or delayed
    # scaling, the number of the operand is part of the stream or of the history, so it counts.
    number = operand.number if place.draws or place.keeps_histories else 0
    return format, path if place.is_particular else None, number
