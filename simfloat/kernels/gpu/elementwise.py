"""Loops over elements on a GPU: event counts, facts of arrays, random words, results of operations, and rounding.

* Event counts and facts: see `kernels/rounding/arrays.py`. Reading them waits for the GPU.
* Random words are computed where they are used: a thread computes the four words of its elements, and nothing is stored
  in memory. A loop receives words in one of three forms: a WordPlace, from which threads compute their words; the
  user's draws, on the GPU; and a single word, which is not read, for deterministic roundings.
* Results of operations: see `kernels/elementwise/loops.py`. An operand is a vector, or one number passed by value.
* Rounding: see `kernels/rounding/arrays.py`. Loops that may be stochastic have a thread for every four elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from simfloat.kernels.compile.intrinsics import is_extreme, shift_left
from simfloat.kernels.compile.jit import overload, reader, scalar
from simfloat.kernels.elementwise.double import round_pair_to_double_in_mode
from simfloat.kernels.elementwise.exact import round_pair_to_double, round_pair_to_odd, split
from simfloat.kernels.elementwise.float32 import CONVERTED, SINGLE
from simfloat.kernels.elementwise.half import round_to_half
from simfloat.kernels.elementwise.loops import IN_EVERY_MODE, NATIVE, OPERATIONS
from simfloat.kernels.gpu.threads import (
    add_at,
    cast_for_out,
    element_or_only,
    join_at,
    lower_at,
    raise_at,
    threads_over,
)
from simfloat.kernels.rounding.arrays import (
    NO_FIRST,
    NO_LAST,
    combine_facts,
    exponent_and_fraction,
    move_events,  # noqa: F401 (the loop of the CPU: events are in NumPy vectors)
    round_image_in_any_mode,
    unpack_image_cut,
)
from simfloat.kernels.rounding.events import (
    EXPONENTS,
    FIRST_CAUSE,
    INFINITE,
    NAN,
    OVERFLOW,
    PRECISE,
    SUBNORMAL,
    TOTAL,
    UNCHANGED,
    UNDERFLOW,
    WIDE,
    ZERO,
)
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import (
    nearest,
    one_nan,
    round_by_threshold,
    round_in_direction,
    round_pair,
    round_to_any_grid,
    to_odd,
)
from simfloat.kernels.rounding.random import as_word, draw_shift, word_index, words_at, words_of_sum

#: The counter of results that still have to be rounded without a largest number; it follows the event counters.
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


def count_results(out, grid_numbers, events, lost, is_wide, is_precise):
    """Add the events that are known, and return 1: one launch counts the others later, with the exact results."""
    events[UNCHANGED] += lost
    events[WIDE] += out.size * is_wide
    events[PRECISE] += out.size * is_precise
    return 1


def count_ends(exact, out, grid_numbers, events, shown):
    """Add to the NumPy vector `events` the events of the rounding of `exact` to `out`; return the undecided results."""
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
    """Count the finite sums of a and sign * b that lost a nonzero addend: b, or with `either` any of the two."""
    counters = np.zeros(1, np.int64, like=out)
    _count_lost(a, b, out, sign, either, counters)
    return counters.get()[0]


#: Minimum number of elements that a thread examines, one after another, and maximum number of threads: they wait for
#: one another when they write their findings.
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
    """Return (precision, low, least, high, finite) of a vector."""
    facts = np.array([0, NO_FIRST, NO_LAST, 0], np.int64, like=x)
    # Atomic operations of many threads wait for one another: this function took 1.1 ms for 4096^2 numbers before the
    # number of threads was limited, and takes 0.27 ms with 2^15 threads.
    threads = min(-(-x.size // EACH), MOST)
    _gather_facts.start(threads, x, threads, facts)
    counts = facts.get()
    return combine_facts(np.uint64(counts[FRACTIONS]), counts[FIRST], counts[LAST], counts[SPECIAL] == 0)


U64 = np.uint64

#: The elements that share a group of four words, or one word if draws are bytes.
FOUR = 4


class WordPlace(NamedTuple):
    """The position of the words of a call; all uint64."""

    call: int
    stage: int
    seed: int
    short: int  # 1 if draws are bytes


unpack_place = reader(WordPlace)


@scalar
def drawn_words(place_numbers, j):
    """Return the words of the elements 4 j to 4 j + 3."""
    place, group = unpack_place(place_numbers), U64(j)
    if place.short == U64(0):
        return words_at(group, U64(0), place.call, place.stage, place.seed)
    word = np.uint32(words_at(group >> U64(2), U64(0), place.call, place.stage, place.seed)[j & 3])
    return (
        U64(shift_left(word, draw_shift(0, True))),
        U64(shift_left(word, draw_shift(1, True))),
        U64(shift_left(word, draw_shift(2, True))),
        U64(shift_left(word, draw_shift(3, True))),
    )


@scalar
def repeated_word(words, j):
    """Return one word for four elements, for deterministic roundings."""
    word = U64(words[0])
    return word, word, word, word


@scalar
def user_words(words, j):
    """Return the user's draws of the elements 4 j to 4 j + 3; the last draw is repeated past the last element."""
    first, last = 4 * j, words.size - 1
    return (
        U64(as_word(words[first])),
        U64(as_word(words[min(first + 1, last)])),
        U64(as_word(words[min(first + 2, last)])),
        U64(as_word(words[min(first + 3, last)])),
    )


def four_words(words, j):
    """Return the words of the elements 4 j to 4 j + 3, for any form of words."""
    if isinstance(words, tuple):
        return (drawn_words if len(words) > 1 else repeated_word)(words, j)
    return user_words(words, j)


@overload(four_words)
def _four_words(words, j):
    if isinstance(words, types.UniTuple):
        chosen = drawn_words if words.count > 1 else repeated_word
    else:
        chosen = user_words
    return lambda words, j: chosen(words, j)


#: The words of the steps of a sum, four at a time, kept by the thread that uses them; initially none.
NO_WORDS = (U64(0), U64(0), U64(0), U64(0))


@scalar
def next_four_words(words, counter, element, k, stage, seed, short):
    """Return the words of the steps k to k + 3, where k is a multiple of four; `words` are the previous four.

    If draws are bytes, the first word serves all four steps, and the others serve the next steps.
    """
    if short and k % 16 > 0:
        return words[1], words[2], words[3], words[0]
    return words_of_sum(counter, element, word_index(counter.step + k, short), stage, seed)


@scalar
def step_word(words, k, short):
    """Return the word of step k, with its draw on top."""
    return shift_left(np.uint32(words[0] if short else words[k % 4]), draw_shift(k, short))


def exact_loop(quick, wide):
    """Return the loop that rounds each exact result to odd."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out):
        x, y, z = (
            np.float64(element_or_only(a, i)),
            np.float64(element_or_only(b, i)),
            np.float64(element_or_only(c, i)),
        )
        value = quick(x, y, z, sign)
        if is_extreme(x) or is_extreme(y) or is_extreme(z) or value != value:
            high, low, exponent = wide(x, y, z, sign)
            value = round_pair_to_odd(high, low, exponent)
        out[i] = value

    return loop


def paired_loop(wide):
    """Return the loop that rounds each exact result once, from more bits than float64 has."""

    @threads_over("out", each=FOUR)
    def loop(j, a, b, c, sign, words, out, grid_numbers):
        grid, four = unpack_grid(grid_numbers), four_words(words, j)
        for k in range(FOUR):
            i = FOUR * j + k
            if i < out.size:
                high, low, exponent = wide(
                    np.float64(element_or_only(a, i)),
                    np.float64(element_or_only(b, i)),
                    np.float64(element_or_only(c, i)),
                    sign,
                )
                out[i] = cast_for_out(round_pair(high, low, exponent, np.uint32(four[k]), grid), out)

    return loop


def double_loop(wide):
    """Return the loop that rounds each exact result to nearest even in float64."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out):
        high, low, exponent = wide(
            np.float64(element_or_only(a, i)),
            np.float64(element_or_only(b, i)),
            np.float64(element_or_only(c, i)),
            sign,
        )
        out[i] = round_pair_to_double(high, low, exponent)

    return loop


def double_loop_in_mode(wide):
    """Return the loop that computes each exact result and rounds it to FP64 in the deterministic mode of the grid."""

    @threads_over("out")
    def loop(i, a, b, c, sign, words, out, grid_numbers):
        high, low, exponent = wide(
            np.float64(element_or_only(a, i)),
            np.float64(element_or_only(b, i)),
            np.float64(element_or_only(c, i)),
            sign,
        )
        out[i] = one_nan(round_pair_to_double_in_mode(high, low, exponent, unpack_grid(grid_numbers)))

    return loop


def native_loop(function):
    """Return the loop of an operation that the hardware rounds to nearest even, in the type of `out`."""

    @threads_over("out")
    def loop(i, a, b, c, out):
        x, y, z = (
            out.dtype.type(element_or_only(a, i)),
            out.dtype.type(element_or_only(b, i)),
            out.dtype.type(element_or_only(c, i)),
        )
        out[i] = cast_for_out(function(x, y, z, 1.0), out)

    return loop


def single_loop(function):
    """Return the loop that rounds the exact result to odd in float32, and again by the kind of rounding."""

    @threads_over("out")
    def loop(i, a, b, c, sign, out, grid_numbers, kind):
        grid, single = unpack_grid(grid_numbers), np.float32
        exact = function(
            single(element_or_only(a, i)), single(element_or_only(b, i)), single(element_or_only(c, i)), single(sign)
        )
        if kind == 0:
            out[i] = round_image_in_any_mode(exact, unpack_image_cut(grid))
        elif kind == 1:
            out[i] = cast_for_out(nearest(type(grid.max)(exact), grid), out)
        elif kind == 2:
            out[i] = cast_for_out(round_in_direction(type(grid.max)(exact), grid), out)
        else:
            out[i] = cast_for_out(to_odd(type(grid.max)(exact), grid), out)

    return loop


def converted_loop(function):
    """Return the loop of a function on vectors, or on numbers passed by value."""

    @threads_over("out")
    def loop(i, a, b, c, out):
        out[i] = cast_for_out(
            function(
                np.float32(element_or_only(a, i)),
                np.float32(element_or_only(b, i)),
                np.float32(element_or_only(c, i)),
                1.0,
            ),
            out,
        )

    return loop


exact_results = {name: exact_loop(quick, wide) for name, (quick, wide) in OPERATIONS.items()}
paired_results = {name: paired_loop(wide) for name, (_, wide) in OPERATIONS.items()}
double_results = {name: double_loop(wide) for name, (_, wide) in OPERATIONS.items() if name not in NATIVE}
doubles_in_mode = {name: double_loop_in_mode(OPERATIONS[name][1]) for name in IN_EVERY_MODE}
native_results = {name: native_loop(function) for name, function in NATIVE.items()}
converted_results = {name: converted_loop(function) for name, function in CONVERTED.items()}
single_results = {name: single_loop(function) for name, function in SINGLE.items()}


@threads_over("out")
def copy(i, x, words, out, grid_numbers):
    """Copy every element, with one NaN."""
    out[i] = cast_for_out(x[i], out)


def rounding(round_one):
    """Return the loop of a deterministic mode for plain grids, in the type of the grid's numbers."""

    @threads_over("out")
    def loop(i, x, words, out, grid_numbers):
        grid = unpack_grid(grid_numbers)
        out[i] = cast_for_out(round_one(type(grid.max)(x[i]), grid), out)

    return loop


round_nearest, round_directed, round_to_odd = rounding(nearest), rounding(round_in_direction), rounding(to_odd)


@threads_over("out")
def round_half(i, x, words, out, grid_numbers):
    """Round to nearest even to FP16 by one instruction."""
    out[i] = cast_for_out(round_to_half(x[i]), out)


@threads_over("out")
def round_image(i, x, words, out, grid_numbers):
    """Round float32 to formats that are float32 with a shorter fraction."""
    out[i] = round_image_in_any_mode(x[i], unpack_image_cut(unpack_grid(grid_numbers)))


def rounding_four(round_one):
    """Return the loop of a rounding that takes a word."""

    @threads_over("out", each=FOUR)
    def loop(j, x, words, out, grid_numbers):
        grid, four = unpack_grid(grid_numbers), four_words(words, j)
        for k in range(FOUR):
            i = FOUR * j + k
            if i < out.size:
                out[i] = cast_for_out(round_one(np.float64(x[i]), np.uint32(four[k]), grid), out)

    return loop


round_stochastic, round_general = rounding_four(round_by_threshold), rounding_four(round_to_any_grid)
