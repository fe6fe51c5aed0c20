"""The backward pass of a PyTorch model: whose gradient each autograd node computes, and where gradients are complete.

`Gradients` tells when a gradient is complete and becomes that of a parameter, and `parameters_of` the parameters that a
loss was computed from. `BackwardNodes` follows autograd's nodes: the edges between them tell whose gradient every
result is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch

from simfloat.arithmetic.target import wants
from simfloat.formats import FP32, Format, nearest_even
from simfloat.policy.roles import WIDEST
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import PendingEvents
from simfloat.simulation.place import Place, contains
from simfloat.torch.deferring import DeferredOperations, DeferredRecordedOperations
from simfloat.torch.forward_log import ACCUMULATING, LoggedOperation, Operand, Origin, observed_at
from simfloat.torch.narrowing import StraightThroughRounding
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.phases import Backward, CompleteGradient, Forward, ReplicaMean
from simfloat.torch.tensors import (
    FORMAT_OF,
    WIDE,
    Tag,
    check_unwrapped,
    put_own_tag,
    stored_format,
    tag_of,
    weight_path,
)
from simfloat.uninterrupted import uninterrupted

current_node = torch._C._current_autograd_node


class Gradients:
    """The gradients of a run's parameters."""

    def __init__(self, simulation: Simulation, made_by: Callable[[int], LoggedOperation | None]) -> None:
        self._simulation = simulation
        self._made_by = made_by  # finds the operation whose node of autograd has a number
        self.policy_place: Place | None = None  # whose policy the backward pass that runs follows

    def phase(self, node: Any, operation: str, operands: Sequence[torch.Tensor]) -> Forward:
        """Where an operation on a leaf's gradient stands: an addition to what `.grad` has, or one of a hook.

        A multiplication among replicas makes it the share of one of them in the mean over all.
        """
        for x in operands:
            if tag_of(x).events is not None:
                tag_of(x).events.release()
        # Under the node of a leaf run the addition to `.grad` and the hooks of the program, those of
        # DistributedDataParallel among them. Their operands tell them apart: a complete gradient has an owner.
        owner = next((tag.owner for x in operands if (tag := tag_of(x)).owner is not None), None)
        if owner is not None and operation in ("multiply", "divide") and are_replicas():
            return ReplicaMean(self._simulation.place("update", owner), self._simulation)
        if owner is None:
            note = self.note(node.variable)
            return Backward(note, self._simulation, note.operands[0])
        leaf = node.variable
        way = self._backward_phase(leaf, weight_path(leaf), stored_format(leaf), tag_of(operands[-1]))
        complete = CompleteGradient(way.forward_note, self._simulation, way.operand)
        # A hook may add as well. Only an operand in the memory of `.grad` makes it the accumulation, which an observer
        # receives at the parameter's path.
        stored = None if leaf.grad is None else leaf.grad.data_ptr()
        complete.is_addition = operation == "add" and any(x.data_ptr() == stored for x in operands)
        return complete

    def note(self, leaf: torch.Tensor) -> LoggedOperation:
        """The leaf as something that an operation of the backward pass reaches: by an addition."""
        path = weight_path(leaf)
        layer = (path or "").rpartition(".")[0]
        simulation, under = self._simulation, self.policy_place
        place = simulation.place("add", layer) if under is None else simulation.sibling(under, "add", layer)
        return LoggedOperation(place.in_type(FORMAT_OF[leaf.dtype]), (Operand(0, path, stored_format(leaf)),))

    def _backward_phase(self, leaf: torch.Tensor, path: str | None, parameter_format: Format, tag: Tag) -> Backward:
        """The way on which a gradient with this tag reached a leaf of this path and format: that of the operation which
        read the parameter.

        Where that is not known, it is an addition in the parameter's layer.
        """
        # The tag names the node that computed the gradient. Its operation is the one that read the parameter, and an
        # override of that operation is in force for the gradient. An addition of several shares, in autograd's engine,
        # has no place of its own.
        note = None if tag.node is None else self._made_by(tag.node)
        read = None if note is None else next((x for x in note.operands if x.path == path), None)
        if note is None or read is None or path is None:
            note = self.note(leaf)
            return Backward(note, self._simulation, note.operands[0])
        way = Backward(note, self._simulation, read)
        way = way.of_bias() if way.has_bias() and read is note.operands[2] else way
        way.in_type(leaf.dtype)
        # A copy of the note, because the place is now that of the leaf's type: the note of the forward pass stays as it
        # was.
        way.forward_note = LoggedOperation(way.place, way.forward_note.operands)
        way.operand = Operand(way.operand.number if way.operand else 0, path, parameter_format)
        return way

    def complete_gradient(
        self, leaf: torch.Tensor, path: str, gradient: torch.Tensor | None, accumulates: bool
    ) -> torch.Tensor | None:
        """The gradient of the parameter at a path, which is complete: rounded to `weight_gradients` if it was not.

        Where that is the parameter's own format, numbers of a narrower one stay as they are. None stands for one that a
        backward pass left out. An observer receives the events of its last rounding at the parameter's path; where
        `.grad` has numbers already, the last rounding is the addition to them, which follows.
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
        # A gradient may have been assembled from parts that were rounded one by one. Events count as those of the last
        # rounding only if they are of all elements.
        is_last = has_format and tag.events is not None and tag.events.count == gradient.numel()
        if tag.events is not None:
            tag.events.release(where if is_last else None)
        if not has_format or not is_last and wants(place.observer, where, "backward"):
            arithmetic = observed_at(
                where, place, place.to_weight(path, way.operand.number if way.operand else 0, parameter_format)
            )
            if has_format:  # only counted, so that an observer draws nothing
                arithmetic = arithmetic.with_rounding(nearest_even)
            gradient = StraightThroughRounding.apply(gradient, arithmetic)
        # Numbers that are of the format already: nothing is rounded, but autograd would copy the tensor if it is a view
        # or is held elsewhere.
        elif accumulates and leaf.grad is None and not torch.is_grad_enabled():
            gradient = _in_own_memory(gradient, leaf)
        # Of this part of the memory only: gradients of several parameters may lie in one flat tensor.
        put_own_tag(gradient, Tag(format, True, path, node=tag.node))
        return gradient


def _in_own_memory(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """A gradient in memory that nothing else has, so that autograd makes it `.grad` as it is.

    Of one that others hold, as a node holds its results, autograd makes a copy, by two operations that come here.
    """
    is_plain = gradient.dtype == leaf.dtype and gradient.dtype in WIDE
    if not (is_plain and gradient.is_contiguous() and leaf.is_contiguous()):
        return gradient
    with without_dispatch():
        return torch.from_numpy(gradient.numpy().copy())


def are_replicas() -> bool:
    """Whether this process is one of several that torch.distributed connects."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def parameters_of(loss: torch.Tensor) -> Iterator[torch.nn.Parameter]:
    """The parameters on which a loss depends, by autograd's graph."""
    seen, stack = set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # of a node that accumulates a gradient
        if isinstance(leaf, torch.nn.Parameter):
            yield leaf
        stack += [function for function, _ in node.next_functions]


#: What finds the note of a node, and the notes that were found.
Finder = Callable[[Any], LoggedOperation | None]
Notes = Mapping[Any, LoggedOperation]


class BackwardNode:
    """The way back through one node, to those operands of its operation that want a gradient.

    Operations of the node belong to `operand`. Where the operands have different roles, only what the node returns
    tells which operation belongs to which of them: until then all are deferred, and then carried out for each.
    """

    def __init__(self, operands: Sequence[Operand | None]) -> None:
        self.operands = operands
        self.operand = min([x for x in operands if x is not None], default=None, key=attrgetter("number"))
        self.events: list[PendingEvents] = []  # of the roundings so far
        self.deferred: DeferredOperations | None = None  # while the node computes
        self._results: Sequence[Any] = ()

    def begin(self, *_: Any) -> None:
        """The node begins to compute what belongs to operands of different roles."""
        # Neither shape nor storage tells whose gradient a result of a formula is: several operands may have one shape,
        # and results may share memory. The number of a result among those that the node returns tells it, which is
        # known in `end`. Until then operations wait.
        self.deferred = DeferredRecordedOperations() if torch.is_grad_enabled() else DeferredOperations()

    def end(self, results: Sequence[Any], *_: Any) -> tuple[Any, ...]:
        """The node has computed: its results, each by the role of the operand whose gradient it is."""
        deferred, self.deferred = self.deferred, None
        self._release_all_but(results)
        rounded_results: list[Any] = []
        for operand, result in zip(self.operands, results, strict=False):
            if operand is not None and isinstance(result, torch.Tensor) and deferred is not None:
                self.operand = operand
                if deferred.is_waiting(result):
                    result = deferred.carry_out(result)
                    self._release_all_but([result])
                # The formula of an addition returns one tensor as the gradients of both operands.
                elif any(result is x for x in rounded_results):
                    result = result.view_as(result)  # a tensor of its own, by which it is known later
            rounded_results.append(result)
        if deferred is not None:
            deferred.end()
        self._results = rounded_results
        return (*rounded_results, *results[len(rounded_results) :])

    def forget(self) -> None:
        """Hold the results no more: autograd has added them to what came before."""
        self._results = ()

    def _release_all_but(self, results: Sequence[Any]) -> None:
        """Pass on all events but those of the last roundings of these results, which may complete a gradient."""
        # Autograd may still add these results to others. Only the hook of the leaf knows which rounding was the last
        # one of a parameter's gradient, so the events of the last roundings stay with the tensors until it runs.
        last = [id(tag_of(x).events) for x in results if isinstance(x, torch.Tensor)]
        for events in self.events:
            if id(events) not in last:
                events.release()
        self.events.clear()

    def operand_of_addition(self, operands: Sequence[torch.Tensor]) -> Operand | None:
        """The operand to whose gradient so far a result is added."""
        for operand, result in zip(self.operands, self._results, strict=False):
            if operand is not None and any(result is x for x in operands):
                for events in (tag_of(x).events for x in operands):
                    if events is not None:
                        events.release()
                return operand
        return self.operand


class BackwardNodes:
    """The ways back through all nodes of the backward passes that run, by the nodes' sequence numbers."""

    def __init__(self, note_of: Finder, gradients: Gradients) -> None:
        self._note_of, self._gradients = note_of, gradients
        self._ways: dict[int, BackwardNode] = {}
        self._ended: BackwardNode | None = None  # the last one, whose results autograd adds to what came before
        self._nodes: dict[Any, int] = {}  # of the backward pass that runs, with how many shares the gradient has there
        self._completed: dict[str, Any] = {}  # the parameters whose gradients one call each completes, by path
        self.are_recorded = False  # whether gradients of what the backward pass computes may be asked for

    @property
    def are_running(self) -> bool:
        """Whether a backward pass runs, or what it leaves to its end."""
        return bool(self._nodes)

    def at_node(self, node: Any) -> BackwardNode | None:
        """The way through a node; None where no operation of the run made it."""
        return self._ways.get(node._sequence_nr())

    def has_ended(self, way: BackwardNode) -> bool:
        """Whether a node has computed, so that what follows under it adds its results to others."""
        return way is self._ended

    def share_count(self, node: Any) -> int:
        """Of how many shares the backward pass that runs makes a leaf's gradient, by the leaf's node; 0 for others."""
        return self._nodes.get(node, 0) if node._sequence_nr() == ACCUMULATING else 0

    def completed_parameter(self, path: str | None) -> Any:
        """The parameter at a path, if the call that makes its gradient completes it, so that nothing follows."""
        return None if path is None else self._completed.get(path)

    def _end(self, way: BackwardNode, results: Sequence[Any]) -> tuple[Any, ...]:
        # Autograd adds the results of a node to older gradients only after the hooks of the node, so they are held
        # until the next node has ended, and an addition recognizes them by identity. What is held is copied when it
        # becomes `.grad`, which took 9 % of an MLP's step before `gradients.py` gave complete gradients memory of their
        # own.
        rounded_results = way.end(results)
        if self._ended is not None:
            self._ended.forget()
        self._ended = way
        return rounded_results

    @contextmanager
    def open(self, roots: Iterable[Any], accumulates: bool, is_recorded: bool, is_whole: bool) -> Iterator[None]:
        """A block in which a backward pass runs from these tensors.

        `accumulates` if gradients become `.grad`, `is_recorded` if gradients of them may be asked for, `is_whole` if
        all leaves are reached.
        """
        hooks: list[Any] = []
        # The graph is walked before the engine starts: the engine tells nothing of it, and how many edges lead to a
        # node says of how many shares its gradient is the sum.
        nodes, before, were_recorded = _nodes_behind(roots), self._gradients.policy_place, self.are_recorded
        outer = self._nodes, self._completed
        notes = {node: note for node in nodes if (note := self._note_of(node)) is not None}
        check_unwrapped([node.variable for node in nodes if is_leaf(node)])
        try:
            with uninterrupted():
                # Ctrl-C between two of these lines would leave hooks of a pass that never ran on nodes that other
                # passes share. `uninterrupted` takes about 1 us, once a backward pass.
                self._nodes, self._completed = nodes, {}
                self._gradients.policy_place = next((note.place for note in notes.values()), None)
                self.are_recorded = is_recorded
                for node in nodes:
                    hooks += self._listen(node, notes, accumulates, is_whole)
            yield
        finally:
            with uninterrupted():
                self._gradients.policy_place, self._ended, self.are_recorded = before, None, were_recorded
                self._nodes, self._completed = outer
                for hook in hooks:
                    hook.remove()
                for node in nodes:
                    self._ways.pop(node._sequence_nr(), None)

    def _listen(self, node: Any, notes: Notes, accumulates: bool, is_whole: bool) -> list[Any]:
        number = node._sequence_nr()
        if is_leaf(node):
            leaf = node.variable
            path = weight_path(leaf)
            if path is None or path in self._completed:
                return []
            # A hook of the leaf, not of its node: it runs before autograd adds the gradient to `.grad`, and what it
            # returns is what is added. It also sees gradients that autograd copied on the way.
            return [
                leaf.register_hook(
                    lambda gradient: self._gradients.complete_gradient(leaf, path, gradient, accumulates)
                )
            ]
        note = notes.get(node)
        if note is None:
            return []
        way = self._ways[number] = BackwardNode(_operands(note, node, notes))
        operands = [x for x in way.operands if x is not None]
        is_sorted = note.is_one_call and not self.are_recorded  # it says itself whose gradient a result is
        if is_sorted and accumulates and is_whole and not are_replicas():
            self._completed.update(self._parameters_completed_by(node))
        has_several = not is_sorted and len(operands) > 1 and len({_role(note, x) for x in operands}) > 1
        hooks = [node.register_prehook(way.begin)] if has_several else []
        has_formats = note.place.takes_formats or any([x.path is not None for x in operands])
        is_added = any([self._nodes.get(target, 0) > 1 for target, _ in node.next_functions])
        # A hook is a call of Python for each node of the pass. Listening only where gradients are added up is one of
        # the changes that brought the step of an MLP from 5.0 to about 4.0 times that of torch in float32.
        if not hooks and not (has_formats and (is_added or note.place.observer is not None)):
            return []  # nothing is added up, nor do events wait; or what is added up is of one format
        return [*hooks, node.register_hook(lambda results, _: self._end(way, results))]

    def _parameters_completed_by(self, node: Any) -> Iterator[tuple[str, Any]]:
        """The weight, which is turned, and the bias of a linear layer that is one call, by path, where nothing is added
        to their gradients, and nobody listens to them.
        """
        # The edges of a LayerProduct lead to x, to the transposed weight, and to the bias. A view by `t()` is a node of
        # its own in front of the weight's leaf. A hook of the program's, or an older `.grad`, needs the gradient from
        # autograd.
        for target, _ in node.next_functions[1:]:
            if self._nodes.get(target) == 1 and target.name() == "TBackward0":
                ((target, _),) = target.next_functions
            if self._nodes.get(target) != 1 or not is_leaf(target):
                continue
            leaf = target.variable
            path = weight_path(leaf)
            if (
                path is not None
                and leaf.grad is None
                and not (leaf._backward_hooks or leaf._post_accumulate_grad_hooks)
            ):
                yield path, leaf


def is_leaf(node: Any) -> bool:
    """Whether a node is that of a leaf; one of an operation without a derivative has the same number."""
    return node._sequence_nr() == ACCUMULATING and hasattr(node, "variable")


def _operands(note: LoggedOperation, node: Any, notes: Notes) -> list[Operand | None]:
    """The operand at the end of each edge of the node; None for one that wants no gradient."""
    # Operands are matched to edges by their origin, not by position: a node has an edge for every differentiable input,
    # while the note counts floating operands. Each match is taken out of the list, since both operands of x * x have
    # one origin.
    left, operands = list(note.operands), list[Operand | None]()
    for number, (target, result) in enumerate(node.next_functions):
        if target is None:
            operands.append(None)
            continue
        path, format, origin = _edge_target(target, result, notes)
        for candidate in left:
            if candidate.origin == origin:
                left.remove(candidate)
                number, format = candidate.number, candidate.format
                break
        operands.append(Operand(number, path, format))
    return operands


def _edge_target(target: Any, result: int, notes: Notes) -> tuple[str | None, Format, Origin]:
    """Return the target of an edge: the path of the parameter that it leads to, if any, the format, and the origin."""
    number = target._sequence_nr()
    if is_leaf(target):
        leaf = target.variable
        return weight_path(leaf), stored_format(leaf), Origin(ACCUMULATING, id(leaf))
    note, origin = notes.get(target), Origin(number, result)
    return (None, FP32, origin) if note is None else (note.weight, note.format or FP32, origin)


def _nodes_behind(roots: Iterable[Any]) -> dict[Any, int]:
    """All nodes that gradients of these tensors, or edges, may come through, with how many shares the gradient has at
    each: one by every edge that leads there, and one for a root.
    """
    share_counts: dict[Any, int] = {}
    stack = [_node_of(root) for root in roots]
    while stack:
        node = stack.pop()
        if node is None:
            continue
        count = share_counts.get(node, 0)
        share_counts[node] = count + 1
        if not count:
            stack += [target for target, _ in node.next_functions]
    return share_counts


def _node_of(root: Any) -> Any:
    if not isinstance(root, torch.Tensor):
        return root.node
    if root.grad_fn is not None or not root.requires_grad:
        return root.grad_fn
    # A leaf has no grad_fn; autograd makes its node only when it is asked for the edge, or in the pass.
    return torch.autograd.graph.get_gradient_edge(root).node


def _role(note: LoggedOperation, operand: Operand) -> tuple[Format, str | None, int]:
    """What tells the gradients of two operands apart: format, events, overrides that name parameters, random bits, and
    amax histories.
    """
    place, path = note.place, operand.path
    recipe = place.recipe if path is None else place.recipe_of_parameter(path)
    role = recipe.activation_gradients if path is None else recipe.weight_gradients
    format = operand.format if role == WIDEST else role
    # Two gradients of one role need not be told apart, and then nothing waits. With random bits or delayed scaling the
    # number of the operand is part of the stream, or of the history, so it counts.
    number = operand.number if place.draws or place.keeps_histories else 0
    return format, path if place.is_particular else None, number
