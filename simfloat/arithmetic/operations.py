"""One operation, one rounding: the exact real result is rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.bit_stream import NO_WORDS, Draw, Stream, take_draw
from simfloat.arithmetic.catalog import Operation
from simfloat.arithmetic.exact_operations import operate_exactly
from simfloat.arithmetic.flags import Flags, on_cpu_alone, round_flagged
from simfloat.arithmetic.machines import CPU, Device, device_of
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import (
    OperandLike,
    as_operand,
    broadcast_vectors,
    common_type_and_device,
    exact_operand,
)
from simfloat.arithmetic.plan import is_one_piece, round_planned
from simfloat.arithmetic.results import check_out, copied_to_out, output_array
from simfloat.arithmetic.sources import Route, route_of
from simfloat.arithmetic.target import Target, carrier_of, check_inexact, check_precision
from simfloat.checks import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64, as_format, nearest_even
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.kernels.events import wants_optional_counts


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
    """A public operation, as users call it: its results, or a pair of them and their flags."""
    try:
        arrays = list(map(as_operand, operands, operation.operands))
    except ValueError:  # texts, numbers that float64 lacks, or none at all
        arrays = []
    if not arrays:
        arrays = list(map(exact_operand, operands, operation.operands))
        if any(x.dtype == object for x in arrays):
            return operate_exactly(operation.name, arrays, format, rounding, stream, observer, flags, out)
    if flags is not False:
        check_flags(flags=flags)
    if flags and device_of(*arrays) is not CPU:

        def operate_on_cpu(copies: list[NDArray]) -> Any:
            return operate(operation, copies, format, rounding, stream, observer, True, None)

        return on_cpu_alone(operate_on_cpu, arrays, out)
    try:
        target, route = _target_and_route(operation.name, format, rounding, *common_type_and_device(arrays))
    except TypeError:  # what cannot be kept in a cache is no format or no rounding
        target, route = _target_and_route.__wrapped__(operation.name, format, rounding, False, CPU)
    if format is not target.format or stream is not None or observer is not None:
        target = target.with_call_options(format, stream, observer)
    if out is not None:
        check_out(out, arrays, target.dtype, route.plan.device)
    draw = take_draw(stream, target.rounding) if target.rounding.mode == "stochastic" else None
    if flags:
        return _results_and_flags(route, arrays, target, draw, out)
    return _compute_results(route, arrays, target, draw, out)


def compute(operation: str, arrays: list[NDArray], target: Target) -> NDArray[np.floating]:
    """An operation on float arrays; nothing is checked but the shapes. The observer receives it by this name."""
    if target.observer is not None and target.operation != operation:
        target = target._replace(operation=operation)
    draw = take_draw(target.stream, target.rounding) if target.rounding.mode == "stochastic" else None
    return _compute_results(_route(operation, arrays, target), arrays, target, draw)


def compute_with_draw(operation: str, arrays: list[NDArray], target: Target, draw: Draw | None) -> NDArray[np.floating]:
    """An operation as part of a call whose draw is already taken; the observer receives the target's operation."""
    return _compute_results(_route(operation, arrays, target), arrays, target, draw)


@in_usual_environment
def compute_in_thread(operation: str, arrays: list[NDArray], target: Target) -> NDArray[np.floating]:
    """An operation in a deterministic mode, unobserved and by this thread alone, for callers on several threads."""
    route = _route(operation, arrays, target)
    shape, vectors = broadcast_vectors(arrays)
    out = empty(shape, target.dtype, route.plan.device)
    route.source(route, vectors, out.size).round_block(route.plan, 0, out.size, NO_WORDS, out.reshape(-1))
    return out


@in_usual_environment
def results_rounded_to_odd(operation: str, arrays: list[NDArray]) -> NDArray[np.float64]:
    """The exact results rounded to odd in float64, by this thread alone."""
    route = route_of(operation, FP64, nearest_even, False, device_of(*arrays))
    shape, vectors = broadcast_vectors(arrays)
    out = empty(shape, np.float64, route.plan.device)
    route.exact(*vectors, *route.padding, route.sign, out.reshape(-1))
    return out


def _route(operation: str, arrays: list[NDArray], target: Target) -> Route:
    return route_of(operation, target.format, target.rounding, *common_type_and_device(arrays))


def _compute_results(
    route: Route, arrays: list[NDArray], target: Target, draw: Draw | None, out: NDArray[np.floating] | None = None
) -> NDArray[np.floating]:
    """The results of an operation on float arrays, in `out` if that is given."""
    if route.kernel == "power" and (factors := _factors_of_power(*arrays)) is not None:
        route, arrays = route_of("multiply", target.format, target.rounding, *common_type_and_device(factors)), factors
    plan, observer = route.plan, target.observer
    shape, vectors = broadcast_vectors(arrays)
    if out is None:
        results = empty(shape, target.dtype, plan.device)
    else:
        results = output_array(out, shape, vectors, plan, target, route.source.reads_once)
    source = route.source(route, vectors, results.size)
    if draw is None and observer is None and plan.has_nan and is_one_piece(source, results.size):
        # round_planned would do the same, and take longer.
        source.round_block(plan, 0, results.size, NO_WORDS, results.reshape(-1))
        return results if out is None else copied_to_out(results, out)
    if observer is not None and wants_optional_counts(observer):
        check_inexact(target.format, route.operation)
    round_planned(source, plan, results, target, draw)
    return copied_to_out(results, out)


@in_usual_environment
def _factors_of_power(x: NDArray, exponent: NDArray) -> list[NDArray] | None:
    """Two factors whose exact product is x^2, x^3 or x^4, sooner rounded than a power; None for other powers."""
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
    """The results of an operation on float arrays, in `out` if that is given, and their flags."""
    shape, vectors = broadcast_vectors(arrays)
    results = output_array(out, shape, vectors, route.plan, target, reads_once=False)
    flags = round_flagged(route.source(route, vectors, results.size), route.plan, results, target, draw)
    return copied_to_out(results, out), flags


@lru_cache(maxsize=512)
@in_usual_environment
def _target_and_route(operation: str, format: Any, rounding: Any, single: bool, device: Device) -> tuple[Target, Route]:
    """What a call needs beside its operands, checked; `single` if they are all float32."""
    format, rounding = as_format(format), as_rounding(rounding)
    check_precision(format, rounding)
    dtype = carrier_of(format) if single else np.float64
    target = Target(format, rounding, dtype, operation=operation)
    return target, route_of(operation, format, rounding, single, device)
