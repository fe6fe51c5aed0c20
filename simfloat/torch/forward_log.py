"""The log of a forward pass: where the operation of every autograd node ran, for the backward pass to read.

An observer receives the events of a parameter's gradient at the parameter's path, once the gradient is complete.

Under torch.utils.checkpoint a part of the forward pass runs again in the backward pass: it sees the random draws and
scales of the first pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch.utils import checkpoint

from simfloat.arithmetic.target import wants
from simfloat.formats import FP32, Format
from simfloat.kernels.rounding.events import wants_optional_counts
from simfloat.simulation.arithmetic import Arithmetic, PendingEvents, WithPath
from simfloat.simulation.place import Place
from simfloat.torch.open_run import OpenRun, active_run
from simfloat.torch.tensors import FORMAT_OF, stored_tensor, tag_of

#: How many operations are remembered; older ones are forgotten first.
REMEMBERED = 1 << 20

#: The sequence number of every node at which autograd adds to `.grad`.
ACCUMULATING = 2**64 - 1

#: The node that a view gets when its base was written to, and how that of a write to a view ends, on the way back to
#: the view's base.
RENEWED, WRITE_TO_VIEW = "AsStridedBackward0", "CopySlices"

# When an operation reaches dispatch, autograd has just numbered its node: it is the counter of this thread less one. In
# the backward pass the node that runs has the same number. So forward and backward operations are paired exactly,
# without a hook (measured on torch 2.13).
sequence_number = torch._C._autograd._get_sequence_nr


class Origin(NamedTuple):
    """Where autograd sends the gradient of a tensor: a node, and the number of its result; a leaf has none."""

    node: int
    result: int


class Operand(NamedTuple):
    """An operand of a forward operation."""

    number: int
    path: str | None  # of the parameter whose numbers it holds
    format: Format
    origin: Origin | None = None


def origin_of(x: torch.Tensor) -> Origin:
    """The edge of autograd that leads to x."""
    x = stored_tensor(x)
    node = x.grad_fn
    return Origin(ACCUMULATING, id(x)) if node is None else Origin(node._sequence_nr(), x.output_nr)


def operand_of(number: int, x: torch.Tensor) -> Operand:
    """A tensor as an operand."""
    tag = tag_of(x)
    return Operand(number, tag.owner if tag.is_weight else None, tag.format or FORMAT_OF[x.dtype], origin_of(x))


class LoggedOperation:
    """A forward operation, its floating operands; of its result the format, and the parameter that it still is."""

    __slots__ = ("format", "is_composite", "is_of_backward", "is_one_call", "operands", "place", "weight")

    def __init__(self, place: Place, operands: tuple[Operand, ...], format: Format | None = None) -> None:
        self.place, self.operands, self.format = place, operands, format
        self.weight: str | None = None
        self.is_composite = False  # made of other operations
        self.is_one_call = False  # and so is its way back, which says itself whose gradient a result is
        self.is_of_backward = False  # one of a backward pass, where gradients are operands too

    def operand(self, number: int) -> Operand | None:
        """The operand of this number; None where the operation was carried out without it."""
        return self.operands[number] if number < len(self.operands) else None


class ForwardLog:
    """The notes of a run by sequence number, the number that autograd gives its nodes in the order of the program."""

    def __init__(self) -> None:
        self._notes: dict[int, LoggedOperation | None] = {}
        # What was asked for last; numbers are not given twice.
        # A backward formula of several operations asks for its node at each of them.
        self._last_lookup: tuple[int, LoggedOperation | None] = (-1, None)
        self.in_place = False  # whether the operation that begins next writes to its first operand

    @property
    def knows_last(self) -> bool:
        """Whether the last node is that of an operation that was noted, so that what makes no node needs no note."""
        return not self.in_place and sequence_number() - 1 in self._notes

    def begin(self, place: Place, operands: Sequence[torch.Tensor]) -> LoggedOperation | None:
        """Note the operation that was begun, unless the last node is that of an earlier one.

        Where no operand wants a gradient it made none, and the last one may be that of a program's own function.
        """
        number = sequence_number() - 1
        in_place, self.in_place = self.in_place, False
        if not in_place and number in self._notes:
            return None
        # A rounded copy of a parameter is a tensor without history: whether the parameter wants a gradient is asked of
        # the tensor that the program gave.
        if not any([stored_tensor(x).requires_grad for x in operands]):
            self.skip()
            return None
        # Before autograd writes over a number that it needs for the way back, it copies it, by an operation of its own.
        # The node of the copy, which there is only where that number wants a gradient, follows that of the write.
        if in_place and self._notes.get(number) is not None:
            number -= 1
        noted_operands = tuple([operand_of(i, x) for i, x in enumerate(operands)])
        if in_place:  # what is written keeps its type, to which PyTorch brings the other operands
            noted_operands = tuple(operand._replace(format=noted_operands[0].format) for operand in noted_operands)
        # A view whose base was written to gets a new node when it is next read, after that of the operation that reads.
        if number in [operand.origin.node for operand in noted_operands if operand.origin is not None]:
            number = self._note_renewed(place, noted_operands, number)
            if number in self._notes:
                return None
        note = self._notes[number] = LoggedOperation(place, noted_operands)
        if len(self._notes) > REMEMBERED:
            # Nothing tells that a node was freed, so notes go by age, half of them at once, which makes the cost of a
            # note constant on average.
            for old in list(self._notes)[: REMEMBERED // 2]:
                del self._notes[old]
        return note

    def _note_renewed(self, place: Place, operands: Sequence[Operand], number: int) -> int:
        """Note the new nodes of operands, the last of them of this number; the number of the node before them."""
        renewed = {operand.origin.node: operand for operand in operands if operand.origin is not None}
        while number in renewed and number not in self._notes:
            self._notes[number] = LoggedOperation(place, (renewed[number],), renewed[number].format)
            number -= 1
        return number

    def skip(self) -> None:
        """Know that the last node is that of no operation unless it is known of which."""
        self._notes.setdefault(sequence_number() - 1, None)

    def at_number(self, number: int) -> LoggedOperation | None:
        """The note of the node of this number, if it is that of the operation itself."""
        return self._notes.get(number)

    def at_node(self, node: Any) -> LoggedOperation | None:
        """The note of a node; None if no operation of this run made it."""
        number = node._sequence_nr()
        if number != self._last_lookup[0]:
            self._last_lookup = number, self._note_at(number, node)
        return self._last_lookup[1]

    def _note_at(self, number: int, node: Any) -> LoggedOperation | None:
        # Two nodes are numbered after the operation that writes to a view: one for its base, and then a new one for it.
        name = node.name()
        # torch 2.13 calls the node torch::autograd::CopySlices, so only the end of the name is compared.
        if name.endswith(WRITE_TO_VIEW):
            return self._notes.get(number - 1)
        base = node.next_functions[0][0] if name == RENEWED and number not in self._notes else None
        if base is None or not base.name().endswith(WRITE_TO_VIEW) or base._sequence_nr() != number - 1:
            return self._notes.get(number)
        write = self._notes.get(number - 2)
        return write and LoggedOperation(write.place, (Operand(0, None, write.format or FP32),), write.format)


def pending_events_at(place: Place, path: str) -> PendingEvents | None:
    """Return a store for the events of the gradient of the parameter at `path`; None if no observer wants them."""
    observer = place.observer
    if observer is None:
        return None
    is_wanted = wants(observer, path, "backward") or wants(observer, place.path, "backward")
    return PendingEvents(observer, place.path) if is_wanted else None


def observed_at(path: str, place: Place, arithmetic: Arithmetic) -> Arithmetic:
    """Return the arithmetic with an observer that receives its events at `path`, if it wants events of that path."""
    observer = place.observer
    if observer is None or not wants(observer, path, "backward"):
        return arithmetic.with_observer(None)
    return arithmetic.with_observer(WithPath(observer, path, "backward", wants_optional_counts(observer)))


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
