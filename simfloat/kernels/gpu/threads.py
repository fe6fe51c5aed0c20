"""Loops that run as threads, and the memory of threads.

Each thread executes `body(i, *arguments)` with its index i, in any order. A body receives arrays on the GPU as vectors
and matrices in C order. Small NumPy arrays, which contain the numbers of a grid or a scalar operand, are passed by
value and received as tuples: `len` and indexing work for both. CuPy starts a loop: the types of its arguments go to the
compiler, once, and their values to the GPU (`compiling.py`).

Threads can add to shared counters, and have separate stacks. The Python bodies are for simulators, which use Python's
threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from threading import Lock
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, overload

from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.gpu.compiling import ArgumentKind, argument_types, cuda, pack_arguments

#: Threads of a block, and threads of a warp, which read neighbouring addresses.
BLOCK, WARP = 256, 32


class ThreadLoop:
    """A body, and the argument that it loops over; called like the CPU's loop of the same name."""

    def __init__(self, body: Callable, over: str, each: int = 1) -> None:
        self.over, self.each = list(signature(body).parameters).index(over) - 1, each
        self.body = scalar(body)

    def __call__(self, *arguments: Any) -> None:
        """Start a thread for every element of the argument, or for every few."""
        self.start(-(-arguments[self.over].size // self.each), *arguments)

    def start(self, count: int, *arguments: Any) -> None:
        """Start `count` threads; they are finished when the arrays are next read."""
        if count:
            launch(self.body, count, arguments)


def threads_over(over: str, each: int = 1) -> Callable[[Callable], ThreadLoop]:
    """Return a decorator that makes a body a loop.

    It has a thread for every element, or for every `each` elements, of the argument `over`.
    """
    return lambda body: ThreadLoop(body, over, each)


@scalar
def element_or_only(operand, i):
    """Return the element of an operand, or its only one."""
    return operand[i if len(operand) > 1 else 0]


@scalar
def row_and_column(t, shape):
    """Return the row and the column of the element of thread t in a matrix of this shape.

    The threads of a warp are neighbours in a row, and the warps of a block are below one another. If one warp has read
    a part of the right operand, the others find it in the cache.
    """
    rows, columns = shape[0], shape[1]
    area = WARP * rows
    band = t // area
    inside, width = t - band * area, min(WARP, columns - band * WARP)
    return inside // width, band * WARP + inside % width


@scalar
def cast_for_out(value, out):
    """Return a result in the type of `out`, with one NaN: a GPU changes the bits of a NaN when it converts the type."""
    kind = out.dtype.type
    number = kind(value)
    return number if number == number else kind(np.nan)


def launch(body: Any, count: int, arguments: tuple[Any, ...]) -> None:
    """Start `count` threads of a loop body on the current GPU, in the current stream.

    Raises ValueError for an array on another GPU, because its address is invalid on this one.
    """
    import cupy

    kinds, structure = pack_arguments(count, arguments)
    kernel = _load_kernel(body, kinds, cupy.cuda.Device().id)
    kernel((-(-count // BLOCK),), (BLOCK,), (structure,))


@cache
def _load_kernel(body: Any, kinds: tuple[ArgumentKind, ...], device: int) -> Any:
    """Return the kernel of a body for arguments of these kinds, on the current GPU, which has the number `device`."""
    import cupy

    from simfloat.kernels.gpu.compiling import load_or_compile

    for *_, gpu in kinds:
        if gpu not in (None, device):
            raise ValueError(
                f"GPU {device} is the current one, an array lies on GPU {gpu}: copy it, or compute inside `with "
                f"cupy.cuda.Device({gpu}):`."
            )
    result = load_or_compile(body, argument_types(kinds))
    # A module of the driver, loaded from PTX without CuPy's compiler. Loaded kernels are stored by the kinds of their
    # arguments, so a later launch types and compiles nothing.
    module = cupy.cuda.Module()
    module.load(result.ptx + b"\0")
    return module.get_function(result.entry)


_LOCK = Lock()

#: Entries of a stack: sums of 2^39 products have fewer waiting sums.
DEPTH = 40


def add_at(counters, place, number):
    """Add a number to a counter of a vector, atomically."""
    with _LOCK:
        counters[place] += number


def join_at(counters, place, bits):
    """Set bits of a counter, atomically."""
    with _LOCK:
        counters[place] |= bits


def lower_at(counters, place, number):
    """Set a counter to a number if the number is smaller, atomically."""
    with _LOCK:
        counters[place] = min(counters[place], number)


def raise_at(counters, place, number):
    """Set a counter to a number if the number is larger, atomically."""
    with _LOCK:
        counters[place] = max(counters[place], number)


@overload(add_at)
def _add_at(counters, place, number):
    return lambda counters, place, number: cuda.atomic.add(counters, place, number)


@overload(join_at)
def _join_at(counters, place, bits):
    return lambda counters, place, bits: cuda.atomic.or_(counters, place, bits)


@overload(lower_at)
def _lower_at(counters, place, number):
    return lambda counters, place, number: cuda.atomic.min(counters, place, number)


@overload(raise_at)
def _raise_at(counters, place, number):
    return lambda counters, place, number: cuda.atomic.max(counters, place, number)


def registers(count: int) -> Any:
    """Return a function that allocates uninitialised memory of a thread for `count` numbers, in the type of its
    argument.

    If every index is a compile-time constant, as in loops over constants, the memory is registers. It is not an
    overload: the memory of a function ends with the function, while an intrinsic is compiled into its caller.
    """
    if config.DISABLE_JIT:
        return lambda number: np.empty(count, number.dtype)

    @intrinsic
    def local(typing_context, number):
        def generate(context, builder, signature, arguments):
            return cgutils.alloca_once(builder, context.get_data_type(number), size=count)

        return types.CPointer(number)(number), generate

    return local


def _rest_of(array, first):
    """Return the numbers of an array in C order, beginning at index `first`."""
    return array.reshape(-1)[first:]


@intrinsic
def _pointer_into(typing_context, array, first):
    def generate(context, builder, signature, arguments):
        # A bare pointer: for arrays, Numba tests each index for negative values, in every step of a sum.
        whole = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.gep(whole.data, [arguments[1]], inbounds=True)

    return types.CPointer(array.dtype)(array, types.int64), generate


#: The numbers of an array in C order, beginning at an index. Indices into them are not tested; an index into an array
#: is tested for negative values each time.
numbers_from = _rest_of if config.DISABLE_JIT else _pointer_into


def _four_plain(run, first):
    return run[first], run[first + 1], run[first + 2], run[first + 3]


@intrinsic
def _four_at_once(typing_context, run, first):
    def generate(context, builder, signature, arguments):
        number = context.get_data_type(run.dtype)
        together = 16 // context.get_abi_sizeof(number)
        start = builder.gep(arguments[0], [arguments[1]], inbounds=True)
        words = builder.bitcast(start, ir.VectorType(number, together).as_pointer())
        each = [builder.load(cgutils.gep(builder, words, n), align=16) for n in range(4 // together)]
        numbers = [builder.extract_element(word, cgutils.int32_t(n)) for word in each for n in range(together)]
        return context.make_tuple(builder, signature.return_type, numbers)

    return types.UniTuple(run.dtype, 4)(run, types.int64), generate


#: Reads four numbers at once; they must be at a multiple of 16 bytes.
load_four = _four_plain if config.DISABLE_JIT else _four_at_once


@scalar
def first_factors(a, b, row, column):
    """Return the first factors of a row of `a` and a column of `b`; zeros if there are none."""
    return (row[0], column[0]) if a.size > 0 else (a.dtype.type(0), b.dtype.type(0))


@scalar
def next_factors(row, column, k, depth, width):
    """Return the factors after number k, or the last ones.

    They are read a step before they are used, and arrive while that step is computed.
    """
    place = min(k + 1, depth - 1)
    return row[place], column[place * width]


thread_stack = registers(DEPTH)
