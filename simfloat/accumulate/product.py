"""Products of matrices, dot products and sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.contraction import finish, prepare
from simfloat.accumulate.options import Inputs, OneInput, Options, options_of
from simfloat.accumulate.scales import Scales, as_scales, unpacked
from simfloat.accumulate.tiles import sums_of_matrices
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.blocks import BlockScaled
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import as_operand
from simfloat.checks import is_integer
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike


def matmul(
    a: ArrayLike | BlockScaled,
    b: ArrayLike | BlockScaled,
    *,
    inputs: Inputs = None,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    scales: tuple[ArrayLike, ArrayLike] | None = None,
    initial: ArrayLike | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The matrix product of `a` and `b` as hardware with this accumulator would compute it.

    Shapes and the broadcasting of leading axes are numpy.matmul's. Operands are first taken to `inputs`: a format, to
    which they are rounded to nearest even, a simfloat.cast, a pair of them for a and b, or None to take them as they
    are. Each sum runs over ascending k in the order and with the roundings of `accumulate`: an accumulator, or a format
    for `sequential`. The result is rounded to `output`, by default the accumulator's format, in the mode `rounding`
    (nearest even), which concerns nothing else. Stochastic modes, here, in a cast or in the accumulator, take their
    bits from `stream`; `observer` receives the events of the casts and of the results.

    With `initial` sums start from it instead of +0, as in D = A B + C: numbers of the format that the accumulator's
    running sum comes in (of a blocked sum the outer one), in an array that broadcasts to the result. An exact sum adds
    any float64 numbers.

    `scales`, a pair of arrays (..., m, k / block) and (..., k / block, n), are those of blocks of the operands along
    k, as :func:`simfloat.block_quantize` gives them. A tensor core with scales uses them as hardware does; any other
    accumulator sums the products of the scaled operands, which must be float64 numbers. A scale of NaN makes its
    block's products NaN. Results of block_quantize are themselves operands, blocks along k; scales of whole tensors
    divide the sums, before these are rounded to `output`.

    float32 out if both operands are float32 and the output format fits, else float64.

    Raises ValueError if the inner sizes differ, if operands are too wide for a step to be exact, for
    ``accumulate=exact`` without an output, for a `rounding` where the output is the accumulator's format, for an
    `initial` that enlarges the result or holds other numbers, and for scales that are infinite, given twice, or no
    numbers of the accumulator's format.

    Examples:
        >>> a, b = np.random.default_rng(0).standard_normal((2, 64, 64))
        >>> hopper = sf.tensor_core("hopper")
        >>> c = sf.matmul(a, b, inputs=sf.E4M3, accumulate=hopper)
        >>> d = sf.matmul(a, b, inputs=sf.E4M3, accumulate=hopper, initial=c)  # D = A B + C
        >>> e = sf.matmul(a, b, inputs=sf.FP16, accumulate=sf.kahan(sf.FP16))
        >>> e.shape
        (64, 64)
    """
    x, y, blocks = _taken_apart(a, b, scales)
    x, y = as_operand(x, "a"), as_operand(y, "b")
    if x.ndim == 0 or y.ndim == 0 or x.shape[-1] != y.shape[max(y.ndim - 2, 0)]:
        raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {x.shape} and {y.shape}.")
    options = options_of([x, y], inputs, accumulate, output, rounding, stream, observer, "matmul")
    left = x if x.ndim > 1 else x[np.newaxis]
    right = y if y.ndim > 1 else y[:, np.newaxis]
    if blocks is not None:
        blocks = as_scales(blocks, left, right, options.accumulator)
    shape = None
    if x.ndim == 1 or y.ndim == 1:
        shape = _result_shape(left, right)
        shape = shape[:-2] + (shape[-2:-1] if x.ndim > 1 else ()) + (shape[-1:] if y.ndim > 1 else ())
    start = None if initial is None else as_operand(initial, "initial")
    return multiply_matrices(left, right, options, blocks, start, shape)


def dot(
    a: ArrayLike | BlockScaled,
    b: ArrayLike | BlockScaled,
    *,
    inputs: Inputs = None,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    initial: ArrayLike | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The sum of the products of two vectors of equal length; options as in :func:`simfloat.matmul`.

    Examples:
        >>> sf.dot([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], accumulate=sf.FP16)
        array(32.)
        >>> sf.dot([2048.0, 1.0], [1.0, 1.0], accumulate=sf.FP16), sf.dot([2048.0, 1.0], [1.0, 1.0], accumulate=sf.FP32)
        (array(2048.), array(2049.))
    """
    x, y, blocks = _taken_apart(a, b, None)
    x, y = as_vectors(x, y)
    options = options_of([x, y], inputs, accumulate, output, rounding, stream, observer, "dot")
    row, column = x[np.newaxis], y[:, np.newaxis]
    if blocks is not None:
        blocks = as_scales(blocks, row, column, options.accumulator)
    start = None if initial is None else as_operand(initial, "initial")
    return multiply_matrices(row, column, options, blocks, start, ())


def as_vectors(a: ArrayLike, b: ArrayLike) -> tuple[NDArray, NDArray]:
    """Two vectors of equal length."""
    a, b = as_operand(a, "a"), as_operand(b, "b")
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"dot takes two vectors of equal length, got shapes {a.shape} and {b.shape}.")
    return a, b


def sum(
    x: ArrayLike,
    axis: int | None = None,
    *,
    accumulate: Accumulator | FormatLike,
    inputs: OneInput | None = None,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    initial: ArrayLike | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The sum of the elements along `axis`, computed as their dot product with ones; all of them if axis is None.

    Elements are taken in C order, whatever the memory; an empty sum is +0, or `initial`. Options as in
    :func:`simfloat.matmul`.

    Examples:
        >>> sf.sum(np.ones((2, 300)), axis=1, accumulate=sf.BF16)
        array([256., 256.])
    """
    x = as_operand(x)
    if axis is None:
        rows = x.reshape(1, -1)
        shape: tuple[int, ...] = ()
    elif is_integer(axis, -x.ndim, x.ndim - 1):
        rows = np.moveaxis(x, axis, -1)
        shape = rows.shape[:-1]
        rows = rows.reshape(math.prod(shape), x.shape[axis])
    else:
        raise ValueError(f"axis must be None or an integer from {-x.ndim} to {x.ndim - 1}, got {axis!r}.")
    options = options_of([x], inputs, accumulate, output, rounding, stream, observer, "sum")
    # Ones are no operand of the user's: their cast is nobody's event, and they are not scaled.
    options = options._replace(cast_operations=("cast_input", None))
    if options.inputs:
        options = options._replace(inputs=(options.inputs[0], options.inputs[1].unscaled))
    ones = np.ones_like(x, order="C", shape=(rows.shape[1], 1))
    start = None if initial is None else as_operand(initial, "initial")
    return multiply_matrices(rows, ones, options, None, start, shape)


def _taken_apart(a: Any, b: Any, scales: Any) -> tuple[Any, Any, Any]:
    """The operands' elements, and the scales of their blocks."""
    if isinstance(a, BlockScaled) or isinstance(b, BlockScaled):
        return unpacked(a, b, scales)
    return a, b, scales


def multiply_matrices(
    a: NDArray,
    b: NDArray,
    options: Options,
    scales: Scales | None = None,
    initial: NDArray | None = None,
    shape: tuple[int, ...] | None = None,
) -> NDArray[np.floating]:
    """The products of matrices a (..., m, k) and b (..., k, n), in an array of `shape` if it is to have another one."""
    if options.short is not None and scales is None and initial is None:
        product = options.short.product(a, b, options.target, options.settled, shape)
        if product is not None:
            return product
    matrices = _result_shape(a, b)
    shape = matrices if shape is None else shape
    work = prepare(a, b, shape, a.shape[-1], options, scales, initial)
    return finish(sums_of_matrices(matrices, work), shape, options, work)


def _result_shape(a: NDArray, b: NDArray) -> tuple[int, ...]:
    if a.ndim == b.ndim == 2:
        return (a.shape[0], b.shape[1])
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"The leading axes of shapes {a.shape} and {b.shape} do not broadcast.") from None
    return (*batch, a.shape[-2], b.shape[-1])
