"""Products of matrices, dot products and sums."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.accumulate.accumulator import Accumulator, Scales
from simfloat.accumulate.contraction import Inputs, Options, contract, options_of
from simfloat.accumulate.scales import as_scales
from simfloat.accumulate.tiles import sums_of_matrices
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.stream import Stream
from simfloat.formats import Format, Rounding, nearest_even


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    inputs: Inputs = None,
    accumulate: Accumulator | Format | str,
    output: Format | str | None = None,
    rounding: Rounding = nearest_even,
    scales: tuple[ArrayLike, ArrayLike] | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The matrix product of `a` and `b` as hardware with this accumulator would compute it.

    Shapes and the broadcasting of leading axes are numpy.matmul's. Operands are first rounded to `inputs` (a format,
    a pair for a and b, or None to take them as they are), to nearest even. Each sum runs over ascending k in the
    order and with the roundings of `accumulate`: an accumulator, or a format for `sequential`. The result is rounded
    to `output`, by default the accumulator's format, in the mode `rounding`, which concerns nothing else. Stochastic
    modes, here or in the accumulator, take their bits from `stream`; `observer` receives the events of the results.

    `scales`, a pair of arrays (..., m, k / block) and (..., k / block, n), are those of blocks of the operands along
    k, as :func:`simfloat.block_quantize` gives them. A tensor core with scales uses them as hardware does; any other
    accumulator sums the products of the scaled operands, which must be float64 numbers.

    float32 out if both operands are float32 and the output format fits, else float64.

    Raises ValueError if the inner sizes differ, if operands are too wide for a step to be exact, for
    ``accumulate=exact`` without an output, and for scales that are not finite numbers of the accumulator's format.
    """
    a, b = as_operand(a, "a"), as_operand(b, "b")
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {a.shape} and {b.shape}.")
    left = a if a.ndim > 1 else a[np.newaxis]
    right = b if b.ndim > 1 else b[:, np.newaxis]
    options = options_of([a, b], inputs, accumulate, output, rounding, stream, observer, "matmul")
    out = multiply_matrices(left, right, options, as_scales(scales, left, right, options.accumulator))
    shape = out.shape[:-2] + (out.shape[-2:-1] if a.ndim > 1 else ()) + (out.shape[-1:] if b.ndim > 1 else ())
    return out.reshape(shape)


def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    inputs: Inputs = None,
    accumulate: Accumulator | Format | str,
    output: Format | str | None = None,
    rounding: Rounding = nearest_even,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The sum of the products of two vectors of equal length; options as in :func:`simfloat.matmul`."""
    a, b = as_operand(a, "a"), as_operand(b, "b")
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"dot takes two vectors of equal length, got shapes {a.shape} and {b.shape}.")
    options = options_of([a, b], inputs, accumulate, output, rounding, stream, observer, "dot")
    return multiply_matrices(a[np.newaxis], b[:, np.newaxis], options).reshape(())


def sum(
    x: ArrayLike,
    axis: int | None = None,
    *,
    accumulate: Accumulator | Format | str,
    inputs: Format | str | None = None,
    output: Format | str | None = None,
    rounding: Rounding = nearest_even,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The sum of the elements along `axis`, computed as their dot product with ones; all of them if axis is None.

    Elements are taken in C order, whatever the memory; an empty sum is +0. Options as in :func:`simfloat.matmul`.
    """
    x = as_operand(x)
    if axis is None:
        rows = x.reshape(1, -1)
        shape: tuple[int, ...] = ()
    elif isinstance(axis, int | np.integer) and -x.ndim <= axis < x.ndim:
        rows = np.moveaxis(x, axis, -1)
        shape = rows.shape[:-1]
        rows = rows.reshape(math.prod(shape), x.shape[axis])
    else:
        raise ValueError(f"axis must be None or an integer from {-x.ndim} to {x.ndim - 1}, got {axis!r}.")
    options = options_of([x], inputs, accumulate, output, rounding, stream, observer, "sum")
    ones = np.ones((rows.shape[1], 1), x.dtype)
    return multiply_matrices(rows, ones, options).reshape(shape)


def multiply_matrices(a: NDArray, b: NDArray, options: Options, scales: Scales | None = None) -> NDArray[np.floating]:
    """The products of matrices a (..., m, k) and b (..., k, n)."""
    shape = _result_shape(a, b)
    sums_of = partial(sums_of_matrices, shape, scales if options.accumulator.scales else None)
    return contract(sums_of, a, b, shape, a.shape[-1], options, scales)


def _result_shape(a: NDArray, b: NDArray) -> tuple[int, ...]:
    if a.ndim == b.ndim == 2:
        return (a.shape[0], b.shape[1])
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"The leading axes of shapes {a.shape} and {b.shape} do not broadcast.") from None
    return (*batch, a.shape[-2], b.shape[-1])
