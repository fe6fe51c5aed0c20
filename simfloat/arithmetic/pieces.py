"""Pieces of work that other threads carry out. An interrupt, which may come at any moment, leaves all of it in order.

The pool of the standard library holds locks in Python code: where Ctrl-C comes between such a lock's being taken and
the block that lets it go, the next call waits for ever. Here every step that other threads see is one call of C.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import Any

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
