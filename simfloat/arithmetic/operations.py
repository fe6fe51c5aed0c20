"""Operations on arrays, and the rounding of arrays to a format: the exact real result is rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import NO_WORDS, Draw, Stream, take_draw
from simfloat.arithmetic.catalog import OPERATIONS, Operation
from simfloat.arithmetic.exact_operations import ROUND, compute_exactly, operate_exactly
from simfloat.arithmetic.flags import Flags, on_cpu_alone, round_flagged
from simfloat.arithmetic.machines import CPU, Device, device_of, on_device_of
from simfloat.arithmetic.operands import (
    FLOAT32,
    LEAST_ALIGNED,
    MISSING,
    FloatType,
    OperandLike,
    as_operand,
    broadcast_vectors,
    common_type_and_device,
    empty,
    exact_operand,
    flat,
    missing_format,
)
from simfloat.arithmetic.plan import (
    BLOCK,
    Plan,
    SumOperands,
    check_out,
    copied_to_out,
    is_in_place,
    is_one_block,
    is_one_piece,
    output_array,
    plan_for,
    round_and_count,
    round_in_place,
    round_planned,
)
from simfloat.arithmetic.sources import Elements, InFloat64ByMode, NumbersOfFormat, Route, route_of
from simfloat.arithmetic.target import Observer, Target, carrier_of, check_inexact, check_precision
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64, Format, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.exceptions import INEXACT
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.kernels.rounding.events import wants_optional_counts

#: The results for zeros in a scale format, which has no zero.
Zero = Literal["nan", "smallest"]


def operate(
    operation: Operation,
    operands: Sequence[OperandLike],
    format: Any,
    rounding: RoundingLike,
    stream: Stream | None,
    observer: Observer | None,
    flags: bool,
    out: NDArray[np.floating] | None,
) -> Any:
    """Compute a public operation with the arguments of the user; return its results, or a pair of results and flags."""
    if format is MISSING:
        raise missing_format(operation.name, operands, operation.operands)
    try:
        arrays = list(map(as_operand, operands, operation.operands))
    except ValueError:  # texts, numbers that float64 cannot represent, or invalid operands
        arrays = []
    if not arrays:
        arrays = list(map(exact_operand, operands, operation.operands))
        if any(x.dtype == object for x in arrays):
            return operate_exactly(operation.name, arrays, format, rounding, stream, observer, flags, out, operands)
    if flags is not False:
        check_flags(flags=flags)
    if flags and device_of(*arrays) is not CPU:

        def operate_on_cpu(copies: list[NDArray]) -> Any:
            return operate(operation, copies, format, rounding, stream, observer, True, None)

        return on_cpu_alone(operate_on_cpu, arrays, out)
    try:
        target, route = _target_and_route(operation.name, format, rounding, *common_type_and_device(arrays))
    except TypeError:  # an unhashable value is not a format or a rounding; the uncached function raises the ValueError
        target, route = _target_and_route.__wrapped__(operation.name, format, rounding, False, CPU)
    if format is not target.format or stream is not None or observer is not None:
        target = target.with_call_options(format, stream, observer)
    if out is not None:
        check_out(out, arrays, target.dtype, route.plan.device)
    if flags and _flags_need_fractions(route, target):
        return operate_exactly(operation.name, arrays, format, rounding, stream, observer, True, out)
    draw = take_draw(stream, target.rounding) if target.rounding.mode == "stochastic" else None
    if flags:
        return _results_and_flags(route, arrays, target, draw, out)
    return _compute_results(route, arrays, target, draw, out)


def compute(
    operation: str,
    arrays: list[NDArray],
    target: Target,
    routes: dict[Any, Route] | None = None,
    out: NDArray[np.floating] | None = None,
) -> NDArray[np.floating]:
    """Compute an operation on float arrays and check only the shapes; the observer receives it by this name.

    `routes` are the routes of earlier calls with the same target, by operation, type and device. If `out` is
    given, it receives the results, and must have their shape and dtype.
    """
    draw = take_draw(target.stream, target.rounding) if target.rounding.mode == "stochastic" else None
    routes = {} if routes is None else routes
    are_usual = all([type(x) is np.ndarray and x.dtype is FLOAT32 for x in arrays])
    key = (operation, True, CPU) if are_usual else (operation, *common_type_and_device(arrays))
    route = routes.get(key)
    if route is None:
        route = routes[key] = route_of(operation, target.format, target.rounding, *key[1:])
    return _compute_results(route, arrays, target, draw, out, operation)


def compute_with_draw(operation: str, arrays: list[NDArray], target: Target, draw: Draw | None) -> NDArray[np.floating]:
    """Compute an operation as part of a call that already took its draw; events go to the operation of the target."""
    return _compute_results(_route(operation, arrays, target), arrays, target, draw)


def compute_with_flags(
    operation: str, arrays: list[NDArray], target: Target, draw: Draw | None
) -> tuple[NDArray[np.floating], Flags]:
    """Compute an operation on float arrays of the CPU like `compute_with_draw`; return its results and their flags."""
    route = _route(operation, arrays, target)
    if _flags_need_fractions(route, target):
        return operate_exactly(operation, arrays, target.format, target.rounding, None, None, True, None)
    return _results_and_flags(route, arrays, target, draw, None)


@in_usual_environment
def compute_in_thread(operation: str, arrays: list[NDArray], target: Target) -> NDArray[np.floating]:
    """Compute an operation in a deterministic mode in this thread only, without an observer; for callers with
    threads."""
    route = _route(operation, arrays, target)
    shape, vectors = broadcast_vectors(arrays)
    out = empty(shape, target.dtype, route.plan.device)
    route.source(route, vectors, out.size).round_block(route.plan, 0, out.size, NO_WORDS, out.reshape(-1))
    return out


@in_usual_environment
def results_rounded_to_odd(operation: str, arrays: list[NDArray]) -> NDArray[np.float64]:
    """Return the exact results rounded to odd in float64, computed in this thread only."""
    route = route_of(operation, FP64, nearest_even, False, device_of(*arrays))
    shape, vectors = broadcast_vectors(arrays)
    out = empty(shape, np.float64, route.plan.device)
    route.exact(*vectors, *route.padding, route.sign, out.reshape(-1))
    return out


def _flags_need_fractions(route: Route, target: Target) -> bool:
    """True if results and their roundings to odd do not determine the flags: an exact hypot may have 53 bits."""
    return route.source is InFloat64ByMode or (route.kernel == "hypot" and target.format == FP64)


def _route(operation: str, arrays: list[NDArray], target: Target) -> Route:
    return route_of(operation, target.format, target.rounding, *common_type_and_device(arrays))


def _compute_results(
    route: Route,
    arrays: list[NDArray],
    target: Target,
    draw: Draw | None,
    out: NDArray[np.floating] | None = None,
    operation: str | None = None,
) -> NDArray[np.floating]:
    """Compute the results of an operation on float arrays, in `out` if that is given.

    The observer receives the events of `operation`, if it is given, otherwise those of the operation of the target.
    """
    if route.kernel == "power" and (factors := _factors_of_power(*arrays)) is not None:
        route, arrays = route_of("multiply", target.format, target.rounding, *common_type_and_device(factors)), factors
    plan, observer = route.plan, target.observer
    shape, vectors = broadcast_vectors(arrays)
    if out is None:
        is_small = plan.device is CPU and math.prod(shape) < LEAST_ALIGNED
        results = np.empty(shape, target.dtype) if is_small else empty(shape, target.dtype, plan.device)
    else:
        results = output_array(out, shape, vectors, plan, target, route.source.reads_once)
    is_straight = draw is None and observer is None and plan.has_nan
    if is_straight and results.size <= BLOCK:
        # round_planned would do the same and take longer.
        route.source.round_few(route, vectors, results.reshape(-1))
        return results if out is None else copied_to_out(results, out)
    source = route.source(route, vectors, results.size)
    if is_straight and is_one_piece(source, results.size):
        source.round_block(plan, 0, results.size, NO_WORDS, results.reshape(-1))
        return results if out is None else copied_to_out(results, out)
    name = target.operation if operation is None else operation
    if observer is not None and route.source is InFloat64ByMode:  # float64 cannot represent larger exact results
        results[...] = on_device_of(compute_exactly(route.kernel, arrays, target), results)
        return copied_to_out(results, out)
    if observer is not None and wants_optional_counts(observer):
        check_inexact(target.format, route.operation)
    if observer is not None and is_one_block(plan, results.size, draw):
        round_and_count(source, plan, results.reshape(-1), observer, name)
    else:
        target = target if name == target.operation else target._replace(operation=name)
        round_planned(source, plan, results, target, draw)
    return results if out is None else copied_to_out(results, out)


@in_usual_environment
def _factors_of_power(x: NDArray, exponent: NDArray) -> list[NDArray] | None:
    """Return two factors of x^2, x^3 or x^4, since exact products are rounded faster than powers; otherwise None."""
    if x.dtype != np.float32 or exponent.ndim or type(exponent) is not np.ndarray or exponent not in (2.0, 3.0, 4.0):
        return None
    if exponent == 2.0:
        return [x, x]
    with np.errstate(invalid="ignore"):  # converting a signalling NaN
        wide = x.astype(np.float64)
        square = wide * wide  # exact: twice 24 bits
    return [square, wide if exponent == 3.0 else square]


def _results_and_flags(
    route: Route, arrays: list[NDArray], target: Target, draw: Draw | None, out: NDArray[np.floating] | None
) -> tuple[NDArray[np.floating], Flags]:
    """Compute the results of an operation on float arrays, in `out` if that is given, and their flags."""
    shape, vectors = broadcast_vectors(arrays)
    results = output_array(out, shape, vectors, route.plan, target, reads_once=False)
    flags = round_flagged(route.source(route, vectors, results.size), route.plan, results, target, draw)
    return copied_to_out(results, out), flags


@lru_cache(maxsize=512)
@in_usual_environment
def _target_and_route(operation: str, format: Any, rounding: Any, single: bool, device: Device) -> tuple[Target, Route]:
    """Check the options of a call and return its target and its route; `single` if all are float32."""
    format, rounding = as_format(format), as_rounding(rounding)
    check_precision(format, rounding, OPERATIONS[operation].accuracy == "exact", operation)
    dtype = carrier_of(format) if single else np.float64
    target = Target(format, rounding, dtype, operation=operation)
    return target, route_of(operation, format, rounding, single, device)


@overload
def round(
    x: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: Literal[False] = False,
    out: NDArray[np.floating] | None = None,
    zero: Zero | None = None,
) -> NDArray[np.floating]: ...
@overload
def round(
    x: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: Literal[True],
    out: NDArray[np.floating] | None = None,
    zero: Zero | None = None,
) -> tuple[NDArray[np.floating], Flags]: ...
def round(
    x: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: bool = False,
    out: NDArray[np.floating] | None = None,
    zero: Zero | None = None,
) -> NDArray[np.floating] | tuple[NDArray[np.floating], Flags]:
    """Round each element of `x` to a number of `format`.

    One definition covers all modes. The value is rounded as if the exponent had no upper bound. A result beyond the
    largest number of the format is an overflow. It becomes +-inf (ieee, p3109), NaN (fn, fnuz), or +-max (finite
    formats, saturating modes, and modes that point back inside). The sign of zero is kept if the format has -0.
    Underflow is gradual.

    Numbers that float64 cannot represent are read exactly, and are rounded one by one: texts (``"0.1"``, ``"1/3"``,
    ``"0x1.8p-3"``, ``"-inf"``), integers of any size, Fractions, Decimals, mpz, mpq and mpfr of gmpy2, and
    np.longdouble, also in sequences and arrays. Magnitudes from 10^-10000 to 10^10000 are accepted.

    Parameters:
        x: a number, an array, or a sequence of numbers.
        format: the format to round to, or its name.
        rounding: the rounding mode, or its text, such as ``"toward_zero"`` or ``"stochastic(bits=8).saturating()"``; by
            default to nearest even.
        stream: the random bits of a stochastic mode (`BitStream` or `GivenBits`).
        observer: receives the counts of rounding events.
        flags: True to return the IEEE exceptions as well.
        out: an array to write the results to, of their shape and dtype. It may be `x` itself.
        zero: the result for a zero in a scale format, which has no zero: ``"nan"``, as in ml_dtypes, or ``"smallest"``
            for the smallest number, 2^-127 in E8M0, as in CUDA, PyTorch and ONNX; this result is inexact. By default
            None, which returns NaN and accepts every format.

    Returns:
        An array of the shape of x. It is float32 if x is float32 and the format fits into it (`format.fits_float32`),
        otherwise float64. With ``flags=True`` a pair: the results, and a uint8 array that adds up these exceptions,
        with the bits of RISC-V:

        * 1, inexact: the result differs from the value.
        * 2, underflow: the result is tiny, as the `tininess` of the format defines it, and inexact.
        * 4, overflow: the value, rounded as if the exponent had no bounds, is beyond the largest number, whatever it
          becomes. An infinity in a format without infinities overflows as well.
        * 8, division by zero: raised only by operations, as IEEE 754-2019 section 7 defines it.
        * 16, invalid: a negative value in an unsigned format, or a zero that becomes NaN in a scale format. In
          operations it is defined by IEEE 754-2019 section 7, and fma of 0 and inf is invalid whatever is added, as in
          RISC-V. NaN operands raise nothing, since signalling NaN are not modelled.

    Raises:
        ValueError: if x has a NaN and the format does not, or if x is not real.
        ValueError: if the mode is stochastic and `stream` is missing.
        ValueError: if `format` or `rounding` is invalid, or `out` has another shape or dtype.
        ValueError: if `zero` is neither ``"nan"`` nor ``"smallest"``, or is given for a format that has a zero.

    Source: IEEE 754-2019 sections 4.3 and 7.4; IEEE P3109 interim report 4.0 section 4.7.4.

    Examples:
        >>> sf.round([0.1, 465.0, 1e-9], sf.E4M3)
        array([0.1015625,       nan, 0.       ])
        >>> sf.round(0.1, "bf16", sf.toward_positive)
        array(0.10009766)
        >>> sf.round(["17.328679084777833", "1/3", 2**60 + 2**36 + 1], sf.FP32)  # each rounded once
        array([1.73286800e+01, 3.33333343e-01, 1.15292164e+18])
        >>> sf.round([0.5, 465.0, 1e-9], sf.E4M3, flags=True)
        (array([0.5, nan, 0. ]), array([0, 5, 3], dtype=uint8))
    """
    if zero is not None and _wants_smallest(zero, as_format(format)):
        return _round_with_zeros(x, as_format(format), rounding, stream, observer, flags, out)
    try:
        numbers = as_operand(x)
    except ValueError:  # texts, numbers that float64 cannot represent, or invalid operands
        numbers = None
    if numbers is None:
        numbers = exact_operand(x)
        if numbers.dtype.hasobject:
            return operate_exactly(ROUND, [numbers], format, rounding, stream, observer, flags, out, [x])
    x = numbers
    if flags is not False:
        check_flags(flags=flags)
    if flags and device_of(x) is not CPU:
        return on_cpu_alone(
            lambda xs: round(xs[0], format, rounding, stream=stream, observer=observer, flags=True), [x], out
        )
    arguments: tuple[Any, ...] = format, rounding, x.dtype.type
    try:
        target, plan = _target_and_plan(*arguments, device_of(x))
    except TypeError:  # an unhashable value is not a format or a rounding; the uncached function raises the ValueError
        target, plan = _target_and_plan.__wrapped__(*arguments, CPU)
    if format is not target.format or stream is not None or observer is not None:
        target = target.with_call_options(format, stream, observer)
    if out is not None:
        check_out(out, [x], target.dtype, plan.device)
    draw = take_draw(stream, target.rounding) if target.rounding.mode == "stochastic" else None
    if flags:
        vector = flat(x)
        results = output_array(out, x.shape, (vector,), plan, target, reads_once=False)
        raised = round_flagged(Elements(vector), plan, results, target, draw)
        return copied_to_out(results, out), raised
    return round_vector(flat(x), plan, x.shape, target, draw, out)


def _wants_smallest(zero: Zero, format: Format) -> bool:
    """Return True if zeros become the smallest number of a scale format.

    Raises ValueError if the format has a zero, or if `zero` is invalid.
    """
    if zero not in get_args(Zero):
        raise ValueError(f"zero must be one of {', '.join(map(repr, get_args(Zero)))}; got {zero!r}.")
    if format.has_zero:
        raise ValueError(f"zero={zero!r} is for formats without a zero, such as E8M0; {format} has one. Omit zero=.")
    return zero == "smallest"


@in_usual_environment
def _round_with_zeros(
    x: OperandLike,
    format: Format,
    rounding: RoundingLike,
    stream: Stream | None,
    observer: Observer | None,
    flags: bool,
    out: NDArray[np.floating] | None,
) -> Any:
    """Round to a scale format. Zeros become its smallest number, and are inexact."""
    numbers = exact_operand(x).copy()
    are_zeros = numbers == 0
    numbers[are_zeros] = format.smallest_normal
    if numbers.dtype.hasobject:
        outcome = operate_exactly(ROUND, [numbers], format, rounding, stream, observer, flags, out, [x])
    else:
        options: dict[str, Any] = {"stream": stream, "observer": observer, "flags": flags, "out": out}
        outcome = round(numbers, format, rounding, **options)
    if flags:
        outcome[1][on_device_of(are_zeros, outcome[1])] = INEXACT
    return outcome


@lru_cache(maxsize=512)
@in_usual_environment
def _target_and_plan(format: Any, rounding: Any, carrier: FloatType, device: Device) -> tuple[Target, Plan]:
    """Check the options of a call for values of the dtype `carrier`; return its target and its plan."""
    format, rounding = as_format(format), as_rounding(rounding)
    dtype = carrier_of(format) if carrier is np.float32 else np.float64
    return Target(format, rounding, dtype, operation="round"), plan_for(format, rounding, carrier, device)


def round_array(x: NDArray, target: Target) -> NDArray[np.floating]:
    """Round a float array; nothing is checked."""
    return round_with_draw(x, target, take_draw(target.stream, target.rounding))


def round_with_draw(x: NDArray, target: Target, draw: Draw | None) -> NDArray[np.floating]:
    """Round a float array in a call that already took its draw."""
    return round_vector(flat(x), None, x.shape, target, draw)


def round_vector(
    x: NDArray,
    plan: Plan | None,
    shape: tuple[int, ...],
    target: Target,
    draw: Draw | None,
    out: NDArray[np.floating] | None = None,
) -> NDArray[np.floating]:
    """Round a vector, by the plan if it is known; return an array of `shape`, which is `out` if that is given."""
    if plan is None:
        carrier: FloatType = x.dtype.type
        plan = plan_for(target.format, target.rounding, carrier, device_of(x))
    if out is None:
        is_small = plan.device is CPU and x.size < LEAST_ALIGNED
        results = np.empty(shape, target.dtype) if is_small else empty(shape, target.dtype, plan.device)
    else:
        results = output_array(out, shape, (x,), plan, target, reads_once=True)
        if results is out and draw is None and is_in_place(out, x):
            return round_in_place(x, plan, out)
    alone = draw is None and target.observer is None and plan.has_nan
    if alone and (x.size <= BLOCK or is_one_piece(Elements(x), x.size)):
        # round_planned would do the same and take longer.
        plan.loop(x, NO_WORDS, results.reshape(-1), plan.numbers)
    elif target.observer is not None and is_one_block(plan, x.size, draw):
        round_and_count(Elements(x), plan, results.reshape(-1), target.observer, target.operation)
    else:
        round_planned(Elements(x), plan, results, target, draw)
    return results if out is None else copied_to_out(results, out)


def round_observed(
    x: NDArray,
    plan: Plan,
    shape: tuple[int, ...],
    dtype: FloatType,
    observer: Observer,
    operation: str,
    sum_operands: SumOperands | None = None,
) -> NDArray[np.floating]:
    """Round a vector of one block for an observer, without random words; return an array of `shape`."""
    is_small = plan.device is CPU and x.size < LEAST_ALIGNED
    results = np.empty(shape, dtype) if is_small else empty(shape, dtype, plan.device)
    round_and_count(Elements(x), plan, results.reshape(-1), observer, operation, sum_operands)
    return results


def count_without_rounding(x: NDArray, plan: Plan, target: Target, observer: Observer, operation: str) -> bool:
    """Pass the events of a rounding to an observer, for numbers of the format of the target, which it does not change.

    Return False, and do nothing, if the results would have another dtype, or if a NaN would be an error.
    """
    if x.dtype != target.dtype or not plan.has_nan:
        return False
    # The order of elements is of no account: a transposed matrix is not copied.
    vector = flat(x.T if x.T.flags.c_contiguous else x)
    if is_one_block(plan, vector.size, None):
        round_and_count(NumbersOfFormat(vector), plan, vector, observer, operation)
    else:
        target = target._replace(observer=observer, operation=operation)
        round_planned(NumbersOfFormat(vector), plan, vector, target, None)
    return True
