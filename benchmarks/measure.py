"""Timing functions, and rows of results."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import simfloat as sf
from simfloat.arithmetic.programs import READINESS

# Rates are those of programs of some length; a short one carries updates out one by one until the loop is compiled.
READINESS.compile_at_once()


class Row(NamedTuple):
    """One measured thing: its rate or time, and how it compares."""

    name: str
    measured: str
    compared: str = ""
    target: str = ""


class Work(NamedTuple):
    """What to time, its share of the whole work, and how its result becomes an array (None: it is other arithmetic)."""

    run: Callable[[], Any]
    share: float = 1.0
    array: Callable[[Any], np.ndarray] | None = np.asarray


def seconds(
    function: Callable[[], object],
    least_total: float = 0.4,
    least_runs: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The shortest of several runs by `clock`, after one that is not counted (it compiles)."""
    function()
    gc.collect()
    times: list[float] = []
    while len(times) < least_runs or sum(times) < least_total:
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def interleaved(*functions: Callable[[], object], least_total: float = 0.4, least_runs: int = 3) -> list[float]:
    """The shortest processor time of each, in turns, so that what slows a while slows all; the first runs compile."""
    for function in functions:
        function()
    gc.collect()
    times: list[list[float]] = [[] for _ in functions]
    while len(times[0]) < least_runs or sum(map(sum, times)) < least_total:
        for function, taken in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            taken.append(time.process_time() - start)
    return list(map(min, times))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """A ``with`` block in which simfloat uses `count` threads."""
    before = sf.get_threads()
    sf.set_threads(count)
    try:
        yield
    finally:
        sf.set_threads(before)


def giga(count: float, time: float) -> str:
    """A rate in 10^9 a second."""
    return f"{count / time / 1e9:.3g} G/s"


def optional(name: str) -> object | None:
    """A module if it is installed, else None: peers are optional."""
    try:
        return __import__(name)
    except ImportError:
        return None
