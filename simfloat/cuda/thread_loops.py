"""Loops whose steps are threads: each does what `body(i, *arguments)` says of its number i, in any order.

Arrays on the GPU reach a body as vectors and matrices in C order. Small NumPy arrays, which hold the numbers of a grid
or an operand that is one number, are handed over by value and reach it as tuples: `len` and an index serve for both.
CuPy starts a loop; its arguments' types go to the compiler, its numbers to the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

import numpy as np

from simfloat.kernels.jit import scalar

#: Threads of a block.
BLOCK = 256

#: (kind, element type, axes or length) of an argument: all that its type follows from.
Kind = tuple[str, Any, int]


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
def at(operand, i):
    """The element of an operand, or its only one."""
    return operand[i if len(operand) > 1 else 0]


@scalar
def kept(value, out):
    """A result in the type of `out`, every NaN as the one NaN: where a GPU changes the type, it makes another of it."""
    kind = out.dtype.type
    number = kind(value)
    return number if number == number else kind(np.nan)


def launch(body: Any, count: int, arguments: tuple[Any, ...]) -> None:
    """Start so many threads of a loop's body on the current GPU, in the current stream.

    Raises ValueError for an array on another GPU, whose address means nothing to this one.
    """
    import cupy

    kinds, device = tuple(map(kind_of, arguments)), cupy.cuda.Device().id
    for argument, (kind, *_) in zip(arguments, kinds, strict=True):
        if kind == "array" and argument.device.id != device:
            raise ValueError(
                f"GPU {device} is the current one, an array lies on GPU {argument.device.id}: copy it, or compute "
                f"inside `with cupy.cuda.Device({argument.device.id}):`."
            )
    kernel = _loaded(body, kinds, device)
    numbers = [np.int64(count)]
    for argument in arguments:
        numbers += numbers_of(argument)
    kernel((-(-count // BLOCK),), (BLOCK,), numbers)


@cache
def _loaded(body: Any, kinds: tuple[Kind, ...], device: int) -> Any:
    """The kernel of a body for arguments of these kinds, on a GPU by its number, which is the current one."""
    import cupy

    from simfloat.cuda.compiling import compiled

    result = compiled(body, types_of(kinds))
    module = cupy.cuda.Module()
    module.load(result.ptx + b"\0")
    return module.get_function(result.entry)


def kind_of(argument: Any) -> Kind:
    """The kind of an argument: an array on the GPU, numbers that go by value, or one number."""
    if isinstance(argument, np.ndarray):
        return "numbers", argument.dtype, argument.size
    if isinstance(argument, np.generic):
        return "number", argument.dtype, 0
    if isinstance(argument, int | float):
        return "number", np.dtype(np.float64 if isinstance(argument, float) else np.int64), 0
    return "array", argument.dtype, argument.ndim


def types_of(kinds: tuple[Kind, ...]) -> tuple[Any, ...]:
    """Numba's types of arguments."""
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    made = {
        "array": lambda element, axes: types.Array(element, axes, "C"),
        "numbers": types.UniTuple,
        "number": lambda element, _: element,
    }
    return tuple(made[kind](from_dtype(dtype), extent) for kind, dtype, extent in kinds)


def numbers_of(argument: Any) -> list[Any]:
    """The numbers that a kernel receives for an argument.

    For an array those are what Numba has of one: two pointers to what owns it, which nothing here reads, its size, the
    bytes of an element, where it lies, its shape and its strides.
    """
    if isinstance(argument, np.ndarray):
        return list(argument.reshape(-1))
    if isinstance(argument, np.generic):
        return [argument]
    if isinstance(argument, int | float):
        return [np.float64(argument) if isinstance(argument, float) else np.int64(argument)]
    facts = (0, 0, argument.size, argument.itemsize, argument.data.ptr, *argument.shape, *argument.strides)
    return list(map(np.int64, facts))
