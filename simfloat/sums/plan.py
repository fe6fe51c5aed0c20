"""The plan of a product: what follows from formats and options alone is found once, and kept."""

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
from simfloat.sums.operands import OperandBounds, OperandPlan, Problem, raw_bounds_in_format
from simfloat.sums.scales import Scales

#: Of the left and the right operand: how they are rounded.
Casts = tuple[Cast, Cast]

#: Their formats; None for operands that are taken as they are.
Formats = tuple[Format | None, Format | None]

#: The operations as which observers receive the casts of both operands; None: these are not reported.
CastOperations = tuple[str | None, str | None]

#: What the scales of delayed scalings of both operands follow from.
Histories = tuple[AmaxHistory | None, AmaxHistory | None]


#: Terms of sums that are short: an engine for all of them is as quick as one for the bounds of the operands.
MOST_SHORT_TERMS = 64


class PreparedSum(NamedTuple):
    """How operands that are ready are summed."""

    device: Device
    engine: Engine
    has_no_signalling_nan: bool  # operands that are converted have no signalling NaN for certain
    sums_are_results: bool  # the sums are the results as they are
    draw: Draw | None = None
    scales: Scales | None = None  # those that the engine takes
    initial: NDArray | None = None  # what the sums start from, in the shape of the result
    divisor: float = 1.0  # by which the engine's sums are too large


@dataclass(frozen=True, eq=False)
class ProductPlan:
    """All that products of a kind have in common: those on one machine, with the same casts, accumulator and output."""

    device: Device
    casts: Casts | None
    accumulator: Accumulator  # for operands in the formats of the casts
    format: Format  # of results
    rounding: Rounding  # of sums to results
    operands: tuple[OperandPlan, OperandPlan] | None  # how they are rounded
    drawing: tuple[Rounding, ...]  # the modes of the result, the steps and the casts; none, if none of them draws
    engines: tuple[Engine | None, Engine | None]  # for any operands in float64, in float32, where there is one
    prepared_sums: tuple[
        PreparedSum | None, PreparedSum | None
    ]  # of these, for operands as they are and results as below
    prepared_after_rounding: (
        tuple[PreparedSum, PreparedSum] | None
    )  # of operands rounded by casts: which may hold a signalling NaN, or do not
    prepared_if_short: tuple[PreparedSum, PreparedSum] | None  # of such operands in sums of at most SHORT products
    is_by_bounds: bool  # whether else bounds on operands, their formats and their arrays' types are enough to find it
    hardware_format: Format | None  # that the machine computes in, if operands have to be numbers of it for that
    plans: tuple[Plan, Plan]  # by which sums in float64, in float32 are rounded
    result: Format | None  # that sums come in
    sums_are_results: bool  # whether those of direct engines are results as they are
    has_scales: bool  # whether a cast scales its operand
    is_scaled: bool  # whether operands have scales, of a cast or as the accumulator takes them
    has_blocks: bool  # whether one scales blocks of it
    divides_sums: bool  # whether one scales it as a whole, so that sums are divided in the end

    def prepare_unrounded(self, a: NDArray, b: NDArray, depth: int) -> PreparedSum:
        """How such numbers are summed from zero, of operands without casts; where nothing is drawn, and results come
        in arrays of the carrier's type and without an observer.
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
        """The engine for sums of so many products that start from zero, and whose operands have no scales.

        Raises ValueError for operands that the accumulator does not take.
        """
        if self.is_by_bounds:
            return _engine_by_bounds(self, a.bounds, b.bounds, (a.is_float32, b.is_float32), depth)
        return self.accumulator.engine(Problem(a, b, depth, self.format, self.rounding))


@lru_cache(maxsize=4096)
def _prepare_by_bounds(
    plan: ProductPlan, a: RawBounds, b: RawBounds, single: tuple[bool, bool], depth: int
) -> PreparedSum:
    """How operands as they are with such bounds are summed."""
    return _prepared_sum(plan, _engine_by_bounds(plan, a, b, single, depth), a[-1] and b[-1])


def _prepared_sum(plan: ProductPlan, engine: Engine, has_no_signalling_nan: bool) -> PreparedSum:
    return PreparedSum(plan.device, engine, has_no_signalling_nan, plan.sums_are_results and takes_stacks(engine))


@lru_cache(maxsize=4096)
def _engine_by_bounds(plan: ProductPlan, a: RawBounds, b: RawBounds, single: tuple[bool, bool], depth: int) -> Engine:
    """The engine for operands with such bounds; `single` tells which are float32."""
    left, right = (one.format for one in plan.operands) if plan.operands else (None, None)
    x, y = OperandBounds(Bounds._make(a), left, single[0]), OperandBounds(Bounds._make(b), right, single[1])
    return plan.accumulator.engine(Problem(x, y, depth, plan.format, plan.rounding, device=plan.device))


@lru_cache(maxsize=1024)
@in_usual_environment
def product_plan(
    accumulator: Accumulator, casts: Casts | None, format: Format, rounding: Rounding, device: Device
) -> ProductPlan:
    """The plan of products in this format and mode; ValueError where the accumulator does not take such operands."""
    formats: Formats = (None, None) if casts is None else (casts[0].format, casts[1].format)
    accumulator = accumulator.for_inputs(*formats)
    scales = [cast.scale for cast in casts or () if cast.scale is not None]
    modes = (rounding, *accumulator.roundings, *(cast.rounding for cast in casts or ()))
    draws = any(mode.is_stochastic for mode in modes)
    engines = [_engine_for_all(accumulator, formats, array_format) for array_format in (FP64, FP32)]
    operands = None
    if casts is not None:
        # Operands are measured before they are rounded only where that decides something: if the
        # formats decide the engine, or if a unit asks for formats alone, it would be wasted.
        looks = engines[0] is None and not accumulator.is_matrix_unit
        operands = _operand_plan(casts[0], looks, device), _operand_plan(casts[1], looks, device)
    # Sums of such engines may be the results themselves, which are then returned as they are.
    may_be_direct = device is CPU and not draws and any(one is None or takes_stacks(one) for one in engines)
    keeps = may_be_direct and sums_are_results(accumulator.result, format, rounding)
    works = [PreparedSum(device, one, False, keeps and takes_stacks(one)) if one else None for one in engines]
    rounded_works = short_works = None
    if casts is not None and engines[0] is not None:
        rounded_works = _prepared_pair(device, engines[0], keeps)
    elif casts is not None and accumulator.result is not None and device is CPU:
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
        result=accumulator.result,
        sums_are_results=keeps,
        has_scales=bool(scales),
        is_scaled=bool(scales) or accumulator.scales is not None,
        has_blocks=any(isinstance(scale, Block) for scale in scales),
        divides_sums=any(scale.is_whole for scale in scales),
    )


def _engine_for_all(accumulator: Accumulator, formats: Formats, array_format: Format) -> Engine | None:
    """The engine for any operands in these formats, or in arrays of `array_format`, if there is one."""
    engine = (
        accumulator.engine_for_all(formats[0] or array_format, formats[1] or array_format)
        if not accumulator.scales
        else None
    )
    # Operands as they are that have to be converted are looked at, for a signalling NaN: then bounds are at hand.
    return engine if formats[0] or (engine and (engine.carrier is np.float32) == (array_format == FP32)) else None


def _prepared_pair(device: Device, engine: Engine, sums_are_results: bool) -> tuple[PreparedSum, PreparedSum]:
    """How rounded operands are summed that may hold a signalling NaN, and such as do not."""
    is_final = sums_are_results and takes_stacks(engine)
    return PreparedSum(device, engine, False, is_final), PreparedSum(device, engine, True, is_final)


def _short_engine(accumulator: Accumulator, casts: Casts, format: Format, rounding: Rounding) -> Engine | None:
    """The engine for sums of at most SHORT products of any numbers of the casts' formats, if there is one."""
    if accumulator.is_matrix_unit or accumulator.scales or any(cast.scale is not None for cast in casts):
        return None
    left, right = (OperandBounds(format_bounds(cast.format), cast.format, False) for cast in casts)
    try:
        return accumulator.engine(Problem(left, right, MOST_SHORT_TERMS, format, rounding))
    except ValueError:  # some operands may still be taken
        return None


def _operand_plan(cast: Cast, needs_bounds: bool, device: Device) -> OperandPlan:
    return OperandPlan(
        cast, cast.targets_on(device), (cast.is_identity_on(FLOAT64), cast.is_identity_on(FLOAT32)), needs_bounds
    )


class Options(NamedTuple):
    """What a product is asked for: its plan, and what belongs to one call; pairs are of the left and right operand."""

    plan: ProductPlan
    target: Target
    cast_operations: CastOperations = ("cast_input", "cast_input")
    histories: Histories = (None, None)
    already_in_format: tuple[bool, bool] = (False, False)  # whether a cast is known to leave its operand as it is

    @property
    def accumulator(self) -> Accumulator:
        """The accumulator for operands in the formats of the casts."""
        return self.plan.accumulator
