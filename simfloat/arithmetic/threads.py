"""Running a piece of work on several cores: results never depend on how many."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.machines import CPU, Device
from simfloat.arithmetic.pieces import Task, pool, wait_for_tasks

#: Nanoseconds of work that a thread must have: to wake it and to wait for its end takes about half as long.
LEAST_WORK = 100_000

#: Elements up to which the allocator has memory at hand.
SMALL = 1 << 10

_count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_scratch = threading.local()


def set_threads(count: int) -> None:
    """Let simfloat use `count` threads from now on; by default it uses every core. No result depends on it.

    Examples:
        >>> sf.set_threads(1)
        >>> sf.get_threads()
        1
    """
    global _count
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"The number of threads is an integer of at least 1, got {count!r}.")
    _count = count


def get_threads() -> int:
    """How many threads simfloat uses.

    Examples:
        >>> sf.set_threads(1)
        >>> sf.get_threads()
        1
    """
    return _count


def busy_threads(work: float) -> int:
    """How many threads are worth waking for so many nanoseconds of work; 0 if not even one is kept busy."""
    return min(_count, int(work / LEAST_WORK))


# A forked child has none of its parent's threads: it makes a pool of its own.
if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=pool.cache_clear)


def run_all(work: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
    """`work(piece)` for every piece: the last one here, the others on the pool if there is more than one thread, but
    those that no thread has begun until then.

    Where one raises an exception, or the user interrupts, the others have ended when the exception leaves: the memory
    that they write to may be the next call's.
    """
    if len(pieces) == 1:
        return [work(pieces[0])]
    if not pieces or _count == 1:
        return [work(piece) for piece in pieces]
    others = [Task(work, part) for part in pieces[:-1]]
    try:
        queue = pool(_count)
        for piece in others:
            queue.put(piece)
        last = work(pieces[-1])
        return [*(piece.result() for piece in others), last]
    except BaseException:
        wait_for_tasks(others)
        raise


def scratch(name: str, size: int, dtype: type, device: Device = CPU) -> NDArray:
    """An uninitialised array of this thread's, kept from call to call: fresh pages cost more than the arithmetic.

    A small one is sooner made than found, and CuPy keeps arrays itself.
    """
    if device is not CPU:
        return empty((size,), dtype, device)
    if size <= SMALL:
        return np.empty(size, dtype)
    buffers: dict[Any, NDArray] = _scratch.__dict__
    buffer = buffers.get((name, dtype))
    if buffer is None or buffer.size < size:
        buffer = buffers[name, dtype] = empty((size,), dtype)
    return buffer[:size]
