"""What arrays hold: see `kernels/counting.py`. To read counts and facts is to wait for the GPU."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.thread_loops import element_or_only, threads_over
from simfloat.cuda.thread_memory import add_at, join_at, lower_at, raise_at
from simfloat.kernels.counting import NO_FIRST, NO_LAST, combine_facts, exponent_and_fraction
from simfloat.kernels.events import EXPONENTS, FIRST_CAUSE, INFINITE, NAN, OVERFLOW, SUBNORMAL, TOTAL, UNDERFLOW, ZERO
from simfloat.kernels.grid import unpack_grid
from simfloat.kernels.unrounded import split

#: The counter of results whose rounding without a largest number is to be looked at, behind those of the events.
UNDECIDED = FIRST_CAUSE


@threads_over("out")
def _count(i, exact, out, grid_numbers, counters):
    grid, before, after = unpack_grid(grid_numbers), np.float64(exact[i]), np.float64(out[i])
    finite, infinite = abs(before) < np.inf, abs(after) == np.inf
    if finite and (abs(before) > grid.max or before < grid.lowest) and not infinite:
        add_at(counters, UNDECIDED, 1)
    if after != after:
        add_at(counters, NAN, 1)
    elif infinite:
        add_at(counters, INFINITE, 1)
        add_at(counters, OVERFLOW, np.int64(finite))
    elif after == 0.0:
        add_at(counters, ZERO, 1)
        add_at(counters, UNDERFLOW, np.int64(before != 0.0 and grid.uniform == 0.0))
    else:
        add_at(counters, EXPONENTS + split(after)[1], 1)
        add_at(counters, SUBNORMAL, np.int64(abs(after) < grid.min_normal and grid.uniform == 0.0))


def count_results(out, grid_numbers, events):
    """Nothing yet: one launch counts all, beside the exact results."""
    return 1


def count_ends(exact, out, grid_numbers, events, shown):
    """Add to the NumPy vector `events` what the rounding of the exact results to `out` did; returns the undecided."""
    counters = np.zeros(UNDECIDED + 1, np.int64, like=out)
    _count(exact, out, grid_numbers, counters)
    counts = counters.get()
    events[:UNDECIDED] += counts[:UNDECIDED]
    events[TOTAL] += out.size
    return counts[UNDECIDED]


@threads_over("out")
def _count_lost(i, a, b, out, sign, either, counters):
    x, y, after = np.float64(element_or_only(a, i)), sign * np.float64(element_or_only(b, i)), np.float64(out[i])
    lost = (y != 0.0 and after == x) or (either != 0 and x != 0.0 and after == y)
    if lost and abs(after) < np.inf:
        add_at(counters, 0, 1)


def count_unchanged(a, b, out, sign, either):
    """How many finite sums of a and sign * b lost an addend that is not zero: b, or with `either` one of them."""
    counters = np.zeros(1, np.int64, like=out)
    _count_lost(a, b, out, sign, either, counters)
    return counters.get()[0]


#: Elements that a thread looks at at least, one after the other, and the most threads: they wait for one another where
#: they tell what they found.
EACH, MOST = 64, 1 << 15

FRACTIONS, FIRST, LAST, SPECIAL = range(4)


@threads_over("x")
def _gather_facts(j, x, threads, facts):
    fractions, first, last, special = np.int64(0), np.int64(NO_FIRST), np.int64(NO_LAST), np.int64(0)
    for i in range(j, x.size, threads):
        field, fraction = exponent_and_fraction(x[i])
        special |= np.int64(field == 2047)
        if field < 2047 and x[i] != 0.0:
            fractions |= np.int64(fraction)
            first, last = min(first, field), max(last, field)
    join_at(facts, FRACTIONS, fractions)
    join_at(facts, SPECIAL, special)
    lower_at(facts, FIRST, first)
    raise_at(facts, LAST, last)


def bit_facts(x):
    """(precision, low, least, high, finite) of a vector."""
    facts = np.array([0, NO_FIRST, NO_LAST, 0], np.int64, like=x)
    # Atomics of many threads wait for one another: facts of 4096^2 numbers took 1.1 ms before the number of threads was
    # limited, and take 0.27 ms with 2^15 of them.
    threads = min(-(-x.size // EACH), MOST)
    _gather_facts.start(threads, x, threads, facts)
    counts = facts.get()
    return combine_facts(np.uint64(counts[FRACTIONS]), counts[FIRST], counts[LAST], counts[SPECIAL] == 0)
