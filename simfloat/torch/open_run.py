"""The run whose block is open in this thread, and whether a call has ended.

Hooks tell when a call begins. PyTorch does not tell when one ends that Ctrl-C, or an error of an optimizer, ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from threading import local
from types import FrameType
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad

from simfloat.formats import Format
from simfloat.simulation import Simulation

#: A ``with`` block whose operations PyTorch carries out itself, without telling a mode of dispatch.
without_dispatch = torch._C._DisableTorchDispatch

# An attribute of the thread, not a context variable: autograd numbers its nodes for each thread, so a run belongs to
# one anyway, and every wrapper of a function of PyTorch reads this first.
_thread = local()
_scales: ContextVar[bool] = ContextVar("simfloat.torch scaling", default=False)


class OpenRun(Protocol):
    """The part of a run that wrappers of PyTorch's functions use."""

    simulation: Simulation
    run: Any  # as the program has it, a `Run`
    constant_format: Format | None  # what numbers are of that are made of no tensor; None for data

    @property
    def path(self) -> str:
        """The path of the module that runs, or whose backward pass does."""
        ...

    def at_path(self, path: str) -> AbstractContextManager[None]:
        """A block that runs where the module at this path does."""
        ...

    def backward(
        self, roots: Iterable[Any], *, accumulates: bool, is_recorded: bool, is_whole: bool
    ) -> AbstractContextManager[None]:
        """A block in which a backward pass runs from these tensors.

        `accumulates` if gradients become `.grad`, `is_recorded` if gradients of them may be asked for, `is_whole` if
        all leaves are reached.
        """
        ...

    def in_place_of(self, path: str, x: Any) -> Any:
        """A tensor that takes a parameter's place in a call: its numbers as rounded to the parameter's `weights`."""
        ...


def open_run() -> OpenRun | None:
    """The run whose block is open in this thread, paused or not; None outside of any."""
    return getattr(_thread, "run", None)


def active_run() -> OpenRun | None:
    """The run whose block is open in this thread; None outside of any, and while the run is paused."""
    return None if getattr(_thread, "is_paused", False) else open_run()


def is_transformed() -> bool:
    """Whether a transform of torch.func runs, or derivatives go forward."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def this_thread() -> object:
    """Return an object that identifies this thread; the number of a thread may be that of one which has ended."""
    if not hasattr(_thread, "token"):
        _thread.token = object()
    return _thread.token


def set_open_run(run: OpenRun | None) -> None:
    """Open the block of a run in this thread; None closes it."""
    _thread.run = run


@contextmanager
def pause() -> Iterator[None]:
    """A block in which the run of this thread is paused."""
    _thread.is_paused = True
    try:
        yield
    finally:
        _thread.is_paused = False


def is_scaling() -> bool:
    """Whether a GradScaler computes with its scale, which no policy rounds."""
    return _scales.get()


@contextmanager
def scaling() -> Iterator[None]:
    """A block in which a GradScaler computes with its scale."""
    token = _scales.set(True)
    try:
        yield
    finally:
        _scales.reset(token)


def is_going_on(call: FrameType) -> bool:
    """Whether a call of this thread has not ended: it is among those that wait for this one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not call:
        frame = frame.f_back
    return frame is not None
