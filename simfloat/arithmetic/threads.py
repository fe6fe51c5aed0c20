"""Threads: pieces of work run on several cores, and results never depend on the number of threads.

An interrupt may come at any moment, and leaves everything in a consistent state. The pool of the standard library holds
locks in Python code: if Ctrl-C comes between acquiring such a lock and entering the block that releases it, the next
call waits forever. So every step that other threads observe is one call of C here.
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

#: Seconds after which a waiting thread checks again: an interrupt may have swallowed its wake-up.
POLL_SECONDS = 0.1

#: The owners of a piece: the waiting thread, or a thread of the pool.
HERE, POOL = "here", "pool"


class Task:
    """A piece of work, `work(part)`, that runs once: in a thread of the pool, or in the thread that waits for it."""

    __slots__ = ("_ended", "_error", "_has_ended", "_owner", "_part", "_result", "_work")

    def __init__(self, work: Callable[[Any], Any], part: Any) -> None:
        self._work, self._part = work, part
        self._owner: dict[str, str] = {}
        self._has_ended = False
        self._ended = allocate_lock()  # released at the end
        self._ended.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    def _is_for(self, who: str) -> bool:
        """Return True if `who` may run the piece: the first one that asks may."""
        # This is one call of C: two threads cannot run it at the same time, and no interrupt comes between reading and
        # writing.
        return self._owner.setdefault("", who) == who

    def carry_out(self) -> None:
        """Run the piece in a thread of the pool, unless the waiting thread has begun."""
        if not self._is_for(POOL):
            return
        try:
            self._result = self._work(self._part)
        except BaseException as error:
            self._error = error
        self._has_ended = True
        self._ended.release()

    def result(self) -> Any:
        """Return the result of the work, or raise its exception; run it in this thread if no other thread has begun."""
        if self._is_for(HERE):
            return self._work(self._part)
        self.wait()
        if self._error is None:
            return self._result
        try:
            raise self._error
        finally:
            self._error = None  # it would keep the frames of its traceback alive, and they would keep it alive

    def wait(self) -> None:
        """Wait until no thread of the pool runs the piece; afterwards no thread will start it."""
        while not (self._is_for(HERE) or self._has_ended):
            self._ended.acquire(timeout=POLL_SECONDS)


def wait_for_tasks(pieces: list[Task]) -> None:
    """Wait until no thread runs any of the pieces, even if interrupts come meanwhile."""
    while pieces:
        try:
            for piece in pieces:
                piece.wait()
            return
        except KeyboardInterrupt:
            continue


@cache
def pool(count: int) -> SimpleQueue[Task]:
    """Start `count` threads and return the queue of their pieces; the threads end with the process."""
    queue: SimpleQueue[Task] = SimpleQueue()
    for _ in range(count):
        start_new_thread(_serve, (queue,))
    return queue


def _serve(queue: SimpleQueue[Task]) -> None:
    if not is_usual():  # a new thread inherits the floating-point environment of its parent
        set_usual()
    while True:
        queue.get().carry_out()


#: The least work for a thread in nanoseconds: waking it and waiting for its end takes about half as long.
LEAST_WORK = 100_000

#: The number of elements up to which the allocator returns memory without a system call.
SMALL = 1 << 10

_count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_scratch = threading.local()


def set_threads(count: int) -> None:
    """Set the number of threads that simfloat uses; by default it uses every core. No result depends on it.

    Parameters:
        count: the number of threads, at least 1.

    Raises:
        ValueError: if `count` is not an integer of at least 1.

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
    """Return the number of threads that simfloat uses.

    Returns:
        An integer of at least 1; `set_threads` changes it.

    Examples:
        >>> sf.set_threads(1)
        >>> sf.get_threads()
        1
    """
    return _count


def busy_threads(work: float) -> int:
    """Return the number of threads to wake for `work` nanoseconds of work; 0 if not even one would be kept busy."""
    return min(_count, int(work / LEAST_WORK))


# A forked child has none of its parent's threads, so it makes its own pool.
if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=pool.cache_clear)


def run_all(work: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
    """Return `work(piece)` for every piece: the last piece runs in this thread, the others in threads of the pool.

    Pieces that no thread has begun when the last one is finished also run in this thread. If one raises an exception,
    or the user interrupts, the others have ended before the exception leaves this function: the memory that they write
    to may belong to the next call.
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
    """Return an uninitialised array of this thread, reused from call to call: new pages cost more than the arithmetic.

    Small arrays are allocated each time, which is faster, and CuPy caches memory itself.
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
