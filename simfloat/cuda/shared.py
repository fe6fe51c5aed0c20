"""Memory of threads: counters that several of them add to, and stacks of their own.

The plain bodies are for simulators, whose threads are Python's.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
from numba import cuda, types
from numba.core import cgutils, config
from numba.extending import intrinsic, overload

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


def _empty_stack(number):
    """An uninitialised stack of numbers of this type."""
    return np.empty(DEPTH, number.dtype)


@intrinsic
def _local_stack(typing_context, number):
    def generate(context, builder, signature, arguments):
        return cgutils.alloca_once(builder, context.get_data_type(number), size=DEPTH)

    return types.CPointer(number)(number), generate


#: An uninitialised stack of numbers of this type, the thread's own. No overload, since memory of a function's own ends
#: with it: what is compiled in its place is part of the function that calls it.
stack_of = _empty_stack if config.DISABLE_JIT else _local_stack
