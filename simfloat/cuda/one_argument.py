"""All that a kernel receives, as one argument: a structure of its numbers, laid out as in C.

Numba gives a kernel a parameter for every number, and there are 28 of them in a grid, and at least seven in an array.
CuPy converts each at every launch, which took half of its time. A structure costs what a single number does: the
kernel's PTX reads its parameters from one (:func:`with_one_parameter`), and what a launch receives is laid out as that
(:func:`pack_arguments`). Every number lies at the next multiple of its size, which is where a driver puts parameters, too.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Any

import numpy as np

#: (kind, element type, axes or length, GPU) of an argument: all that its type follows from, and where an array lies.
ArgumentKind = tuple[str, Any, int, int | None]

#: What the structure is called in PTX.
NAME = b"received"

INTEGER, FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_integer, _float = Struct("q").pack, Struct("d").pack

#: What puts what Numba has of an array into bytes, by its axes: CuPy's have at most 64.
ARRAY_HEADERS = [Struct(f"{5 + 2 * axes}q").pack for axes in range(65)]


def pack_arguments(count: int, arguments: tuple[Any, ...]) -> tuple[tuple[ArgumentKind, ...], np.void]:
    """The kinds of arguments, and the structure of the number of threads and of theirs."""
    kinds, structure = [], _integer(count)
    for argument in arguments:
        kind, size, content = describe_argument(argument)
        kinds.append(kind)
        # As C aligns a structure: a driver expects each parameter at a multiple of its size, and so do the kernel's
        # reads.
        if beyond := len(structure) % size:
            structure += bytes(size - beyond)
        structure += content
    return tuple(kinds), np.void(structure)


def describe_argument(argument: Any) -> tuple[ArgumentKind, int, bytes]:
    """The kind of an argument, the size of each of its numbers, and these: an array on the GPU, or what goes by value.

    For an array those are what Numba has of one: two pointers to what owns it, which nothing here reads, its size, the
    bytes of an element, where it lies, its shape and its strides.
    """
    if isinstance(argument, np.ndarray):
        dtype = argument.dtype
        return ("numbers", dtype, argument.size, None), dtype.itemsize, argument.tobytes()
    if isinstance(argument, np.generic):
        dtype = argument.dtype
        return ("number", dtype, 0, None), dtype.itemsize, argument.tobytes()
    if isinstance(argument, float):
        return ("number", FLOAT, 0, None), 8, _float(argument)
    if isinstance(argument, int):
        return ("number", INTEGER, 0, None), 8, _integer(argument)
    shape, dtype, memory = argument.shape, argument.dtype, argument.data
    axes = len(shape)
    # Packed by hand, by one call for each number of axes: CuPy converts every argument of a launch by itself, and with
    # 28 numbers of a grid that took half of a launch's time.
    header = ARRAY_HEADERS[axes](0, 0, argument.size, dtype.itemsize, memory.ptr, *shape, *argument.strides)
    return ("array", dtype, axes, memory.device_id), 8, header


def argument_types(kinds: tuple[ArgumentKind, ...]) -> tuple[Any, ...]:
    """Numba's types of arguments."""
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    makers = {
        "array": lambda element, axes: types.Array(element, axes, "C"),
        "numbers": types.UniTuple,
        "number": lambda element, _: element,
    }
    return tuple(makers[kind](from_dtype(dtype), extent) for kind, dtype, extent, _ in kinds)


def with_one_parameter(ptx: bytes, entry: bytes) -> bytes:
    """The PTX of a kernel with one parameter in the place of all: a structure of them, in their order."""
    head, start, rest = ptx.partition(b".entry " + entry + b"(")
    parameters, end, body = rest.partition(b")")
    places, size = {}, 0
    for bits, name in re.findall(rb"\.param \.[a-z](\d+) (?:[^,]*\s)?([\w$]+)", parameters):
        width = int(bits) // 8
        size += -size % width
        places[b"[" + name + b"]"] = b"[%s+%d]" % (NAME, size)
        size += width
    body = re.sub(rb"\[[\w$]+\]", lambda match: places.get(match[0], match[0]), body)
    return head + start + b"\n\t.param .align 8 .b8 %s[%d]\n" % (NAME, size) + end + body
