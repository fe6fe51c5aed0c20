"""Store the run that is open in this thread, and check if a call has ended.

Hooks report when a call begins. PyTorch does not report its end if Ctrl-C or an error of an optimizer aborts it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import local
from types import FrameType
from typing import Any

import torch
from torch.autograd import forward_ad

#: A ``with`` block in which PyTorch carries out operations itself, without a dispatch mode.
without_dispatch = torch._C._DisableTorchDispatch

_scales: ContextVar[bool] = ContextVar("simfloat.torch scaling", default=False)

#: Returns True if a GradScaler computes with its scale, which no policy rounds.
is_scaling = _scales.get


# The run is a `RunContext`; the module of this class imports this one. It is an attribute of the thread, not a context
# variable: autograd numbers its nodes per thread, so a run belongs to one thread anyway, and every wrapper of a PyTorch
# function reads it first.
class _ThisThread(local):
    run: Any = None
    is_paused = False


_thread = _ThisThread()


def open_run() -> Any:
    """Return the run that is open in this thread, paused or not; None outside every block."""
    return _thread.run


def active_run() -> Any:
    """Return the run that is open in this thread; None outside every block, and while the run is paused."""
    return None if _thread.is_paused else _thread.run


def outside_block(name: str) -> ValueError:
    """Return the error for a backward pass that reached an operation from outside the block."""
    return ValueError(f"The backward pass reached {name}, but its forward pass ran outside the block; run both inside.")


def is_transformed() -> bool:
    """True if a transform of torch.func runs, or forward-mode differentiation is active."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def this_thread() -> object:
    """Return an object that identifies this thread. The number of a thread may be reused after it has ended."""
    if not hasattr(_thread, "token"):
        _thread.token = object()
    return _thread.token


def set_open_run(run: Any) -> None:
    """Set the run that is open in this thread; None closes it."""
    _thread.run = run


@contextmanager
def pause() -> Iterator[None]:
    """Pause the run of this thread for the block."""
    _thread.is_paused = True
    try:
        yield
    finally:
        _thread.is_paused = False


@contextmanager
def scaling() -> Iterator[None]:
    """Mark a block in which a GradScaler computes with its scale."""
    token = _scales.set(True)
    try:
        yield
    finally:
        _scales.reset(token)


def is_going_on(call: FrameType) -> bool:
    """True if a call of this thread has not ended, that is, if it is on the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not call:
        frame = frame.f_back
    return frame is not None
