"""A program of rounded operations on float32 vectors, run in one call.

A program is a table of instructions (`program_table.py`), which are run block by block. Registers contain a block of
float32 numbers. The result of an instruction goes to a register other than its operands, so that its short loop is
vectorised. One compiled loop serves all programs.

The caller decides which instruction is valid, from known properties of the operands (`arithmetic/programs.py`). Scalars
are float64 numbers that are not extreme (see `intrinsics.is_extreme`). Then float64 represents products of two
registers exactly. It rounds quotients and roots to nearest; these are numbers of 25 bits, or midpoints between two
numbers of 24 bits, only if they are exact: a numerator that differs from a multiple of the divisor differs by a part of
at least 2^-50. The same applies to sums of numbers of one grid, because an addend that float64 loses is less than a
quarter of a spacing of the other. A later rounding to nearest even is therefore the rounding of the exact result. Most
results do not need float64 (`program_lanes.py`).

The events of a counted instruction are counted while its results are in the cache (`program_lanes.py`), with the same
counts as in `kernels/rounding/arrays.py`. If a result is too large for the format, or NaN, the program stops, and the
caller runs the operations one by one.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.compile.intrinsics import exponent_field, fma, root
from simfloat.kernels.compile.jit import kernel, scalar
from simfloat.kernels.elementwise.exact import add_odd, divide_odd, multiply_odd, sqrt_odd
from simfloat.kernels.program_lanes import (
    compute_few_bits,
    compute_single,
    count_ends,
    exact_zeros,
    image,
    lost_addends,
    lost_scalar_addends,
    union_of_images,
)
from simfloat.kernels.program_table import (
    DIRECTED,
    DOUBLE,
    FEW_BITS,
    FILL,
    IN_FLOAT32,
    LOAD,
    NEAREST,
    NEGATE,
    NOT,
    PRODUCT,
    PRODUCT_WITH_SCALAR,
    QUOTIENT,
    QUOTIENT_BY_SCALAR,
    ROOT,
    SIGN,
    SINGLE,
    STICKY,
    STOCHASTIC,
    STORE,
    SUM,
    SUM_WITH_SCALAR,
)
from simfloat.kernels.rounding.arrays import add_counts, count_fields, count_small, unpack_image_cut
from simfloat.kernels.rounding.events import (
    END_OF_FLOAT32,
    FIRST_OF_FLOAT32,
    UNCHANGED,
    UNDERFLOW,
    ZERO,
)
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import (
    in_range_quickly,
    nearest,
    one_nan,
    power_below,
    round_by_threshold,
    round_in_direction,
    round_to_any_grid,
    to_odd,
)
from simfloat.kernels.rounding.random import U64, draws_are_bytes, words_at

#: Elements per block: the registers stay in the first-level cache.
BLOCK = 1024

F32, F64, U32 = np.float32, np.float64, np.uint32


@scalar
def _single(x, grid):
    """Round to nearest even to FP32."""
    return F32(x)


@scalar
def _nearest_product(x, y, grid):
    """Return x * y rounded once to nearest even, by an addition with an anchor."""
    # A float64 product would be rounded before the grid rounds it. An anchor and a fused multiply-add round it once, to
    # nearest even, without the error term that `multiply_odd` needs.
    near = x * y
    anchor = power_below(abs(near), grid) * (1.5 * grid.magic)
    return in_range_quickly(near, abs(fma(x, y, anchor) - anchor), grid)


def _loop_of_two(function):
    """Return the loop of a function of two registers in float64, and a grid or a sign."""

    @scalar
    def loop(registers, u, v, grid, out, count):
        for i in range(count):
            out[i] = function(F64(registers[u, i]), F64(registers[v, i]), grid)

    return loop


def _loop_with_scalar(function):
    @scalar
    def loop(registers, u, y, grid, out, count):
        for i in range(count):
            out[i] = function(F64(registers[u, i]), y, grid)

    return loop


def _loop_of_one(function):
    @scalar
    def loop(registers, u, grid, out, count):
        for i in range(count):
            out[i] = function(F64(registers[u, i]), grid)

    return loop


def _rounding_loop(function):
    @scalar
    def loop(exact, words, grid, registers, to, count):
        for i in range(count):
            registers[to, i] = F32(function(exact[i], words[i], grid))

    return loop


def _rounding_loop_without_words(function):
    return _rounding_loop(scalar(lambda x, word, grid: function(x, grid)))


_sum = _loop_of_two(scalar(lambda x, y, sign: add_odd(x, y, sign)))
_sum_with_scalar = _loop_with_scalar(scalar(lambda x, y, sign: add_odd(x, y, sign)))
_product = _loop_of_two(scalar(lambda x, y, grid: x * y))
_product_with_scalar = _loop_with_scalar(scalar(lambda x, y, grid: multiply_odd(x, y)))
_quotient = _loop_of_two(scalar(lambda x, y, grid: divide_odd(x, y)))
_quotient_by_scalar = _loop_with_scalar(scalar(lambda x, y, grid: divide_odd(x, y)))
_root = _loop_of_one(scalar(lambda x, grid: sqrt_odd(x)))

_nearest_sums = _loop_of_two(scalar(lambda x, y, grid: F32(nearest(x + y, grid))))
_nearest_products = _loop_of_two(scalar(lambda x, y, grid: F32(nearest(x * y, grid))))
_nearest_products_with_scalar = _loop_with_scalar(scalar(lambda x, y, grid: F32(_nearest_product(x, y, grid))))
_nearest_quotients = _loop_of_two(scalar(lambda x, y, grid: F32(nearest(x / y, grid))))
_nearest_roots = _loop_of_one(scalar(lambda x, grid: F32(nearest(root(x), grid))))

_round_single, _round_nearest = _rounding_loop_without_words(_single), _rounding_loop_without_words(nearest)
_round_directed, _round_to_odd = _rounding_loop_without_words(round_in_direction), _rounding_loop_without_words(to_odd)
_round_stochastic, _round_general = _rounding_loop(round_by_threshold), _rounding_loop(round_to_any_grid)


@scalar
def _load(x, registers, to):
    """Copy the elements of a block to a register; return the bitwise or of their bit patterns."""
    used = U32(0)
    for i in range(x.size):
        registers[to, i] = x[i]
        used = U32(used | image(x[i]))
    return used


@scalar
def _store(registers, u, out):
    for i in range(out.size):
        out[i] = F32(one_nan(registers[u, i]))


@scalar
def sign_of(x):
    """Return -1, 0 or 1; NaN for NaN."""
    return F32(math.copysign(F32(1.0), x) if abs(x) > F32(0.0) else x + F32(0.0))


@scalar
def larger_of(x, y):
    """Return the maximum; NaN if one of them is NaN."""
    return x if (x >= y) | (x != x) else y


@scalar
def _negate(registers, u, to, count):
    for i in range(count):
        registers[to, i] = -registers[u, i]


@scalar
def _sign(registers, u, to, count):
    for i in range(count):
        registers[to, i] = sign_of(registers[u, i])


@scalar
def _largest(registers, u, v, to, count):
    for i in range(count):
        registers[to, i] = larger_of(registers[u, i], registers[v, i])


@scalar
def _repeat(y, out, count):
    for i in range(count):
        out[i] = y


@scalar
def _fill_words(words, packed, first, draw, short):
    """Write the random words of a call for the elements that begin at `first`, a multiple of 16."""
    share = 4 if short else 1
    target, seed, call = packed if short else words, draw[0], draw[1]
    group, count = U64(first // (4 * share)), -(-words.size // (4 * share))
    for i in range(count):
        w0, w1, w2, w3 = words_at(group + U64(i), U64(0), call, U64(0), seed)
        target[4 * i], target[4 * i + 1], target[4 * i + 2], target[4 * i + 3] = w0, w1, w2, w3
    if short:
        for i in range(words.size):
            words[i] = np.uint32(packed[i >> 2] >> np.uint32(8 * (i & 3))) << np.uint32(24)


@scalar
def _round(how, exact, words, grid, registers, to, count):
    """Round a block of exact results; `how` is an index in HOW."""
    if how == SINGLE:
        _round_single(exact, words, grid, registers, to, count)
    elif how == NEAREST:
        _round_nearest(exact, words, grid, registers, to, count)
    elif how == DIRECTED:
        _round_directed(exact, words, grid, registers, to, count)
    elif how == STICKY:
        _round_to_odd(exact, words, grid, registers, to, count)
    elif how == STOCHASTIC:
        _round_stochastic(exact, words, grid, registers, to, count)
    else:
        _round_general(exact, words, grid, registers, to, count)


@scalar
def _move(what, registers, u, v, to, count):
    """Write the numbers of one or two registers to another, unrounded."""
    if what == NEGATE:
        _negate(registers, u, to, count)
    elif what == SIGN:
        _sign(registers, u, to, count)
    else:
        _largest(registers, u, v, to, count)


@scalar
def _make_exact(what, registers, u, v, y, grid, sign, exact, count):
    """Compute the exact results of registers u and v, or of u and the scalar y, rounded to odd in float64."""
    if what == FILL:
        _repeat(y, exact, count)
    elif what == SUM:
        _sum(registers, u, v, sign, exact, count)
    elif what == SUM_WITH_SCALAR:
        _sum_with_scalar(registers, u, y, sign, exact, count)
    elif what == PRODUCT:
        _product(registers, u, v, grid, exact, count)
    elif what == PRODUCT_WITH_SCALAR:
        _product_with_scalar(registers, u, y, grid, exact, count)
    elif what == QUOTIENT:
        _quotient(registers, u, v, grid, exact, count)
    elif what == QUOTIENT_BY_SCALAR:
        _quotient_by_scalar(registers, u, y, grid, exact, count)
    else:
        _root(registers, u, grid, exact, count)


@scalar
def _to_nearest(what, registers, u, v, y, grid, to, count):
    """Round results to nearest even to a plain grid; operands of sums must be numbers of the grid's format."""
    if what == SUM:
        _nearest_sums(registers, u, v, grid, registers[to], count)
    elif what == PRODUCT:
        _nearest_products(registers, u, v, grid, registers[to], count)
    elif what == PRODUCT_WITH_SCALAR:
        _nearest_products_with_scalar(registers, u, y, grid, registers[to], count)
    elif what == QUOTIENT:
        _nearest_quotients(registers, u, v, grid, registers[to], count)
    else:
        _nearest_roots(registers, u, grid, registers[to], count)


@scalar
def has_scalar(what):
    """Return True if an operand of the instruction is a scalar."""
    return (what == FILL) | (what == SUM_WITH_SCALAR) | (what == PRODUCT_WITH_SCALAR) | (what == QUOTIENT_BY_SCALAR)


@kernel
def run_program(table, register_count, scalars, grids, signs, draws, first, inputs, outputs, events):
    """Run a program on vectors that begin at element `first`; all are as long as the first input.

    `draws` contains, in the row of a stochastic instruction, the seed and the call. Outputs may be inputs. Events are
    added to the rows of `events`. Returns True if all events were counted; otherwise everything that was written is
    invalid.
    """
    registers, exact = np.empty((register_count, BLOCK), np.float32), np.empty(BLOCK, np.float64)
    words, packed = np.zeros(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    used = np.zeros(register_count, np.uint32)  # the bitwise or of the bit patterns in each register
    total = inputs[0].size
    counters = np.zeros((events.shape[0], 256), np.int64)
    for start in range(0, total, BLOCK):
        stop = min(start + BLOCK, total)
        count = stop - start
        for n in range(table.shape[0]):
            # The order of attempts for an instruction: first float32 lanes, with few bits or all of them, if no result
            # is in doubt; then float64 if its rounding does no harm; otherwise round-to-odd in float64 and one rounding
            # to the grid.
            what, to, a, b, how, row, quick, counted, is_either = table[n]
            if what == LOAD:
                used[to] = _load(inputs[a][start:stop], registers, to)
                continue
            if what == STORE:
                _store(registers, a, outputs[b][start:stop])
                continue
            with_scalar = has_scalar(what)
            y = scalars[a if what == FILL else b] if with_scalar else 1.0
            u, v = to if what == FILL else a, 0 if with_scalar else b
            if how == NOT:
                if what == FILL:
                    _repeat(F32(y), registers[to], count)
                else:
                    _move(what, registers, u, v, to, count)
                used[to] = union_of_images(registers, to, count)
                continue
            grid, is_made = unpack_grid(grids[row]), False
            if quick == FEW_BITS:
                cut = unpack_image_cut(grid)
                bits = used[a] if with_scalar or what == ROOT else U32(used[a] | used[b])
                is_made = compute_few_bits(what, registers, u, v, y, bits, cut, to, count)
                # Results rounded to the grid have no bit below it; otherwise any bit may be set. Reading the numbers
                # again, as `union_of_images` does after a move, would cost a pass.
                used[to] = U32(~cut.dropped)
            else:
                used[to] = U32(0xFFFFFFFF)
                if quick == IN_FLOAT32:
                    is_made = compute_single(what, registers, u, v, y, to, count)
                elif quick == DOUBLE:
                    _to_nearest(what, registers, u, v, y, grid, to, count)
                    is_made = True
            if not is_made:
                _make_exact(what, registers, u, v, y, grid, signs[row], exact, count)
                if grid.random_step != 0.0:
                    _fill_words(words[:count], packed, first + start, draws[n], draws_are_bytes(grid))
                _round(how, exact, words, grid, registers, to, count)
            if counted >= 0:
                # The exponents show if some results are zeros, subnormal, or nearly as large as the largest number.
                counts, zeros, small = counters[counted], np.int64(0), np.int64(0)
                others = counts[0]
                largest = count_fields(registers[to, :count], counts)
                if largest >= exponent_field(F32(grid.max)) or counts[0] > others:
                    zeros, small, large = count_ends(registers, to, grid.max, count)
                    # Events of overflow and NaN need the exact results, which are not kept. False sends the step to the
                    # single operations. A training step that overflows is rare, and both methods give the same results.
                    if large:
                        return False
                if zeros > 0:
                    events[counted, ZERO] += zeros
                    if grid.uniform == 0.0:
                        events[counted, UNDERFLOW] += zeros - exact_zeros(what, registers, u, v, y, count)
                if small > 0:
                    count_small(registers[to, :count], grid, events[counted])
                if what == SUM:
                    events[counted, UNCHANGED] += lost_addends(registers, u, v, to, is_either, count)
                elif what == SUM_WITH_SCALAR:
                    events[counted, UNCHANGED] += lost_scalar_addends(registers, u, y, to, count)
    for n in range(table.shape[0]):
        if table[n, 7] >= 0:
            add_counts(counters[table[n, 7]], np.int64(total), unpack_grid(grids[table[n, 5]]), events[table[n, 7]])
    return True


@kernel
def move_events(events, sums):
    """Add the events of float32 results to `sums`, which has only their columns; set the events to zero."""
    for row in range(events.shape[0]):
        column = 0
        for n in range(3):
            part = events[row, FIRST_OF_FLOAT32[n] : END_OF_FLOAT32[n]]
            total = sums[row, column : column + part.size]
            for i in range(part.size):
                total[i] += part[i]
                part[i] = 0
            column += part.size


@kernel
def count_stalled(before, after, gradient):
    """Count the elements that keep their value although their gradient is not zero; `before` may have one element."""
    step, count = np.int64(before.size == after.size), np.int64(0)
    for start in range(0, after.size, BLOCK):
        x, y, stalled = after[start : start + BLOCK], gradient[start : start + BLOCK], U32(0)
        old = before[start * step : start * step + BLOCK]
        if step == 1:
            for i in range(x.size):
                stalled = U32(stalled + U32((x[i] == old[i]) & (y[i] != F32(0.0))))
        else:
            for i in range(x.size):
                stalled = U32(stalled + U32((x[i] == before[0]) & (y[i] != F32(0.0))))
        count += np.int64(stalled)
    return count
