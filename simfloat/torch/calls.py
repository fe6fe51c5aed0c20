"""Calls that hooks tell the beginning of; PyTorch tells no end of one that Ctrl-C, or an optimizer's error, ended."""

from __future__ import annotations

import sys
from types import FrameType


def is_going_on(call: FrameType) -> bool:
    """Whether a call of this thread has not ended: it is among those that wait for this one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not call:
        frame = frame.f_back
    return frame is not None
