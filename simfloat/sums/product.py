"""Matrix products, dot products and sums, with the options that users pass."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic import operations
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.blocks import BlockScaled
from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.arithmetic.machines import CPU, Device, on_cpu
from simfloat.arithmetic.operands import as_operand, common_type_and_device
from simfloat.arithmetic.target import Observer, Target, as_target, carrier_of
from simfloat.common import check_flags, is_integer
from simfloat.environment import (
    LARGEST_SUBNORMAL,
    NORMAL,
    ONE,
    SUBNORMAL,
    TINY,
    call_in_usual_environment,
    in_usual_environment,
)
from simfloat.formats import FP64, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.exceptions import INVALID
from simfloat.formats.rounding import Rounding, RoundingLike, as_rounding
from simfloat.sums import contraction
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.certain_flags import sums_with_flags
from simfloat.sums.contraction import check_flaggable, prepare_by_operations, prepare_sum, round_sums
from simfloat.sums.exact import HardwareSum, exact, flags_in_fp64
from simfloat.sums.plan import Casts, Options, product_plan
from simfloat.sums.scales import Scales, as_scales, unpack_blocks
from simfloat.sums.sequential import as_accumulator
from simfloat.sums.tiles import sums_of_matrices
from simfloat.sums.unit_steps import invalid_sums

#: The format of an operand, or the cast that rounds the operand to it.
OneInput = Cast | FormatLike
Inputs = OneInput | tuple[OneInput, OneInput] | None


#: Length of a sum above which the ones that it is multiplied by are one value, broadcast with stride 0.
LEAST_STRIDELESS_ONES = 1 << 12


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
    flags: bool = False,
) -> NDArray[np.floating]:
    """Multiply two matrices as hardware with this accumulator would.

    Each element of the result is one sum over k, in ascending order of k. The order and the roundings of its additions
    are given by `accumulate`.

    Parameters:
        a, b: arrays with the shapes of numpy.matmul; leading axes are broadcast. Results of
            :func:`simfloat.block_quantize` with blocks along k are operands with their scales; scales of whole tensors
            divide the sums before these are rounded to `output`.
        inputs: a format or a :func:`simfloat.cast` that a and b are first rounded to, or a pair of them for a and b. A
            format rounds to nearest even. By default operands are not rounded.
        accumulate: an accumulator, or a format, which means `sequential(format)`.
        output: the format of the result; by default the format of the accumulator.
        rounding: the mode in which sums are rounded to `output`; by default to nearest even.
        scales: a pair of arrays (..., m, k / block) and (..., k / block, n): the scales of blocks of a and b along k. A
            tensor core with block scales uses them as the hardware does. Any other accumulator sums the products of the
            scaled operands, which must be float64 values. A scale of NaN makes the products of its block NaN.
        initial: start values of the sums, as C in D = A B + C; by default +0. An array that broadcasts to the result.
            Its values are in the format of the accumulator's partial sum (for `blocked`, of the outer one); `exact`
            accepts any float64 values.
        stream: the random bits of stochastic modes in the accumulator, the casts or `rounding` (`BitStream` or
            `GivenBits`).
        observer: receives the rounding events of the casts and of the results.
        flags: True to return the IEEE exceptions as well, for accumulators that consist of rounded operations, for
            aligned sums, matrix units, and `exact`. On a Xeon, most sums in FP32 and BF16 took 2 to 20 times as long
            with flags. Sums in FP16, FP8 or FP64, and sums without rounding errors, took 5 to 200 times as long.

    Returns:
        float32 if both operands are float32 and the output format fits into float32, otherwise float64. With
        ``flags=True`` a pair: the results, and a uint8 array with the exceptions that the steps of each sum and its
        rounding to `output` raise together, with the bits of :func:`simfloat.round`. A chunk of an aligned sum is
        inexact if the alignment cuts bits off a term, or if the total is rounded. Scales that a matrix unit reads raise
        no flags, because scaled products are exact; with scaled casts, the division or multiplication of the sum of
        a block by its scales may raise flags. Manuals of matrix units define no flags. simfloat returns the flags of
        the operations in its model of the unit; a subnormal result that CDNA2 flushes is inexact and an underflow.

    Raises:
        ValueError: if the inner sizes differ, or if operands are too wide for exact steps.
        ValueError: if `accumulate` is `exact` and `output` is missing.
        ValueError: if `rounding` is given although `output` is the format of the accumulator.
        ValueError: if `initial` would enlarge the result, or has values outside the format of the partial sum.
        ValueError: if scales are infinite, given twice, or not in the scale format of the accumulator.
        ValueError: if `flags` is true, and the accumulator has no flags.

    Examples:
        >>> a, b = np.random.default_rng(0).standard_normal((2, 64, 64))
        >>> hopper = sf.tensor_core("hopper")
        >>> c = sf.matmul(a, b, inputs=sf.E4M3, accumulate=hopper)
        >>> d = sf.matmul(a, b, inputs=sf.E4M3, accumulate=hopper, initial=c)  # D = A B + C
        >>> e = sf.matmul(a, b, inputs=sf.FP16, accumulate=sf.kahan(sf.FP16))
        >>> e.shape
        (64, 64)
    """
    operands: tuple[Any, Any, Any] = a, b, scales
    if isinstance(a, BlockScaled) or isinstance(b, BlockScaled):
        operands = unpack_blocks(*operands)
    x, y, blocks = as_operand(operands[0], "a"), as_operand(operands[1], "b"), operands[2]
    left, right, shape = (x, y, None) if x.ndim == y.ndim == 2 else _as_matrices(x, y)
    if left.shape[-1] != right.shape[-2]:
        raise _shape_error(x, y)
    options = read_options([x, y], inputs, accumulate, output, rounding, stream, observer, "matmul")
    if blocks is not None:
        blocks = as_scales(blocks, left, right, options.accumulator)
    initial = None if initial is None else as_operand(initial, "initial")
    if flags is not False:
        return multiply_with_flags(left, right, options, blocks, initial, shape, flags)
    return multiply_matrices(left, right, options, blocks, initial, shape)


def _as_matrices(x: NDArray, y: NDArray) -> tuple[NDArray, NDArray, tuple[int, ...] | None]:
    """Return both factors as matrices, and the shape of the result if it is not the shape of the matrix product."""
    if x.ndim == 0 or y.ndim == 0:
        raise _shape_error(x, y)
    if x.ndim > 1 and y.ndim > 1:
        return x, y, None
    # A vector is multiplied by every matrix of the other factor. The result has one element per row or column of each.
    if x.ndim > 1:
        return x, y[:, np.newaxis], x.shape[:-1]
    return x[np.newaxis], (y if y.ndim > 1 else y[:, np.newaxis]), y.shape[:-2] + y.shape[-1:] if y.ndim > 1 else ()


def _shape_error(x: NDArray, y: NDArray) -> ValueError:
    return ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {x.shape} and {y.shape}.")


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
    flags: bool = False,
) -> NDArray[np.floating]:
    """Sum the products of two vectors of equal length.

    Parameters:
        a, b: vectors, or vectors with block scales from :func:`simfloat.block_quantize`.
        inputs: a format or a :func:`simfloat.cast` that a and b are first rounded to, or a pair of them; by default
            none.
        accumulate: an accumulator, or a format, which means `sequential(format)`.
        output: the format of the result; by default the format of the accumulator.
        rounding: the mode in which the sum is rounded to `output`; by default to nearest even.
        initial: the start value of the sum, in the format of the partial sum; by default +0.
        stream: the random bits of stochastic modes (`BitStream` or `GivenBits`).
        observer: receives the rounding events of the casts and of the result.
        flags: True to return the IEEE exceptions as well, for accumulators that consist of rounded operations, for
            aligned sums, matrix units, and `exact`.

    Returns:
        A 0-dimensional array. It is float32 if both vectors are float32 and the output format fits into float32,
        otherwise float64. With ``flags=True`` a pair, as in :func:`simfloat.matmul`.

    Raises:
        ValueError: if a and b are not vectors of equal length.
        ValueError: for the options that :func:`simfloat.matmul` rejects.

    Examples:
        >>> sf.dot([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], accumulate=sf.FP16)
        array(32.)
        >>> sf.dot([2048.0, 1.0], [1.0, 1.0], accumulate=sf.FP16), sf.dot([2048.0, 1.0], [1.0, 1.0], accumulate=sf.FP32)
        (array(2048.), array(2049.))
        >>> sf.dot([60000.0, 60000.0], [1.0, 1.0], accumulate=sf.FP16, flags=True)  # overflow and inexact
        (array(inf), array(5, dtype=uint8))
    """
    x, y, blocks = unpack_blocks(a, b) if isinstance(a, BlockScaled) or isinstance(b, BlockScaled) else (a, b, None)
    x, y = as_vectors(x, y)
    options = read_options([x, y], inputs, accumulate, output, rounding, stream, observer, "dot")
    row, column = x[np.newaxis], y[:, np.newaxis]
    if blocks is not None:
        blocks = as_scales(blocks, row, column, options.accumulator)
    initial = None if initial is None else as_operand(initial, "initial")
    if flags is not False:
        return multiply_with_flags(row, column, options, blocks, initial, (), flags)
    return multiply_matrices(row, column, options, blocks, initial, ())


def as_vectors(a: ArrayLike, b: ArrayLike) -> tuple[NDArray, NDArray]:
    """Return both as vectors of equal length; raise ValueError if they are not."""
    a, b = as_operand(a, "a"), as_operand(b, "b")
    if a.ndim != 1 or a.shape != b.shape:
        more = "; matmul takes matrices" if max(a.ndim, b.ndim) > 1 else ""
        raise ValueError(f"dot takes two vectors of equal length, got shapes {a.shape} and {b.shape}{more}.")
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
    flags: bool = False,
) -> NDArray[np.floating]:
    """Sum the elements of an array, computed as their dot product with ones.

    Elements are added in C order, whatever their order in memory. An empty sum is +0, or `initial`.

    Parameters:
        x: the array.
        axis: the axis to sum along; None sums all elements.
        accumulate: an accumulator, or a format, which means `sequential(format)`.
        inputs: a format or a :func:`simfloat.cast` that x is first rounded to; by default none.
        output: the format of the result; by default the format of the accumulator.
        rounding: the mode in which sums are rounded to `output`; by default to nearest even.
        initial: start values of the sums, in the format of the partial sum; by default +0.
        stream: the random bits of stochastic modes (`BitStream` or `GivenBits`).
        observer: receives the rounding events of the cast and of the results.
        flags: True to return the IEEE exceptions as well, for accumulators that consist of rounded operations, for
            aligned sums, matrix units, and `exact`.

    Returns:
        An array without `axis`. It is float32 if x is float32 and the output format fits into float32, otherwise
        float64. With ``flags=True`` a pair, as in :func:`simfloat.matmul`.

    Raises:
        ValueError: if `axis` is not an axis of x.
        ValueError: for the options that :func:`simfloat.matmul` rejects.

    Examples:
        >>> sf.sum(np.ones((2, 300)), axis=1, accumulate=sf.BF16)
        array([256., 256.])
    """
    if hasattr(x, "__next__"):
        raise ValueError("sum takes an array; simfloat.sum_blocks(x, accumulate=...) sums the arrays of an iterator.")
    x = as_operand(x)
    if axis is None:
        rows = x.reshape(1, -1)
        shape: tuple[int, ...] = ()
    elif is_integer(axis, -x.ndim, x.ndim - 1):
        rows = np.moveaxis(x, axis, -1)
        shape = rows.shape[:-1]
        rows = rows.reshape(math.prod(shape), x.shape[axis])
    else:
        places = f"None or an integer from {-x.ndim} to {x.ndim - 1}" if x.ndim else "None: a single number has no axes"
        raise ValueError(f"axis must be {places}, got {axis!r}.")
    options = read_options([x], inputs, accumulate, output, rounding, stream, observer, "sum")
    # The ones are not the user's data: their cast is not reported, and they are not scaled.
    options = options._replace(cast_operations=("cast_input", None))
    plan = options.plan
    if plan.has_scales:
        assert plan.casts is not None
        casts = plan.casts[0], plan.casts[1].without_scale
        options = options._replace(plan=product_plan(plan.accumulator, casts, plan.format, plan.rounding, plan.device))
    many = rows.shape[1] > LEAST_STRIDELESS_ONES and plan.device is CPU
    ones = np.ones_like(x, order="C", shape=(1 if many else rows.shape[1], 1))
    if many:
        ones = np.broadcast_to(ones, (rows.shape[1], 1))
    initial = None if initial is None else as_operand(initial, "initial")
    if flags is not False:
        return multiply_with_flags(rows, ones, options, None, initial, shape, flags)
    return multiply_matrices(rows, ones, options, None, initial, shape)


def refuse_flags(operation: str, flags: bool) -> None:
    """Raise ValueError if flags are requested of a function that does not return them."""
    check_flags(flags=flags)
    if flags:
        raise ValueError(
            f"{operation} takes no flags=True. simfloat.sum, dot and matmul return the flags that the steps of a sum "
            "raise, and round and the elementwise operations return the flags of each rounding."
        )


def read_options(
    operands: list[NDArray],
    inputs: Inputs,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None,
    rounding: RoundingLike | None,
    stream: Stream | None,
    observer: Observer | None,
    operation: str,
) -> Options:
    """Read and check the options of a call."""
    arguments: tuple[Any, ...] = (inputs, accumulate, output, *common_type_and_device(operands), operation)
    try:
        options = _default_options(*arguments)
    except TypeError:  # an unhashable value is not a valid option; the uncached function raises the ValueError
        options = _default_options.__wrapped__(*arguments)
    if rounding is None and stream is None and observer is None:
        return options
    plan, format = options.plan, options.target.format
    rounding = None if rounding is None else as_rounding(rounding)
    target = as_target(operands, format, rounding or nearest_even, stream, observer, operation)
    if rounding is not None:
        if format == plan.accumulator.result and not plan.divides_sums:
            refuse_rounding(plan.accumulator, rounding)
        plan = product_plan(plan.accumulator, plan.casts, format, rounding, plan.device)
    return options._replace(plan=plan, target=target)


@lru_cache(maxsize=1024)
@in_usual_environment
def _default_options(
    inputs: Inputs,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None,
    single: bool,
    device: Device,
    operation: str,
) -> Options:
    """Return the options of a call without rounding, stream and observer, cached; `single` if all operands are
    float32."""
    casts = None if inputs is None else _as_casts(inputs)
    formats = (None, None) if casts is None else (casts[0].format, casts[1].format)
    accumulator = as_accumulator(accumulate).for_inputs(*formats)
    format = as_format(output) if output is not None else accumulator.result
    if format is None:
        raise ValueError("An exact sum has no format of its own: pass output=, the format it is rounded to.")
    target = Target(format, nearest_even, carrier_of(format) if single else np.float64, operation=operation)
    return Options(product_plan(accumulator, casts, format, nearest_even, device), target)


def _as_casts(inputs: OneInput | tuple[OneInput, OneInput]) -> Casts:
    """The casts of both operands."""
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(f"inputs is a format, or a pair of formats for a and b; got {len(inputs)} of them.")
        if None in inputs:
            raise ValueError(
                f"A pair of inputs has a format for each operand; got {inputs!r}. To leave an operand as it is, pass "
                "its own format, or sf.FP64."
            )
        return as_cast(inputs[0]), as_cast(inputs[1])
    cast = as_cast(inputs)
    return cast, cast


def refuse_rounding(accumulator: Accumulator, rounding: Rounding) -> None:
    """Raise ValueError for a rounding mode of sums that are not rounded; the caller probably meant the steps."""
    meant = "pass output=, the format that they are to be rounded to"
    if "rounding" in (field.name for field in fields(accumulator)):
        meant = f"for the mode of the steps pass accumulate={replace(accumulator, rounding=rounding)}"  # type: ignore[call-arg]
    raise ValueError(
        f"rounding={rounding} is the mode in which sums are rounded to output, but sums in {accumulator.result} "
        f"are not rounded again to this format; {meant}."
    )


def multiply_matrices(
    a: NDArray,
    b: NDArray,
    options: Options,
    scales: Scales | None = None,
    initial: NDArray | None = None,
    shape: tuple[int, ...] | None = None,
) -> NDArray[np.floating]:
    """Multiply matrices a (..., m, k) and b (..., k, n); `shape` is the shape of the result if it differs."""
    # The decorator's check, written out: a call of it took 5 % of a product of four numbers (AMD Zen 3).
    if NORMAL - SUBNORMAL != LARGEST_SUBNORMAL or ONE + TINY != ONE - TINY:
        return call_in_usual_environment(lambda: multiply_matrices(a, b, options, scales, initial, shape))
    matrices = (a.shape[0], b.shape[1]) if a.ndim == b.ndim == 2 else _result_shape(a, b)
    shape = matrices if shape is None else shape
    depth = a.shape[-1]
    a, b, work = prepare_sum(a, b, shape, depth, options, scales, initial)
    count = math.prod(matrices)
    # `with_progress_bar` tests this again. Calling it cost three of the 29 calls of a product of 4 x 4.
    if max(count * work.engine.cost, contraction.SINGLE_SUM_COST) * depth < contraction.LEAST_WATCHED_WORK:
        sums = sums_of_matrices(matrices, a, b, work)
    else:
        own = options.plan.accumulator
        sums = contraction.with_progress_bar(
            lambda work: sums_of_matrices(matrices, a, b, work), work, count, depth, own
        )
    return round_sums(sums, shape, options, work, a, b)


@in_usual_environment
def multiply_with_flags(
    a: NDArray,
    b: NDArray,
    options: Options,
    scales: Scales | None,
    initial: NDArray | None,
    shape: tuple[int, ...] | None,
    flags: bool,
) -> Any:
    """Multiply matrices as `multiply_matrices` does; with flags, return a pair of the results and their flags."""
    check_flags(flags=flags)
    if not flags:
        return multiply_matrices(a, b, options, scales, initial, shape)
    check_flaggable(options)
    matrices, (plan, target, *_) = _result_shape(a, b), options
    if plan.device is not CPU:  # flags are found only on the CPU
        there = options._replace(plan=product_plan(plan.accumulator, plan.casts, plan.format, plan.rounding, CPU))
        initial = None if initial is None else on_cpu(initial)
        scales = scales and scales._replace(a=on_cpu(scales.a), b=on_cpu(scales.b))
        pair = multiply_with_flags(on_cpu(a), on_cpu(b), there, scales, initial, shape, True)
        return tuple(map(plan.device.to_device, pair))
    shape = matrices if shape is None else shape
    if plan.accumulator == exact:
        return _exact_sums_with_flags(a, b, options, scales, initial, matrices, shape)
    raised = np.zeros(math.prod(matrices), np.uint8)
    a, b, work = prepare_by_operations(a, b, shape, a.shape[-1], options, scales, initial, raised)
    sums = sums_with_flags(matrices, a, b, work)
    if work.divisor != 1.0 or target.format != plan.result or target.rounding.saturates:
        raised |= _flags_of_results(sums.reshape(-1), work.divisor, target)
    return round_sums(sums, shape, options, work, a, b), raised.reshape(shape)


def _flags_of_results(sums: NDArray, divisor: float, target: Target) -> NDArray[np.uint8]:
    """Return the flags of dividing sums by the scales of whole operands, if there are any, and of rounding them."""
    if divisor == 1.0:
        return operations.round(sums, target.format, target.rounding, flags=True)[1]
    quotients = [sums, np.array(divisor)]
    return operations.compute_with_flags("divide", quotients, target._replace(observer=None), None)[1]


def _exact_sums_with_flags(
    a: NDArray,
    b: NDArray,
    options: Options,
    scales: Scales | None,
    initial: NDArray | None,
    matrices: tuple[int, ...],
    shape: tuple[int, ...],
) -> tuple[NDArray, NDArray[np.uint8]]:
    """Return exact sums, and the flags of their one rounding."""
    target = options.target
    a, b, work = prepare_sum(a, b, shape, a.shape[-1], options, scales, initial)
    sums = sums_of_matrices(matrices, a, b, work).reshape(matrices)
    raised = _flags_of_results(sums, work.divisor, target)
    start = np.zeros(matrices) if work.initial is None else work.initial.reshape(matrices)
    if not np.isfinite(sums).all():
        columns_and_rows = [(a[..., k : k + 1], b[..., k : k + 1, :]) for k in range(a.shape[-1])]
        raised |= invalid_sums(columns_and_rows, start, sums) * np.uint8(INVALID)
    if target.format == FP64 and not isinstance(work.engine, HardwareSum):
        finite = np.isfinite(a).all(-1)[..., np.newaxis] & np.isfinite(b).all(-2)[..., np.newaxis, :]
        blocks = None if work.scales is None else (work.scales.a, work.scales.b)
        raised |= flags_in_fp64(work.engine, (a, b), blocks, start, target.rounding, finite & np.isfinite(start))
    return round_sums(sums.reshape(-1), shape, options, work, a, b), raised.reshape(shape)


def _result_shape(a: NDArray, b: NDArray) -> tuple[int, ...]:
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"The leading axes of shapes {a.shape} and {b.shape} do not broadcast.") from None
    return (*batch, a.shape[-2], b.shape[-1])
