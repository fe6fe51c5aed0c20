"""Loops whose steps are threads: each does what `body(i, *arguments)` says of its number i, in any order.

Arrays on the GPU reach a body as vectors and matrices in C order. Small NumPy arrays, which hold the numbers of a grid
or an operand that is one number, are handed over by value and reach it as tuples: `len` and an index serve for both.
CuPy starts a loop: its arguments' types go to the compiler, once, and its numbers to the GPU (`one_argument.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

import numpy as np

from simfloat.cuda.one_argument import ArgumentKind, argument_types, pack_arguments
from simfloat.kernels.jit import scalar

#: Threads of a block, and those of a warp, which read side by side.
BLOCK, WARP = 256, 32


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
            launch(self.body, count, arguments)


def threads_over(over: str, each: int = 1) -> Callable[[Callable], ThreadLoop]:
    """Make a body a loop with a thread for every element, or for `each` of them, of the argument of that name."""
    return lambda body: ThreadLoop(body, over, each)


@scalar
def element_or_only(operand, i):
    """The element of an operand, or its only one."""
    return operand[i if len(operand) > 1 else 0]


@scalar
def row_and_column(t, shape):
    """The row and the column of thread t's element of a matrix of this shape.

    The threads of a warp are neighbours in a row, the warps of a block lie one below the other: of what sums read of
    their right operand, these find in the cache what one of them has read.
    """
    rows, columns = shape[0], shape[1]
    area = WARP * rows
    band = t // area
    inside, width = t - band * area, min(WARP, columns - band * WARP)
    return inside // width, band * WARP + inside % width


@scalar
def cast_for_out(value, out):
    """A result in the type of `out`, every NaN as the one NaN: where a GPU changes the type, it makes another of it."""
    kind = out.dtype.type
    number = kind(value)
    return number if number == number else kind(np.nan)


def launch(body: Any, count: int, arguments: tuple[Any, ...]) -> None:
    """Start so many threads of a loop's body on the current GPU, in the current stream.

    Raises ValueError for an array on another GPU, whose address means nothing to this one.
    """
    import cupy

    kinds, structure = pack_arguments(count, arguments)
    kernel = _load_kernel(body, kinds, cupy.cuda.Device().id)
    kernel((-(-count // BLOCK),), (BLOCK,), (structure,))


@cache
def _load_kernel(body: Any, kinds: tuple[ArgumentKind, ...], device: int) -> Any:
    """The kernel of a body for arguments of these kinds, on a GPU by its number, which is the current one."""
    import cupy

    from simfloat.cuda.compiling import load_or_compile

    for *_, gpu in kinds:
        if gpu not in (None, device):
            raise ValueError(
                f"GPU {device} is the current one, an array lies on GPU {gpu}: copy it, or compute inside `with "
                f"cupy.cuda.Device({gpu}):`."
            )
    result = load_or_compile(body, argument_types(kinds))
    # A module of the driver's, from PTX: CuPy's own compiler is not asked. What is loaded is kept by the kinds of the
    # arguments, so a later launch types and compiles nothing.
    module = cupy.cuda.Module()
    module.load(result.ptx + b"\0")
    return module.get_function(result.entry)
