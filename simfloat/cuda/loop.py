"""Loops whose steps are threads: each does what `body(i, *arguments)` says of its number i, in any order.

Arrays on the GPU reach a body as vectors and matrices in C order. Small NumPy arrays, which hold the numbers of a grid
or an operand that is one number, are handed over by value and reach it as tuples: `len` and an index serve for both.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from simfloat.cuda import launching
from simfloat.kernels.jit import scalar


class ThreadLoop:
    """A body, and over which of its arguments it loops: called as the CPU's loop of that name is."""

    def __init__(self, body: Callable, over: str, each: int = 1) -> None:
        self.over, self.each = list(signature(body).parameters).index(over) - 1, each
        self.body = scalar(body)

    def __call__(self, *arguments: Any) -> None:
        """Start a thread for every element of the argument, or for every few."""
        self.start(-(-arguments[self.over].size // self.each), *arguments)

    def start(self, count: int, *arguments: Any) -> None:
        """Start so many threads; they are done when the arrays are next read."""
        if count:
            launching.launch(self.body, count, arguments)


def threads_over(over: str, each: int = 1) -> Callable[[Callable], ThreadLoop]:
    """Make a body a loop with a thread for every element, or for `each` of them, of the argument of that name."""
    return lambda body: ThreadLoop(body, over, each)
