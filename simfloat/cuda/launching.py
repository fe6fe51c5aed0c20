"""Starting thread loops: their arguments as types for the compiler, and as numbers for the GPU, which CuPy starts."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

#: Threads of a block.
BLOCK = 256

#: (kind, element type, axes or length) of an argument: all that its type follows from.
Kind = tuple[str, Any, int]


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
