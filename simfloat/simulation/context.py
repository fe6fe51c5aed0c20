"""The current simulation, module path and composites, in one context variable.

Its value is immutable: the open blocks (`simulate`, `no_grad`), the running module, its names, and the composite
operations around the current one. Threads and tasks that start from a copy of the context continue from it
independently.

A block that a generator opened is in force only while the generator runs, not for its consumer. Generators that a
library runs as context managers are the exception: their blocks belong to the `with` statement.
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

#: Modules that run generators as context managers: @contextmanager, @asynccontextmanager, and fixtures that yield.
MANAGERS = ("contextlib", "_pytest.fixtures")


class Trees:
    """The trees of all modules: `state` becomes a new object after every change to the parts of any module."""

    def __init__(self) -> None:
        self.state = object()


TREES = Trees()


class Names(NamedTuple):
    """The paths of the parts of a root module, by identity, for one state of the trees."""

    modules: Mapping[int, str]
    parameters: Mapping[int, str]
    state: object
    renew: Callable[[], Names | None]  # returns the current names of the same root; None if it no longer exists
    outermost: ref[Any]  # the module at which the paths begin: the root or its outermost owner


class OpenBlock(NamedTuple):
    """An open ``with`` block."""

    opener: object
    field: str  # the field of Context that it sets
    value: Any
    holder: FrameType | None  # the generator that opened it

    @property
    def is_suspended(self) -> bool:
        """True if the block belongs to a generator that is not running."""
        # A generator's frame has a caller exactly while it runs.
        return self.holder is not None and self.holder.f_back is None


class Context(NamedTuple):
    """The current context."""

    blocks: tuple[OpenBlock, ...] = ()
    simulation: Any = None
    recording: bool = True
    is_in_generator: bool = False  # True if a generator opened one of the blocks
    path: str = ""  # path of the running module
    composites: tuple[str, ...] = ()
    names: Names | None = None  # of the running root module, from its last call or that of a module inside

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

#: The context of the running thread or task. Hot paths read it here and save the call of `current_context`.
CONTEXT: ContextVar[Context] = ContextVar("simfloat context", default=_NOTHING)


def current_context() -> Context:
    """Return the current context."""
    now = CONTEXT.get()
    return now.with_blocks(now.blocks) if now.is_in_generator else now


def context_in_block() -> Context:
    """Return the current context inside a `simulate` block; ValueError outside of any."""
    now = CONTEXT.get()
    if now.is_in_generator:
        now = now.with_blocks(now.blocks)
    if now.simulation is None:
        raise ValueError("A Tensor operation needs a policy in force: put it inside `with simfloat.simulate(policy):`.")
    return now


def open_block(opener: object, field: str, value: Any) -> None:
    """Set `field` of the context to `value` until the block is closed."""
    now = CONTEXT.get()
    CONTEXT.set(now.with_blocks((*now.blocks, OpenBlock(opener, field, value, _holder()))))


def close_block(opener: object, error: type[BaseException] | None) -> bool:
    """Close the innermost block of `opener`; return True if it was its outermost open block.

    After closing, raises ValueError if another block that was opened inside is still open, or if there is no block to
    close; but not if an `error` is already propagating.
    """
    with uninterrupted():
        now, holder = CONTEXT.get(), _holder()
        mine = [i for i, block in enumerate(now.blocks) if block.opener is opener]
        if not mine:
            if error is None:
                raise ValueError(
                    f"{opener!r} ends a block that was not opened here; open and close it in one thread or task."
                )
            return False
        place = next((i for i in reversed(mine) if now.blocks[i].holder is holder), mine[-1])
        left = now.blocks[:place] + now.blocks[place + 1 :]
        CONTEXT.set(now.with_blocks(left) if left else _NOTHING)
    inside = [block for block in now.blocks[place + 1 :] if block.holder is now.blocks[place].holder]
    if inside and error is None:
        raise ValueError(
            f"The block of {opener!r} ends while the block of {inside[-1].opener!r} inside it is open: close blocks in "
            "reverse order, for example by `with`."
        )
    return len(mine) == 1


class no_grad(ContextDecorator):
    """A ``with`` block, or a decorator ``@no_grad()``, in which operations are not recorded for backward.

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
        """Return the function, run inside such a block; ValueError for a generator or coroutine function."""
        if isgeneratorfunction(function) or iscoroutinefunction(function) or isasyncgenfunction(function):
            name = getattr(function, "__name__", "it")
            raise ValueError(f"The body of {name} runs after the call: put `with simfloat.no_grad():` inside it.")
        return super().__call__(function)

    def __repr__(self) -> str:
        return "no_grad()"


class changed_context:
    """A ``with`` block that sets fields of the context: for a running module or a composite operation."""

    __slots__ = ("_after", "_before", "_changes")

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def __enter__(self) -> None:
        self._before = CONTEXT.get()
        self._after = self._before._replace(**self._changes)
        CONTEXT.set(self._after)

    def __exit__(self, *_: object) -> None:
        restore_context(self._before, self._after)


def restore_context(before: Context, inside: Context) -> None:
    """Set the context `before`, at the end of a call or a block that set the context `inside`."""
    now = CONTEXT.get()
    if now is not inside:  # blocks that were opened or closed inside, by hand or by a generator, remain so
        before = now._replace(path=before.path, composites=before.composites, names=before.names)
    CONTEXT.set(before)


def composite(name: str) -> changed_context:
    """Return a ``with`` block whose operations are parts of the composite `name`, for overrides by operation."""
    return changed_context(composites=(*CONTEXT.get().composites, name))


def context_of_module(before: Context, module: Module, find: Callable[[Module], Names]) -> Context:
    """Return the context in which `module` runs, at its path in the running root module; `before` is the current one.

    A module that the root does not contain becomes a root itself: `find` returns its names, with the path from its
    first owner. Names are renewed if a module has gained or lost a part since.
    """
    now = context_in_block() if before.is_in_generator or before.simulation is None else before
    names = now.names
    if names is not None and names.state is not TREES.state:
        names = names.renew()
    if names is None or id(module) not in names.modules:
        names = find(module)
    path = names.modules[id(module)]
    now.simulation.known_paths[path] = None
    return Context(*before[:4], path, before.composites, names)


def _holder() -> FrameType | None:
    """Return the innermost generator around the caller of `open_block` or `close_block`, if there is one."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR):
            resumer = frame.f_back
            if resumer is None or resumer.f_globals.get("__name__") not in MANAGERS:
                return frame
        frame = frame.f_back
    return None
