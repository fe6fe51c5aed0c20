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
    """One measurement: its rate or time, the comparison and the target."""

    name: str
    measured: str
    compared: str = ""
    target: str = ""


class Work(NamedTuple):
    """A function to time, its share of the whole work, and the conversion of its result (None: other arithmetic)."""

    run: Callable[[], Any]
    share: float = 1.0
    array: Callable[[Any], np.ndarray] | None = np.asarray


def seconds(
    function: Callable[[], object],
    least_total: float = 0.4,
    least_runs: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the shortest of several runs by `clock`, after a first run that compiles and is not counted."""
    function()
    gc.collect()
    times: list[float] = []
    while len(times) < least_runs or sum(times) < least_total:
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def interleaved(*functions: Callable[[], object], least_total: float = 0.4, least_runs: int = 3) -> list[float]:
    """Return the shortest processor time of each; they take turns, so that other programs slow down all alike."""
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
    """Let simfloat use `count` threads within a ``with`` block."""
    before = sf.get_threads()
    sf.set_threads(count)
    try:
        yield
    finally:
        sf.set_threads(before)


def giga(count: float, time: float) -> str:
    """Return a rate in 10^9 per second as text."""
    return f"{count / time / 1e9:.3g} G/s"


def optional(name: str) -> object | None:
    """Return a module, or None if it is not installed: peers are optional."""
    try:
        return __import__(name)
    except ImportError:
        return None
