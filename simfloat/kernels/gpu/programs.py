"""Programs of rounded operations on a GPU: a thread runs all instructions for four elements, in one launch.

It has the instructions of `kernels/programs.py`, with the same results. A thread interprets the table, so one compiled
kernel serves all programs, and a new optimizer or policy compiles nothing. All threads follow the same instructions,
and therefore the same branches. Registers are in the local memory of the thread, because the table numbers them.

Every result is rounded to odd in float64, and then once to its format. The faster methods of the table (`QUICK`) save
time in vector registers only; they give the same bits. Nothing is counted: an observer's counts would be read from the
GPU after each update, so watched updates remain single operations.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import add_odd, divide_odd, multiply_odd, sqrt_odd
from simfloat.kernels.gpu.elementwise import FOUR, U64, drawn_words
from simfloat.kernels.gpu.threads import cast_for_out, registers, threads_over
from simfloat.kernels.program_table import (
    DIRECTED,
    FILL,
    LOAD,
    NEAREST,
    NEGATE,
    NOT,
    PRODUCT,
    PRODUCT_WITH_SCALAR,
    QUOTIENT,
    QUOTIENT_BY_SCALAR,
    REGISTERS,
    SIGN,
    SINGLE,
    STICKY,
    STOCHASTIC,
    STORE,
    SUM,
    SUM_WITH_SCALAR,
)
from simfloat.kernels.programs import has_scalar, larger_of, sign_of
from simfloat.kernels.rounding.grid import unpack_grid
from simfloat.kernels.rounding.one_number import (
    nearest,
    round_by_threshold,
    round_in_direction,
    round_to_any_grid,
    to_odd,
)
from simfloat.kernels.rounding.random import draws_are_bytes

F32, F64 = np.float32, np.float64

#: Scalars are passed by value, filled up to a multiple of this number, so that programs share a compiled kernel.
SCALARS = 16

#: The registers of a thread, with four elements each.
register_file = registers(REGISTERS * FOUR)


@scalar
def _element(number, i, x0, x1, x2, x3, x4, x5):
    """Return element i of the input with this number."""
    # Do not select the array first and then read the element: the compiler would not know that it is in global memory.
    if number == 0:
        return x0[i]
    if number == 1:
        return x1[i]
    if number == 2:
        return x2[i]
    if number == 3:
        return x3[i]
    return x4[i] if number == 4 else x5[i]


@scalar
def _write(number, i, x, y0, y1, y2, y3, y4):
    """Write element i of the output with this number."""
    if number == 0:
        y0[i] = x
    elif number == 1:
        y1[i] = x
    elif number == 2:
        y2[i] = x
    elif number == 3:
        y3[i] = x
    else:
        y4[i] = x


@scalar
def moved_value(what, x, z, y):
    """Return the result of an instruction that does not round, for registers with x and z, or for the scalar y."""
    if what == FILL:
        return F32(y)
    if what == NEGATE:
        return F32(-x)
    return F32(sign_of(x) if what == SIGN else larger_of(x, z))


@scalar
def _exact(what, x, z, y, sign):
    """Return the result for registers with x and z, or with x and the scalar y, rounded to odd in float64."""
    if what == FILL:
        return y
    if what == SUM:
        return add_odd(x, z, sign)
    if what == SUM_WITH_SCALAR:
        return add_odd(x, y, sign)
    if what == PRODUCT:
        return x * z
    if what == PRODUCT_WITH_SCALAR:
        return multiply_odd(x, y)
    if what == QUOTIENT:
        return divide_odd(x, z)
    return divide_odd(x, y) if what == QUOTIENT_BY_SCALAR else sqrt_odd(x)


@scalar
def round_in_way(how, exact, word, grid):
    """Round an exact result; `how` is an index in HOW."""
    if how == SINGLE:
        return F32(exact)
    if how == NEAREST:
        return F32(nearest(exact, grid))
    if how == DIRECTED:
        return F32(round_in_direction(exact, grid))
    if how == STICKY:
        return F32(to_odd(exact, grid))
    if how == STOCHASTIC:
        return F32(round_by_threshold(exact, word, grid))
    return F32(round_to_any_grid(exact, word, grid))


@threads_over("x0", each=FOUR)
def _run(j, table, grids, signs, scalars, draws, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4):
    values, first, size = register_file(F32(0.0)), FOUR * j, x0.size
    count = min(FOUR, size - first)
    for n in range(table.shape[0]):
        what, to, a, b, how, row = table[n, 0], table[n, 1], table[n, 2], table[n, 3], table[n, 4], table[n, 5]
        if what == LOAD:
            for k in range(count):
                values[FOUR * to + k] = _element(a, first + k, x0, x1, x2, x3, x4, x5)
        elif what == STORE:
            for k in range(count):
                _write(b, first + k, cast_for_out(values[FOUR * a + k], y0), y0, y1, y2, y3, y4)
        else:
            y = scalars[a if what == FILL else b] if has_scalar(what) else 1.0
            u, v = to if what == FILL else a, to if has_scalar(what) else b
            if how == NOT:
                for k in range(count):
                    values[FOUR * to + k] = moved_value(what, values[FOUR * u + k], values[FOUR * v + k], y)
            else:
                grid, four = unpack_grid(grids[row]), (U64(0), U64(0), U64(0), U64(0))
                if grid.random_step != 0.0:
                    four = drawn_words((draws[n, 1], U64(0), draws[n, 0], U64(draws_are_bytes(grid))), j)
                for k in range(count):
                    p, q = F64(values[FOUR * u + k]), F64(values[FOUR * v + k])
                    exact = _exact(what, p, q, y, signs[row])
                    values[FOUR * to + k] = round_in_way(how, exact, np.uint32(four[k]), grid)


@lru_cache(maxsize=1 << 10)
def _on_gpu(arrays, gpu, numbers, dtype, shape):
    """Return an array of a program on a GPU, which receives it once; `arrays` is the module of its arrays."""
    return arrays.asarray(np.frombuffer(numbers, dtype).reshape(shape))


def run_program(table, register_count, scalars, grids, signs, draws, first, inputs, outputs, events):
    """Run a program on vectors that begin at element 0; all are as long as the first input.

    `events` must have no rows. Returns True.
    """
    import cupy

    gpu = cupy.cuda.Device().id
    placed = [_on_gpu(cupy, gpu, x.tobytes(), x.dtype, x.shape) for x in (table, grids, signs)]
    # Draws differ from call to call; a program without draws has a constant array.
    words = (
        cupy.asarray(draws)
        if len(draws) == len(table)
        else _on_gpu(cupy, gpu, draws.tobytes(), draws.dtype, draws.shape)
    )
    numbers = np.zeros(-(-len(scalars) // SCALARS) * SCALARS)
    numbers[: len(scalars)] = scalars
    vectors = [inputs[0] if isinstance(x, np.ndarray) else x for x in (*inputs, *outputs)]  # for placeholders
    _run(*placed, numbers, words, *vectors)
    return True
