"""The plan of a product: everything that follows only from formats and options, computed once and cached."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.blocks import Block
from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.machines import CPU, Device
from simfloat.arithmetic.operands import FLOAT32, FLOAT64
from simfloat.arithmetic.plan import Plan, plan_for
from simfloat.arithmetic.scaling import AmaxHistory
from simfloat.arithmetic.target import Target
from simfloat.environment import in_usual_environment
from simfloat.formats import FP16, FP32, FP64, Format, Rounding
from simfloat.sums.accumulator import Accumulator, Engine, sums_are_results, takes_stacks
from simfloat.sums.bounds import Bounds, RawBounds, format_bounds
from simfloat.sums.by_operations import needs_operations
from simfloat.sums.operands import OperandBounds, OperandPlan, Problem, raw_bounds_in_format
from simfloat.sums.scales import Scales

#: The casts of the left and the right operand.
Casts = tuple[Cast, Cast]

#: The formats of the operands; None for an operand that is not rounded.
Formats = tuple[Format | None, Format | None]

#: The operations under which observers receive the casts of both operands; None if a cast is not reported.
CastOperations = tuple[str | None, str | None]

#: The histories from which delayed scalings of both operands compute their scales.
Histories = tuple[AmaxHistory | None, AmaxHistory | None]


#: The largest number of terms of a short sum: an engine for all operands is as fast as one chosen by bounds.
MOST_SHORT_TERMS = 64


class PreparedSum(NamedTuple):
    """The engine for operands that are ready, and the data that it needs."""

    device: Device
    engine: Engine
    has_no_signalling_nan: bool  # operands that are converted are known to contain no signalling NaN
    sums_are_results: bool  # the sums are the results, without a further rounding
    draw: Draw | None = None
    scales: Scales | None = None  # the scales that the engine reads
    initial: NDArray | None = None  # the start values of the sums, in the shape of the result
    divisor: float = 1.0  # the factor by which the sums of the engine are too large


@dataclass(frozen=True, eq=False)
class ProductPlan:
    """The common facts of products on one device with the same casts, accumulator and output."""

    device: Device
    casts: Casts | None
    accumulator: Accumulator  # for operands in the formats of the casts
    format: Format  # of results
    rounding: Rounding  # of sums to results
    operands: tuple[OperandPlan, OperandPlan] | None  # the rounding of both operands
    drawing: tuple[Rounding, ...]  # the modes of the result, the steps and the casts; empty if none is stochastic
    engines: tuple[Engine | None, Engine | None]  # for any operands in float64, and in float32; or None
    prepared_sums: tuple[PreparedSum | None, PreparedSum | None]  # of these engines, for unrounded operands
    prepared_after_rounding: tuple[PreparedSum, PreparedSum] | None  # for rounded operands: with and without sNaN
    prepared_if_short: tuple[PreparedSum, PreparedSum] | None  # the same for sums of at most MOST_SHORT_TERMS products
    is_by_bounds: bool  # True if bounds on operands, their formats and dtypes are otherwise enough to choose an engine
    hardware_format: Format | None  # the format in which the device computes if operands are numbers of it
    plans: tuple[Plan, Plan]  # the rounding of sums in float64, and in float32
    result: Format | None  # of the sums
    result_without_nan: Format | None  # the format of the sums, if it differs from the output and has no NaN
    sums_are_results: bool  # True if the sums of engines of compiled loops are the results
    has_scales: bool  # True if a cast scales its operand
    is_scaled: bool  # True if operands have scales, from a cast or for the accumulator
    has_blocks: bool  # True if a cast scales blocks of its operand
    divides_sums: bool  # True if a cast scales its operand as a whole, so that sums are divided at the end
    accumulator_draws: bool  # True if a step is stochastic
    needs_operations: bool  # True if the steps are elementwise operations, because no loop has their mode

    def prepare_unrounded(self, a: NDArray, b: NDArray, depth: int) -> PreparedSum:
        """Return the prepared sum, from zero, for operands without casts.

        It applies if nothing is drawn, and if results have the dtype of the engine and no observer.
        """
        single = a.dtype == FLOAT32, b.dtype == FLOAT32
        if self.is_by_bounds:
            return _prepare_by_bounds(
                self,
                raw_bounds_in_format(self.hardware_format, a),
                raw_bounds_in_format(self.hardware_format, b),
                single,
                depth,
            )
        left, right = OperandBounds(None, None, single[0], a), OperandBounds(None, None, single[1], b)
        return _prepared_sum(
            self, self.engine_by_bounds(left, right, depth), left.has_no_signalling_nan and right.has_no_signalling_nan
        )

    def engine_by_bounds(self, a: OperandBounds, b: OperandBounds, depth: int) -> Engine:
        """Return the engine for sums of `depth` products that start from zero, of operands without scales.

        Raises ValueError for operands that the accumulator rejects.
        """
        if self.is_by_bounds:
            return _engine_by_bounds(self, a.bounds, b.bounds, (a.is_float32, b.is_float32), depth)
        return self.accumulator.engine(Problem(a, b, depth, self.format, self.rounding))


@lru_cache(maxsize=4096)
def _prepare_by_bounds(
    plan: ProductPlan, a: RawBounds, b: RawBounds, single: tuple[bool, bool], depth: int
) -> PreparedSum:
    """Return the prepared sum for unrounded operands with these bounds."""
    return _prepared_sum(plan, _engine_by_bounds(plan, a, b, single, depth), a[-1] and b[-1])


def _prepared_sum(plan: ProductPlan, engine: Engine, has_no_signalling_nan: bool) -> PreparedSum:
    return PreparedSum(plan.device, engine, has_no_signalling_nan, plan.sums_are_results and takes_stacks(engine))


@lru_cache(maxsize=4096)
def _engine_by_bounds(plan: ProductPlan, a: RawBounds, b: RawBounds, single: tuple[bool, bool], depth: int) -> Engine:
    """Return the engine for operands with these bounds; `single` is True for float32 operands."""
    left, right = (one.format for one in plan.operands) if plan.operands else (None, None)
    x, y = OperandBounds(Bounds._make(a), left, single[0]), OperandBounds(Bounds._make(b), right, single[1])
    return plan.accumulator.engine(Problem(x, y, depth, plan.format, plan.rounding, device=plan.device))


@lru_cache(maxsize=1024)
@in_usual_environment
def product_plan(
    accumulator: Accumulator, casts: Casts | None, format: Format, rounding: Rounding, device: Device
) -> ProductPlan:
    """Return the plan of products in this format and mode; ValueError if the accumulator rejects the operands."""
    formats: Formats = (None, None) if casts is None else (casts[0].format, casts[1].format)
    accumulator = accumulator.for_inputs(*formats)
    scales = [cast.scale for cast in casts or () if cast.scale is not None]
    modes = (rounding, *accumulator.roundings, *(cast.rounding for cast in casts or ()))
    draws = any(mode.is_stochastic for mode in modes)
    by_operations = needs_operations(accumulator)
    engines: list[Engine | None] = [None, None]
    if not by_operations:
        engines = [_engine_for_all(accumulator, formats, array_format) for array_format in (FP64, FP32)]
    operands = None
    if casts is not None:
        # Bounds of operands are computed before the rounding only if they decide something. If the formats decide the
        # engine, or a matrix unit depends only on formats, that would be wasted.
        looks = engines[0] is None and not accumulator.is_matrix_unit
        operands = _operand_plan(casts[0], looks, device), _operand_plan(casts[1], looks, device)
    # The sums of such engines may be the results themselves, which are returned without a further rounding.
    may_be_direct = device is CPU and not draws and any(one is None or takes_stacks(one) for one in engines)
    keeps = may_be_direct and sums_are_results(accumulator.result, format, rounding)
    works = [PreparedSum(device, one, False, keeps and takes_stacks(one)) if one else None for one in engines]
    rounded_works = short_works = None
    if casts is not None and engines[0] is not None:
        rounded_works = _prepared_pair(device, engines[0], keeps)
    elif casts is not None and accumulator.result is not None and device is CPU and not by_operations:
        short = _short_engine(accumulator, casts, format, rounding)
        short_works = None if short is None else _prepared_pair(device, short, keeps)
    return ProductPlan(
        device,
        casts,
        accumulator,
        format,
        rounding,
        operands,
        drawing=modes if draws else (),
        engines=(engines[0], engines[1]),
        prepared_sums=(works[0], works[1]),
        prepared_after_rounding=rounded_works,
        prepared_if_short=short_works,
        is_by_bounds=accumulator.result is not None and not accumulator.is_matrix_unit,
        hardware_format=FP16 if accumulator.result == FP16 and device.loops.processor.COMPUTES_FP16 else None,
        plans=(plan_for(format, rounding, np.float64, device), plan_for(format, rounding, np.float32, device)),
        result=(result := accumulator.result),
        result_without_nan=None if result is None or result is format or result.has_nan else result,
        sums_are_results=keeps,
        has_scales=bool(scales),
        is_scaled=bool(scales) or accumulator.scales is not None,
        has_blocks=any(isinstance(scale, Block) for scale in scales),
        divides_sums=any(scale.is_whole for scale in scales),
        accumulator_draws=any(mode.is_stochastic for mode in accumulator.roundings),
        needs_operations=by_operations,
    )


def _engine_for_all(accumulator: Accumulator, formats: Formats, array_format: Format) -> Engine | None:
    """Return the engine for any operands in these formats, or in arrays of `array_format`, if there is one."""
    engine = (
        accumulator.engine_for_all(formats[0] or array_format, formats[1] or array_format)
        if not accumulator.scales
        else None
    )
    # Operands without a cast that need conversion are scanned for signalling NaN anyway, which gives their bounds; so
    # an engine for all operands is not needed.
    return engine if formats[0] or (engine and (engine.carrier is np.float32) == (array_format == FP32)) else None


def _prepared_pair(device: Device, engine: Engine, sums_are_results: bool) -> tuple[PreparedSum, PreparedSum]:
    """Return prepared sums for rounded operands that may contain a signalling NaN, and for others."""
    is_final = sums_are_results and takes_stacks(engine)
    return PreparedSum(device, engine, False, is_final), PreparedSum(device, engine, True, is_final)


def _short_engine(accumulator: Accumulator, casts: Casts, format: Format, rounding: Rounding) -> Engine | None:
    """Return the engine for short sums of any numbers of the formats of the casts, if there is one."""
    if accumulator.is_matrix_unit or accumulator.scales or any(cast.scale is not None for cast in casts):
        return None
    left, right = (OperandBounds(format_bounds(cast.format), cast.format, False) for cast in casts)
    try:
        return accumulator.engine(Problem(left, right, MOST_SHORT_TERMS, format, rounding))
    except ValueError:  # some operands may still be accepted
        return None


def _operand_plan(cast: Cast, needs_bounds: bool, device: Device) -> OperandPlan:
    return OperandPlan(
        cast, cast.targets_on(device), (cast.is_identity_on(FLOAT64), cast.is_identity_on(FLOAT32)), needs_bounds
    )


class Options(NamedTuple):
    """The options of a product: its plan, and the options of one call; pairs are for the left and right operand."""

    plan: ProductPlan
    target: Target
    cast_operations: CastOperations = ("cast_input", "cast_input")
    histories: Histories = (None, None)
    already_in_format: tuple[bool, bool] = (False, False)  # True if a cast is known not to change its operand

    @property
    def accumulator(self) -> Accumulator:
        """The accumulator for operands in the formats of the casts."""
        return self.plan.accumulator
