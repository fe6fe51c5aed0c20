"""What threads share: counters that several of them add to. The plain bodies are for simulators, whose threads are
Python's.
"""

from __future__ import annotations

from threading import Lock

from numba import cuda
from numba.extending import overload

_LOCK = Lock()


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
