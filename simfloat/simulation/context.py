"""The current simulation, module path and composites, in one context variable.

Its value is immutable: which blocks are open (`simulate`, `no_grad`), which module runs, under which names, and inside
of which composite operations. Threads and tasks that start from a copy of the context go on from it without touching
each other.

A block that a generator opened is in force while the generator runs, and not for those who consume it: a suspended
generator calls nothing. Generators that a library runs as context managers are the exception; their blocks belong
to the `with` statement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import FrameType
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from simfloat.uninterrupted import uninterrupted

Function = TypeVar("Function", bound=Callable[..., Any])
Module = TypeVar("Module")

#: Modules whose generators are context managers: @contextmanager and @asynccontextmanager, fixtures that yield.
MANAGERS = ("contextlib", "_pytest.fixtures")


class Trees:
    """The trees of all modules: `state` is another object after every change to the parts of any module."""

    def __init__(self) -> None:
        self.state = object()


TREES = Trees()


class Names(NamedTuple):
    """The paths of a root module's parts, by identity, in one state of the trees."""

    modules: Mapping[int, str]
    parameters: Mapping[int, str]
    state: object
    renew: Callable[[], Names | None]  # finds those that the same root gives now; None once it is gone
    outermost: ref[Any]  # the module at which the paths begin: the root, or the outermost of its owners


class OpenBlock(NamedTuple):
    """An open ``with`` block."""

    opener: object
    field: str  # what of Context it decides
    value: Any
    holder: FrameType | None  # the generator that opened it

    @property
    def is_suspended(self) -> bool:
        """Whether it waits in a generator that does not run."""
        # A generator's frame has a caller exactly while it runs.
        return self.holder is not None and self.holder.f_back is None


class Context(NamedTuple):
    """What is in force here and now."""

    blocks: tuple[OpenBlock, ...] = ()
    simulation: Any = None
    recording: bool = True
    is_in_generator: bool = False  # whether a generator holds one of the blocks
    path: str = ""  # of the module that runs
    composites: tuple[str, ...] = ()
    names: Names | None = None  # those of the root module that runs, when it or the last module inside was called

    def with_blocks(self, blocks: tuple[OpenBlock, ...]) -> Context:
        """Return this context with these blocks open, the innermost last."""
        decided = {block.field: block.value for block in blocks if not block.is_suspended}
        return self._replace(
            blocks=blocks,
            simulation=decided.get("simulation"),
            recording=decided.get("recording", True),
            is_in_generator=any(block.holder is not None for block in blocks),
        )


_NOTHING = Context()
_context: ContextVar[Context] = ContextVar("simfloat context", default=_NOTHING)


def current_context() -> Context:
    """What is in force here and now."""
    now = _context.get()
    return now.with_blocks(now.blocks) if now.is_in_generator else now


def context_in_block() -> Context:
    """What is in force inside of a `simulate` block; ValueError outside of any."""
    now = _context.get()
    if now.is_in_generator:
        now = now.with_blocks(now.blocks)
    if now.simulation is None:
        raise ValueError("A Tensor operation needs a policy in force: put it inside `with simfloat.simulate(policy):`.")
    return now


def open_block(opener: object, field: str, value: Any) -> None:
    """Put `value` in force until the block is closed."""
    now = _context.get()
    _context.set(now.with_blocks((*now.blocks, OpenBlock(opener, field, value, _holder()))))


def close_block(opener: object, error: type[BaseException] | None) -> bool:
    """End the innermost block of `opener`; whether it was the outermost of its blocks that are open here.

    Raises ValueError, once the block is ended, if another one that was opened inside is still open; and if there is
    none to end. While an `error` is on its way it is not covered by another.
    """
    with uninterrupted():
        now, holder = _context.get(), _holder()
        mine = [i for i, block in enumerate(now.blocks) if block.opener is opener]
        if not mine:
            if error is None:
                raise ValueError(
                    f"{opener!r} ends a block that was not begun here; begin and end it in one thread or task."
                )
            return False
        place = next((i for i in reversed(mine) if now.blocks[i].holder is holder), mine[-1])
        left = now.blocks[:place] + now.blocks[place + 1 :]
        _context.set(now.with_blocks(left) if left else _NOTHING)
    inside = [block for block in now.blocks[place + 1 :] if block.holder is now.blocks[place].holder]
    if inside and error is None:
        raise ValueError(
            f"The block of {opener!r} ends while that of {inside[-1].opener!r}, begun inside, is open: end blocks in "
            "the reverse order, for example by `with`."
        )
    return len(mine) == 1


class no_grad(ContextDecorator):
    """A ``with`` block, or a decorator ``@no_grad()``, under which operations are not recorded for backward.

    Examples:
        >>> with sf.simulate("fp32"), sf.no_grad():
        ...     y = sf.Parameter([1.0]) + 1.0
        >>> y.requires_grad
        False
    """

    def __enter__(self) -> None:
        open_block(self, "recording", False)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        close_block(self, kind)

    def __call__(self, function: Function) -> Function:
        """The function, run inside such a block; ValueError for one whose body runs after the call."""
        if isgeneratorfunction(function) or iscoroutinefunction(function) or isasyncgenfunction(function):
            name = getattr(function, "__name__", "it")
            raise ValueError(f"What {name} does runs later; put `with simfloat.no_grad():` inside of it.")
        return super().__call__(function)

    def __repr__(self) -> str:
        return "no_grad()"


def is_recording() -> bool:
    """Whether operations are recorded for backward."""
    return current_context().recording


class changed_context:
    """A ``with`` block in which a module runs, or a composite operation: fields of Context take these values."""

    __slots__ = ("_after", "_before", "_changes")

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def __enter__(self) -> None:
        self._before = _context.get()
        self._after = self._before._replace(**self._changes)
        _context.set(self._after)

    def __exit__(self, *_: object) -> None:
        now, before = _context.get(), self._before
        # Blocks that were opened or closed inside, by hand or by a generator, stay so.
        same = now is self._after
        _context.set(
            before if same else now._replace(path=before.path, composites=before.composites, names=before.names)
        )


def composite(name: str) -> changed_context:
    """A ``with`` block whose operations are parts of the composite `name`, for overrides by operation."""
    return changed_context(composites=(*_context.get().composites, name))


def module_running(module: Module, find: Callable[[Module], Names]) -> changed_context:
    """A ``with`` block in which `module` runs, at the path that the running root gives it.

    A module that the root does not name becomes a root of its own, whose names `find` gives, with the path that its
    first owner gives it. The root names its parts anew where a module has gained or lost one since.
    """
    now = context_in_block()
    names = now.names
    if names is not None and names.state is not TREES.state:
        names = names.renew()
    if names is None or id(module) not in names.modules:
        names = find(module)
    path = names.modules[id(module)]
    now.simulation.note_path(path)
    return changed_context(path=path, names=names)


def _holder() -> FrameType | None:
    """The innermost generator that the caller of `open_block` or `close_block` runs in, if there is one."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR):
            resumer = frame.f_back
            if resumer is None or resumer.f_globals.get("__name__") not in MANAGERS:
                return frame
        frame = frame.f_back
    return None
