"""Threads: a piece of work runs on several cores, and results never depend on how many.

An interrupt, which may come at any moment, leaves all of it in order. The pool of the standard library holds locks in
Python code: where Ctrl-C comes between such a lock's being taken and the block that lets it go, the next call waits for
ever. Here every step that other threads see is one call of C.
"""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import CPU, Device
from simfloat.arithmetic.operands import empty
from simfloat.environment import is_usual, set_usual

#: Seconds after which a thread that waits looks again: an interrupt may have taken away that it was woken.
POLL_SECONDS = 0.1

#: Who carries a piece out.
HERE, POOL = "here", "pool"


class Task:
    """A piece of work, `work(part)`, that is carried out once: by a thread of the pool, or by the one that waits."""

    __slots__ = ("_ended", "_error", "_has_ended", "_owner", "_part", "_result", "_work")

    def __init__(self, work: Callable[[Any], Any], part: Any) -> None:
        self._work, self._part = work, part
        self._owner: dict[str, str] = {}
        self._has_ended = False
        self._ended = allocate_lock()  # let go at the end
        self._ended.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    def _is_for(self, who: str) -> bool:
        """Whether it is for this one to carry it out: for the one who asked first."""
        # One call of C: of two threads that ask at once one is first, and no interrupt comes between look and entry.
        return self._owner.setdefault("", who) == who

    def carry_out(self) -> None:
        """Carry it out in a thread of the pool, unless the one that waits has begun."""
        if not self._is_for(POOL):
            return
        try:
            self._result = self._work(self._part)
        except BaseException as error:
            self._error = error
        self._has_ended = True
        self._ended.release()

    def result(self) -> Any:
        """What the work gives, here and now if no thread has begun with it; raises what it raised."""
        if self._is_for(HERE):
            return self._work(self._part)
        self.wait()
        if self._error is None:
            return self._result
        try:
            raise self._error
        finally:
            self._error = None  # which would keep the frames of its traceback, and these it

    def wait(self) -> None:
        """Wait until no thread of the pool is at work on it; it is begun no more."""
        while not (self._is_for(HERE) or self._has_ended):
            self._ended.acquire(timeout=POLL_SECONDS)


def wait_for_tasks(pieces: list[Task]) -> None:
    """Wait until no thread is at work on any of the pieces, whatever interrupts come meanwhile."""
    while pieces:
        try:
            for piece in pieces:
                piece.wait()
            return
        except KeyboardInterrupt:
            continue


@cache
def pool(count: int) -> SimpleQueue[Task]:
    """Where so many threads find their pieces; they end with the process."""
    queue: SimpleQueue[Task] = SimpleQueue()
    for _ in range(count):
        start_new_thread(_serve, (queue,))
    return queue


def _serve(queue: SimpleQueue[Task]) -> None:
    if not is_usual():  # a new thread has the environment of the one that started it
        set_usual()
    while True:
        queue.get().carry_out()


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
