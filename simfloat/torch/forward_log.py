"""Log a forward pass: the place of the operation of every autograd node, for the backward pass.

An observer receives the events of a parameter's gradient at the path of the parameter, when the gradient is complete.

With torch.utils.checkpoint, a part of the forward pass runs again in the backward pass. It uses the random bits and the
scales of the first pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch.utils import checkpoint

from simfloat.arithmetic.target import WithPath, wants
from simfloat.formats import FP32, Format
from simfloat.kernels.rounding.events import wants_optional_counts
from simfloat.simulation.arithmetic import Arithmetic, PendingEvents
from simfloat.simulation.place import Place
from simfloat.torch.open_run import active_run
from simfloat.torch.tensors import FORMAT_OF, STORED, Tag, tag_of

#: The maximum number of operations in the log; the oldest are removed first.
REMEMBERED = 1 << 20

#: The sequence number of every node at which autograd adds to `.grad`.
ACCUMULATING = 2**64 - 1

#: The name of the node that a view gets after a write to its base, and the end of the name of the node that a write to
#: a view creates for its base.
RENEWED, WRITE_TO_VIEW = "AsStridedBackward0", "CopySlices"

# When an operation is dispatched, autograd has just numbered its node: the number is the counter of this thread minus
# one. In the backward pass the node that runs has the same number. So forward and backward operations are paired
# exactly, without a hook (measured on torch 2.13).
sequence_number = torch._C._autograd._get_sequence_nr


#: The target of a tensor's gradient in autograd: the number of a node and of its result. For a leaf, `ACCUMULATING` and
#: the identity of the leaf.
Origin = tuple[int, int]


class Operand(NamedTuple):
    """An operand of a forward operation."""

    number: int
    path: str | None  # of the parameter, if the operand is one
    format: Format
    origin: Origin | None = None


class LoggedOperation:
    """A forward operation: its floating-point operands, and the format and the parameter of its result."""

    __slots__ = ("format", "is_composite", "is_of_backward", "is_one_call", "operands", "place", "weight")

    def __init__(self, place: Place, operands: tuple[Operand, ...], format: Format | None = None) -> None:
        self.place, self.operands, self.format = place, operands, format
        self.weight: str | None = None
        self.is_composite = False  # consists of other operations
        self.is_one_call = False  # its backward pass is also one call, and assigns each result to its operand
        self.is_of_backward = False  # belongs to a backward pass, where gradients are also operands

    def operand(self, number: int) -> Operand | None:
        """Return the operand of this number; None if the operation was carried out without it."""
        return self.operands[number] if number < len(self.operands) else None


class ForwardLog:
    """The notes of a run, by the sequence number that autograd gives its nodes in program order."""

    def __init__(self) -> None:
        self.by_number: dict[int, LoggedOperation | None] = {}
        self.in_place = False  # True if the next operation writes to its first operand

    @property
    def knows_last(self) -> bool:
        """True if the last node belongs to a noted operation, so that an operation without a node needs no note."""
        return not self.in_place and sequence_number() - 1 in self.by_number

    def begin(self, place: Place, operands: Sequence[torch.Tensor], tags: Sequence[Tag] = ()) -> LoggedOperation | None:
        """Note the operation that has just begun, unless the last node belongs to an earlier one.

        `tags` are the tags of the operands, if the caller has read them.

        If no operand requires a gradient, it has no node, and the last node may belong to a function of the program.
        """
        number = sequence_number() - 1
        in_place, self.in_place = self.in_place, False
        if not in_place and number in self.by_number:
            return None
        # A rounded copy of a parameter is a tensor without history: the tensor of the program shows if the parameter
        # requires a gradient.
        for x in operands:
            if getattr(x, STORED, x).requires_grad:
                break
        else:
            self.by_number.setdefault(number, None)
            return None
        # Before a write to a value that the backward pass needs, autograd copies the value. The node of the copy, which
        # exists only if the value requires a gradient, follows the node of the write.
        if in_place and self.by_number.get(number) is not None:
            number -= 1
        noted_operands, nodes = [], []
        for i, x in enumerate(operands):
            # The edges of autograd lead to the tensor of the program.
            tag, original = tags[i] if tags else tag_of(x), getattr(x, STORED, x)
            node = original.grad_fn
            origin = (ACCUMULATING, id(original)) if node is None else (node._sequence_nr(), original.output_nr)
            nodes.append(origin[0])
            path = tag.owner if tag.is_weight else None
            if tag.narrow is not None and not place.is_contraction:
                path = None  # its gradient becomes the gradient of the parameter at the upcast
            noted_operands.append(Operand(i, path, tag.format or FORMAT_OF[x.dtype], origin))
        if in_place:  # the target keeps its dtype, and PyTorch converts the other operands to it
            noted_operands = [operand._replace(format=noted_operands[0].format) for operand in noted_operands]
        # If the base of a view was modified, autograd creates a new node for the view at its next read, after the node
        # of the reading operation.
        if number in nodes:
            number = self._note_renewed(place, noted_operands, number)
            if number in self.by_number:
                return None
        note = self.by_number[number] = LoggedOperation(place, tuple(noted_operands))
        if len(self.by_number) > REMEMBERED:
            # Autograd does not report that a node was freed, so the oldest notes are removed, half of them at once.
            # Then the cost of a note is constant on average.
            for old in list(self.by_number)[: REMEMBERED // 2]:
                del self.by_number[old]
        return note

    def _note_renewed(self, place: Place, operands: Sequence[Operand], number: int) -> int:
        """Note the new nodes of operands, ending at this number; return the number of the node before them."""
        renewed = {operand.origin[0]: operand for operand in operands if operand.origin is not None}
        while number in renewed and number not in self.by_number:
            self.by_number[number] = LoggedOperation(place, (renewed[number],), renewed[number].format)
            number -= 1
        return number

    def skip(self) -> None:
        """Mark the last node as not belonging to an operation, unless it has a note."""
        self.by_number.setdefault(sequence_number() - 1, None)

    def at_node(self, node: Any) -> LoggedOperation | None:
        """Return the note of a node; None if no operation of this run created it."""
        number = node._sequence_nr()
        # An operation that writes to a view creates two nodes after it: one for its base, and a new one for the view.
        name = node.name()
        # torch 2.13 calls the node torch::autograd::CopySlices, so only the end of the name is compared.
        if name.endswith(WRITE_TO_VIEW):
            return self.by_number.get(number - 1)
        base = node.next_functions[0][0] if name == RENEWED and number not in self.by_number else None
        if base is None or not base.name().endswith(WRITE_TO_VIEW) or base._sequence_nr() != number - 1:
            return self.by_number.get(number)
        write = self.by_number.get(number - 2)
        return write and LoggedOperation(write.place, (Operand(0, None, write.format or FP32),), write.format)


def nodes_behind(roots: Iterable[Any]) -> dict[Any, int]:
    """Return all nodes that the backward pass from these tensors or edges may reach, each with its number of shares.

    Every edge to a node is one share, and so is a root.
    """
    share_counts: dict[Any, int] = {}
    stack = [_node_of(root) for root in roots]
    while stack:
        node = stack.pop()
        if node in share_counts:
            share_counts[node] += 1
        elif node is not None:
            share_counts[node] = 1
            for target, _ in node.next_functions:
                stack.append(target)
    return share_counts


def _node_of(root: Any) -> Any:
    if not isinstance(root, torch.Tensor):
        return root.node
    if root.grad_fn is not None or not root.requires_grad:
        return root.grad_fn
    # A leaf has no grad_fn; autograd creates its node only on request, or in the pass.
    return torch.autograd.graph.get_gradient_edge(root).node


def parameters_of(loss: torch.Tensor) -> Iterator[torch.nn.Parameter]:
    """Yield the parameters on which a loss depends, by autograd's graph."""
    seen, stack = set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # only nodes that accumulate a gradient have it
        if isinstance(leaf, torch.nn.Parameter):
            yield leaf
        stack += [function for function, _ in node.next_functions]


def pending_events_at(place: Place, path: str) -> PendingEvents | None:
    """Return a store for the events of the gradient of the parameter at `path`; None if no observer wants them."""
    observer = place.observer
    if observer is None:
        return None
    is_wanted = wants(observer, path, "backward") or wants(observer, place.path, "backward")
    return PendingEvents(observer, place.path) if is_wanted else None


def observed_at(path: str, place: Place, arithmetic: Arithmetic) -> Arithmetic:
    """Return the arithmetic with an observer that receives its events at `path`, if the observer wants these."""
    observer = place.observer
    if observer is None or not wants(observer, path, "backward"):
        return arithmetic.with_observer(None)
    return arithmetic.with_observer(WithPath(observer, path, "backward", wants_optional_counts(observer)))


_runs_again: ContextVar[int | None] = ContextVar("simfloat.torch again", default=None)

#: Returns the number of the node that runs a part of the forward pass again in its backward pass; None if none does.
#: A backward pass inside that part has other nodes.
rerun_number = _runs_again.get


def place_observed_once(place: Place) -> Place:
    """Return the place; without its observer while a part of a forward pass runs again.

    The observer received the events in the first pass, also those of a backward pass inside this part.
    """
    return place if rerun_number() is None else place.without_observer


@contextmanager
def recomputing() -> Iterator[None]:
    """Mark a block in which a part of a forward pass runs again, inside the backward pass of a node."""
    node: Any = torch._C._current_autograd_node()
    # The number of the node distinguishes a recomputation from the backward pass of an inner checkpoint, which runs in
    # the same context: there the current node is another one, and its operations are gradients.
    before = _runs_again.set(None if node is None else node._sequence_nr())
    try:
        yield
    finally:
        _runs_again.reset(before)


def is_recomputing() -> bool:
    """True if a part of the forward pass runs again in the backward pass of this node, not of another one inside."""
    node: Any = torch._C._current_autograd_node()
    return node is not None and node._sequence_nr() == rerun_number()


class RecomputedPart:
    """A part of a forward pass that can run again later, at the same path."""

    def __init__(self, function: Callable[..., Any], run: Any) -> None:
        self._function, self._run = function, run
        self._moment, self._path, self._policy = run.simulation.stream_positions(), run.path, run.simulation.policy

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run the part again. Raises ValueError if the policy has changed, because the values would differ."""
        # Otherwise recomputed activations would differ from the first pass, and the gradients would belong to neither
        # pass.
        if self._run.simulation.policy != self._policy:
            raise ValueError(
                f"torch.utils.checkpoint recomputes a part of the module {self._path!r}, but the policy has changed "
                "since the forward pass. Call backward() before you change the policy."
            )
        # The recomputation uses the random bits and the amaxes of the first pass. Then both continue from where they
        # were, as the generators of TransformerEngine and Megatron do.
        with self._run.simulation.replay_from(self._moment), self._run.paths.at_path(self._path), recomputing():
            return self._function(*args, **options)


def reentrant(before: staticmethod) -> staticmethod:
    """Wrap the forward pass of the autograd function that runs its part again in its own backward pass."""

    @wraps(before.__func__)
    def forward(context: Any, function: Callable[..., Any], *args: Any) -> Any:
        run = active_run()
        again = function if run is None else RecomputedPart(function, run)
        results = before.__func__(context, function, *args)
        # After the first run, because until then the context has PyTorch's own `run_function`.
        context.run_function = again
        return results

    return staticmethod(forward)


def remembering(before: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that stores a part, which runs again when autograd needs values that were dropped."""

    @wraps(before)
    def begin(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        run = active_run()
        return before(function if run is None else RecomputedPart(function, run), *args, **options)

    return begin


def forward_pass() -> staticmethod:
    """Return the forward pass as its class defines it."""
    method: staticmethod = vars(checkpoint.CheckpointFunction)["forward"]
    return method
