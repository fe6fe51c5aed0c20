"""Memory of threads: counters that several of them add to, and stacks of their own.

The plain bodies are for simulators, whose threads are Python's.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, overload

from simfloat.cuda.numba_cuda import cuda

_LOCK = Lock()

#: Numbers of a stack: sums of 2^39 products have fewer that wait.
DEPTH = 40


def add_at(counters, place, number):
    """Add a number to a counter of a vector, whoever else does."""
    with _LOCK:
        counters[place] += number


def join_at(counters, place, bits):
    """Set bits of a counter."""
    with _LOCK:
        counters[place] |= bits


def lower_at(counters, place, number):
    """Make a counter a number, if that is less."""
    with _LOCK:
        counters[place] = min(counters[place], number)


def raise_at(counters, place, number):
    """Make a counter a number, if that is more."""
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
    """What gives a thread uninitialised memory of its own for so many numbers of the type of the one it is given.

    Where every index is known when the code is made, as in loops over constants, these are registers. No overload:
    memory of a function's own ends with it, and what is compiled in its place is part of the function that calls it.
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
    """The numbers of an array in C order from one on."""
    return array.reshape(-1)[first:]


@intrinsic
def _pointer_into(typing_context, array, first):
    def generate(context, builder, signature, arguments):
        whole = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.gep(whole.data, [arguments[1]], inbounds=True)

    return types.CPointer(array.dtype)(array, types.int64), generate


#: The numbers of an array in C order from one on. An index into them is used as it is; one into an array is looked at
#: each time, lest it be negative.
run_of = _rest_of if config.DISABLE_JIT else _pointer_into

stack_of = registers(DEPTH)
