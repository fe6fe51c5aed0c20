"""What all sums of products do: round the operands, sum them with an engine, round the sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate._exact import Fractions
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.bounds import bounds_of
from simfloat.accumulate.engine import Engine, is_direct, keeps_sums
from simfloat.accumulate.operand import take
from simfloat.accumulate.operand_bounds import OperandBounds, Problem, operand_bounds
from simfloat.accumulate.options import Options
from simfloat.accumulate.rescaled import engine_by_blocks
from simfloat.accumulate.scales import Scales, scales_of_blocks, with_scales
from simfloat.accumulate.start import start_for
from simfloat.arithmetic._round import round_vector
from simfloat.arithmetic.bit_stream import Draw, take_draw
from simfloat.arithmetic.machines import CPU, machine_of
from simfloat.arithmetic.nan_causes import OfSum
from simfloat.arithmetic.operations import compute_drawn
from simfloat.arithmetic.plan import check_no_nan
from simfloat.arithmetic.target import check_precision


class Work(NamedTuple):
    """Operands that are ready to be summed."""

    engine: Engine
    a: NDArray
    b: NDArray
    draw: Draw | None
    scales: Scales | None  # those that the engine takes
    start: NDArray | None  # what the sums start from, in the shape of the result
    quiet: bool  # there is no signalling NaN among the operands for certain
    divisor: float  # by which the engine's sums are too large
    is_final: bool  # the sums are the results as they are


def prepare(
    a: NDArray,
    b: NDArray,
    shape: tuple[int, ...],
    depth: int,
    options: Options,
    scales: Scales | None = None,
    initial: NDArray | None = None,
) -> Work:
    """Take the call's draw, round the operands, and choose the engine for sums of `depth` products in this shape.

    Operands are matrices (..., m, k) and (..., k, n) if a cast scales blocks of them, else of any shape.
    """
    machine = machine_of(a, b)
    if machine is not CPU:  # a single number goes to where the other operand is
        a, b = machine.arrays.asarray(a), machine.arrays.asarray(b)
    target = options.target
    x, y, draw, accumulator, scales, divisor = _take_both(a, b, options, scales, initial)
    own = None
    if scales or accumulator.scales:
        divisor *= scales.divisor if scales else 1.0
        x, y, own = with_scales(x, y, scales, accumulator)
    if divisor != 1.0:
        check_precision(target.format, target.rounding)  # of what is divided
    start = None if initial is None else machine.arrays.asarray(start_for(accumulator, initial, shape))
    factors = (bounds_of(own.a), bounds_of(own.b)) if own and accumulator.scales else None
    addend = None if start is None else bounds_of(start)
    problem = Problem(x, y, depth, target.format, target.rounding, factors, addend, divisor)
    engine = engine_by_blocks(accumulator, problem, own) if own and not factors else accumulator.engine(problem)
    # Exact sums that float64 does not hold are divided where they are made.
    divisor = 1.0 if isinstance(engine, Fractions) else divisor
    assert x.array is not None and y.array is not None
    is_final = draw is None and target.observer is None and divisor == 1.0 and machine is CPU and is_direct(engine)
    is_final &= engine.carrier is target.dtype and keeps_sums(accumulator.result, target.format, target.rounding)
    return Work(engine, x.array, y.array, draw, own, start, x.are_quiet and y.are_quiet, divisor, is_final)


class _Both(NamedTuple):
    """Both operands in their formats."""

    x: OperandBounds
    y: OperandBounds
    draw: Draw | None
    accumulator: Accumulator  # for operands of these formats
    scales: Scales | None  # of their blocks
    divisor: float  # by which their products are too large


def _take_both(a: NDArray, b: NDArray, options: Options, scales: Scales | None, initial: NDArray | None) -> _Both:
    """Take the call's draw, and the operands to their formats."""
    inputs, accumulator, target, *_ = options
    if not inputs:
        draw = take_draw(target.stream, target.rounding, *accumulator.roundings)
        return _Both(operand_bounds(a), operand_bounds(b), draw, accumulator.for_inputs(None, None), scales, 1.0)
    has_scales = options.has_scales
    if has_scales:
        _check_scaled(options, scales, initial)
    one, other = inputs
    draw = take_draw(target.stream, target.rounding, *accumulator.roundings, one.rounding, other.rounding)
    accumulator = accumulator.for_inputs(one.format, other.format)
    looks = accumulator.reads_numbers
    left, right = take(a, options, 0, draw, looks), take(b, options, 1, draw, looks)
    if has_scales:
        scales = scales_of_blocks(left, right, accumulator)
    return _Both(left.known, right.known, draw, accumulator, scales, left.divisor * right.divisor)


def _check_scaled(options: Options, scales: Scales | None, initial: NDArray | None) -> None:
    """Refuse what casts that scale cannot be combined with."""
    if scales is not None:
        raise ValueError("Operands bring scales of their own, and inputs= would scale them again: pass one of both.")
    if not options.divides_sums:
        return
    check_precision(options.target.format, options.target.rounding)
    if initial is not None:
        raise ValueError(
            "Sums that start from initial= would be divided with it, for an operand is scaled as a whole: add it to "
            "the result."
        )


def finish(sums: NDArray, shape: tuple[int, ...], options: Options, work: Work) -> NDArray[np.floating]:
    """The sums rounded once to the output format, in an array of `shape`."""
    if work.is_final:
        return sums.reshape(shape)
    target, result = options.target, options.accumulator.result
    if target.observer is not None:
        target = target._replace(observer=OfSum(target.observer, (work.a, work.b), result))
    if result is not None and result is not target.format and not result.has_nan:
        check_no_nan(sums.reshape(shape), result)
    if work.divisor != 1.0:
        return compute_drawn("divide", [sums, np.array([work.divisor])], target, work.draw).reshape(shape)
    return round_vector(sums, None, shape, target, work.draw)
