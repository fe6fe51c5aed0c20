"""Sums of products, from operands to results: round the operands, choose an engine, sum, and round the sums.

On a terminal, long sums are computed in pieces, with a progress bar.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import NO_WORDS, Draw, GivenBits, take_draw
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.operands import FLOAT32
from simfloat.arithmetic.operations import compute_with_draw, round_observed, round_vector
from simfloat.arithmetic.plan import check_no_nan, is_one_block
from simfloat.arithmetic.target import SumObserver, Target, check_precision
from simfloat.sums.accumulator import Accumulator, Around, Engine, Region, takes_stacks
from simfloat.sums.bounds import bounds_of
from simfloat.sums.by_operations import (
    OF_OPERATIONS,
    PLACE_ONLY,
    OperationsEngine,
    fits_float32,
    has_flags,
    least_exponents,
    take_words,
)
from simfloat.sums.exact import Fractions, exact
from simfloat.sums.fused import E8M13
from simfloat.sums.operands import OperandBounds, Problem, ScaledOperand, first_outside_format
from simfloat.sums.plan import MOST_SHORT_TERMS, Options, PreparedSum, ProductPlan
from simfloat.sums.scales import Scales, engine_by_blocks, removed_scales, scales_of_blocks, with_scales
from simfloat.terminal import is_line_visible, status

#: The number of products up to which computing bounds of the operands takes too long.
FEW_PRODUCTS = 1 << 12

#: The number of sums up to which they are rounded in place. In place, loops are not vectorised: 8192 sums took 4 times
#: as long.
MOST_IN_PLACE = 1 << 10

#: For the left and the right operand: the stage of the draw for its cast, and the axis of the sum.
STAGES, DEPTHS = (255, 254), (-1, -2)


def prepare_sum(
    a: NDArray,
    b: NDArray,
    shape: tuple[int, ...],
    depth: int,
    options: Options,
    scales: Scales | None = None,
    initial: NDArray | None = None,
) -> tuple[NDArray, NDArray, PreparedSum]:
    """Round the operands, and choose the engine for sums of `depth` products in this shape. Takes the draw of the call.

    Operands are matrices (..., m, k) and (..., k, n) if a cast scales blocks of them. Otherwise they may have any
    shape.
    """
    plan, target, _, _, settled = options
    machine = plan.device
    if machine is not CPU:  # a single number is transferred to the device of the other operand
        a, b = machine.to_device(a), machine.to_device(b)
    if plan.has_scales:
        _check_scaled(options, scales, initial)
    if plan.needs_operations or (isinstance(target.stream, GivenBits) and plan.accumulator_draws):
        return prepare_by_operations(a, b, shape, depth, options, scales, initial)
    # One draw serves the whole call. Casts, steps and the result use different stages, so that none of them needs its
    # own call number.
    draw = take_draw(target.stream, *plan.drawing) if plan.drawing else None
    if scales is not None or initial is not None or plan.is_scaled:
        return _prepare_scaled_or_continued(a, b, shape, depth, options, draw, scales, initial)
    if plan.operands is None:
        work = plan.prepared_sums[a.dtype == b.dtype == FLOAT32] or plan.prepare_unrounded(a, b, depth)
        is_usual = target.observer is None and work.engine.carrier is target.dtype
        if draw is not None or (work.sums_are_results and not is_usual):
            work = PreparedSum(machine, work.engine, work.has_no_signalling_nan, False, draw)
        return a, b, work
    if draw is None:
        (left, right), names, observer = plan.operands, options.cast_operations, target.observer
        works = plan.prepared_after_rounding
        # Computing bounds of the operands takes too long for a small product. So it uses an engine that is valid for
        # all numbers of the formats of the casts, for this few terms. The product of both sizes over the depth is m k
        # n.
        if works is None and depth <= MOST_SHORT_TERMS and a.size * b.size <= FEW_PRODUCTS * depth:
            works = plan.prepared_if_short
        if works is not None:
            # No bounds are needed, neither for the engine nor to find that a rounding changes nothing.
            left_numbers = left.round(a, settled[0], None, observer, names[0])
            right_numbers = right.round(b, settled[1], None, observer, names[1])
            # Rounding makes NaN quiet. If both operands were rounded (True, 1), they have no signalling NaN, and are
            # converted without suppressing warnings.
            work = works[left_numbers is not a and right_numbers is not b]
            if work.sums_are_results and (observer is not None or work.engine.carrier is not target.dtype):
                work = work._replace(sums_are_results=False)
            return left_numbers, right_numbers, work
        x = left.round_with_bounds(a, settled[0], None, observer, names[0])
        y = right.round_with_bounds(b, settled[1], None, observer, names[1])
    else:
        x, y = _round_operand(a, options, 0, draw), _round_operand(b, options, 1, draw)
    engine = plan.engines[0] or plan.engine_by_bounds(x, y, depth)
    assert x.array is not None and y.array is not None
    is_quiet, is_final = _have_no_signalling_nan(engine, x, y), _sums_are_results(plan, engine, target)
    return x.array, y.array, PreparedSum(machine, engine, is_quiet, is_final, draw)


def _prepare_scaled_or_continued(
    a: NDArray,
    b: NDArray,
    shape: tuple[int, ...],
    depth: int,
    options: Options,
    draw: Draw | None,
    scales: Scales | None,
    initial: NDArray | None,
) -> tuple[NDArray, NDArray, PreparedSum]:
    """Prepare sums of operands with scales, and sums that start from `initial`."""
    plan, target = options.plan, options.target
    machine, accumulator = plan.device, plan.accumulator
    x, y, own_scales, divisor = _scale_operands(a, b, options, draw, scales)
    if divisor != 1.0:
        check_precision(target.format, target.rounding, is_exact=True)  # the quotients are rounded
    initial = None if initial is None else machine.to_device(_broadcast_initial(accumulator, initial, shape))
    engine = _engine_with_scales(options, x, y, depth, own_scales, initial, divisor)
    # Exact sums that float64 cannot represent are divided by the engine.
    divisor = 1.0 if isinstance(engine, Fractions) else divisor
    assert x.array is not None and y.array is not None
    is_quiet, is_final = _have_no_signalling_nan(engine, x, y), _sums_are_results(plan, engine, target)
    work = PreparedSum(machine, engine, is_quiet, is_final and divisor == 1.0, draw, own_scales, initial, divisor)
    return x.array, y.array, work


def _engine_with_scales(
    options: Options,
    x: OperandBounds,
    y: OperandBounds,
    depth: int,
    scales: Scales | None,
    initial: NDArray | None,
    divisor: float,
) -> Engine:
    """Return the engine for operands with scales of blocks, start values and a divisor, all of which may be missing."""
    accumulator, target = options.plan.accumulator, options.target
    factors = (bounds_of(scales.a), bounds_of(scales.b)) if scales and accumulator.scales else None
    addend = None if initial is None else bounds_of(initial)
    problem = Problem(x, y, depth, target.format, target.rounding, factors, addend, divisor)
    if scales and not factors:
        return engine_by_blocks(accumulator, problem, scales)
    return accumulator.engine(problem)


def prepare_by_operations(
    a: NDArray,
    b: NDArray,
    shape: tuple[int, ...],
    depth: int,
    options: Options,
    scales: Scales | None,
    initial: NDArray | None,
    flags: NDArray[np.uint8] | None = None,
) -> tuple[NDArray, NDArray, PreparedSum]:
    """Prepare sums by elementwise operations, which may take the draws of the user, and write their flags.

    Only the steps may use random bits, because the draws of the user have one order.
    """
    plan, target = options.plan, options.target
    others = (plan.rounding, *(cast.rounding for cast in plan.casts or ()))
    draws = plan.accumulator_draws
    if any(rounding.is_stochastic for rounding in others) or (draws and (scales is not None or plan.is_scaled)):
        what = "GivenBits can only supply the draws of the sum itself" if draws else "Only steps can use random bits"
        instead = " and without scales, or use stream=simfloat.BitStream(seed)" if draws else ""
        raise ValueError(f"{what}: pass operands and an output without stochastic rounding{instead}.")
    if draws and not isinstance(target.stream, GivenBits):
        raise ValueError(
            "Sums with flags, and sums in FP64 in other modes than nearest_even, take their draws from "
            "stream=simfloat.GivenBits(integers)."
        )
    x, y, own_scales, divisor = _scale_operands(a, b, options, None, scales)
    if divisor != 1.0:
        check_precision(target.format, target.rounding, is_exact=True)  # the quotients are rounded
    initial = None if initial is None else plan.device.to_device(_broadcast_initial(plan.accumulator, initial, shape))
    quick = None
    if not plan.needs_operations:
        # The accumulator rejects the same operands as in sums by its engine.
        quick = _engine_with_scales(options, x, y, depth, own_scales, initial, divisor)
    if flags is None or draws or own_scales is not None:
        quick = None
    assert x.array is not None and y.array is not None
    words = None
    if draws:
        assert isinstance(target.stream, GivenBits)
        words = take_words(plan.accumulator, math.prod(shape), depth, target.stream)
    least = least_exponents(plan.accumulator, x, y)
    is_single = fits_float32(plan.accumulator) and own_scales is None and not draws and x.in_float32 and y.in_float32
    carrier = np.float32 if is_single else np.float64
    removal = removed_scales(plan.accumulator, own_scales) if own_scales and not plan.accumulator.scales else None
    engine = OperationsEngine(plan.accumulator, words, least, flags, removal, quick, carrier)
    draw = PLACE_ONLY if draws or flags is not None else None
    return x.array, y.array, PreparedSum(plan.device, engine, False, False, draw, own_scales, initial, divisor)


def check_flaggable(options: Options) -> None:
    """Raise ValueError for sums without flags."""
    plan = options.plan
    if plan.accumulator != exact and not has_flags(plan.accumulator):
        raise ValueError(
            f"{plan.accumulator} has no flags, because not all of its steps are rounded operations. Sums with flags "
            f"are {OF_OPERATIONS}; simfloat.round and elementwise operations return the flags of one rounding."
        )
    modes = (plan.rounding, *(cast.rounding for cast in plan.casts or ()))
    stochastic = dict.fromkeys(str(mode) for mode in modes if mode.is_stochastic)
    if stochastic:
        raise ValueError(
            f"flags=True needs deterministic roundings of operands and results, got {', '.join(stochastic)}. Use a "
            "deterministic mode such as simfloat.nearest_even, or compute the sum without flags."
        )


def _sums_are_results(plan: ProductPlan, engine: Engine, target: Target) -> bool:
    """Return True if the sums of the engine are the results, without a further rounding."""
    if not plan.sums_are_results or target.observer is not None:
        return False
    return engine.carrier is target.dtype and takes_stacks(engine)


def _have_no_signalling_nan(engine: Engine, x: OperandBounds, y: OperandBounds) -> bool:
    """Return True if operands are converted and are known to contain no signalling NaN."""
    # A chained comparison: if all three are equal, operands have the dtype of the engine already, and nothing is
    # converted.
    is_converted = not x.is_float32 == y.is_float32 == (engine.carrier is np.float32)
    return is_converted and x.has_no_signalling_nan and y.has_no_signalling_nan


def _round_operand(x: NDArray, options: Options, side: int, draw: Draw | None) -> OperandBounds:
    """Round the left (0) or right (1) operand if there is a cast for it."""
    plans, name = options.plan.operands, options.cast_operations[side]
    if plans is None:
        return OperandBounds(None, None, x.dtype == FLOAT32, x)
    plan = plans[side]
    own_draw = draw._replace(stage=STAGES[side]) if draw and plan.cast.rounding.is_stochastic else None
    return plan.round_with_bounds(x, options.already_in_format[side], own_draw, options.target.observer, name)


def _scale_operands(
    a: NDArray, b: NDArray, options: Options, draw: Draw | None, scales: Scales | None
) -> tuple[OperandBounds, OperandBounds, Scales | None, float]:
    """Round both operands; return them, the scales of their blocks, and the factor by which their products are too
    large."""
    plan, divisor = options.plan, 1.0
    if plan.has_scales:
        left, right = _scale_operand(a, options, 0, draw), _scale_operand(b, options, 1, draw)
        x, y, divisor = left.operand, right.operand, left.divisor * right.divisor
        scales = scales_of_blocks(left, right, plan.accumulator)
    else:
        x, y = _round_operand(a, options, 0, draw), _round_operand(b, options, 1, draw)
    if scales or plan.accumulator.scales:
        divisor *= scales.divisor if scales else 1.0
        x, y, scales = with_scales(x, y, scales, plan.accumulator)
    return x, y, scales, divisor


def _scale_operand(x: NDArray, options: Options, side: int, draw: Draw | None) -> ScaledOperand:
    """Scale an operand if its cast does so, and round it."""
    assert options.plan.operands is not None
    plan, name = options.plan.operands[side], options.cast_operations[side]
    if plan.cast.scale is None:
        return ScaledOperand(_round_operand(x, options, side, draw))
    own_draw = draw._replace(stage=STAGES[side]) if draw and plan.cast.rounding.is_stochastic else None
    observer = options.target.observer if name else None
    return plan.scale_and_round(x, DEPTHS[side], own_draw, observer, name, options.histories[side])


def _check_scaled(options: Options, scales: Scales | None, initial: NDArray | None) -> None:
    """Raise ValueError for options that cannot be combined with casts that scale."""
    if scales is not None:
        raise ValueError("The operands have scales already, and inputs= would scale them again: pass only one of them.")
    if not options.plan.divides_sums:
        return
    check_precision(options.target.format, options.target.rounding, is_exact=True)
    if initial is not None:
        raise ValueError(
            "An operand is scaled as a whole, so sums are divided by its scale, and initial= would be divided as well: "
            "add it to the result."
        )


def _broadcast_initial(accumulator: Accumulator, initial: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Broadcast `initial`, C in D = A B + C, to the shape of the result; ValueError if the sums cannot start from
    it."""
    if not accumulator.takes_initial:
        raise ValueError(f"{accumulator} has no partial sum that could start from initial=; add it to the result.")
    if accumulator.result is not None:
        place = first_outside_format(initial, accumulator.result)
        if place is not None:
            truncation = ""
            if accumulator.result == E8M13:
                truncation = (
                    " A tensor core with such sums truncates it: simfloat.round(initial, simfloat.Format(8, 13), "
                    "simfloat.toward_zero)."
                )
            raise ValueError(
                f"initial= must hold numbers of {accumulator.result}, the format of the partial sum of {accumulator}; "
                f"initial{list(place) if place else ''} = {float(initial[place])!r} is not one. Round it first."
                f"{truncation}"
            )
    try:
        return np.broadcast_to(initial, shape)
    except ValueError:
        raise ValueError(
            f"initial= must broadcast to the result without enlarging it: it has shape {initial.shape}, the result "
            f"{shape}."
        ) from None


def round_sums(
    sums: NDArray, shape: tuple[int, ...], options: Options, work: PreparedSum, a: NDArray, b: NDArray
) -> NDArray[np.floating]:
    """Round the sums of products of `a` and `b`, in C order, to the output format; return an array of `shape`.

    It may be the array of the sums.
    """
    if work.sums_are_results:
        return sums if sums.shape == shape else sums.reshape(shape)
    plan, target, *_ = options
    single = sums.dtype == FLOAT32
    rounding = plan.plans[single]
    if target.observer is not None:
        is_final = work.divisor == 1.0 and plan.result_without_nan is None
        if is_final and is_one_block(rounding, sums.size, work.draw):
            names = target.observer, target.operation
            return round_observed(sums.reshape(-1), rounding, shape, target.dtype, *names, ((a, b), plan.result))
        target = target._replace(observer=SumObserver(target.observer, (a, b), plan.result))
    if plan.result_without_nan is not None:
        check_no_nan(sums.reshape(shape), plan.result_without_nan)
    # Scales of whole operands are divided out before the sums are rounded to `output`: there is one rounding in all.
    if work.divisor != 1.0:
        return compute_with_draw("divide", [sums.reshape(-1), np.array([work.divisor])], target, work.draw).reshape(
            shape
        )
    if (
        sums.size <= MOST_IN_PLACE
        and single is (target.dtype is np.float32)
        and work.draw is None
        and target.observer is None
    ):
        if rounding.has_nan:
            # A new array would take longer than the arithmetic.
            vector = sums.reshape(-1)
            rounding.loop(vector, NO_WORDS, vector, rounding.numbers)
            return sums if sums.shape == shape else sums.reshape(shape)
    return round_vector(sums.reshape(-1), rounding, shape, target, work.draw)


#: Estimated work in nanoseconds above which a sum may take seconds; engine costs are rough.
LEAST_WATCHED_WORK = 1e8

#: Work of a piece in nanoseconds: large compared with the fixed cost of a call, such as a conversion of b.
PIECE_WORK = 1e8

#: Nanoseconds per product of a single sum, in which steps wait for one another.
SINGLE_SUM_COST = 5.0

#: Seconds between two updates of the bar, and its length in characters.
REFRESH_SECONDS, BAR_WIDTH = 0.25, 20


def with_progress_bar(
    sum_up: Callable[[PreparedSum], NDArray], work: PreparedSum, count: int, depth: int, accumulator: Accumulator
) -> NDArray:
    """Return `sum_up(work)`, `count` sums of `depth` products, with a progress bar if it takes long and a terminal
    shows it.

    Sums in pieces have the same bits. A piece consists of several rows, or is a part of a single row if its sum
    resumes.
    """
    engine = work.engine
    if (
        max(count * engine.cost, SINGLE_SUM_COST) * depth < LEAST_WATCHED_WORK
        or work.device is not CPU
        or not is_line_visible()
    ):
        return sum_up(work)
    if isinstance(engine, OperationsEngine):  # takes the draws of the user for all its sums at once
        return sum_up(work)
    chunk = accumulator.chunk if accumulator.resumes and work.scales is None else None
    metered = Metered(chunk or 0)
    total, named = (
        count * depth,
        f"{count:,} sums of {depth:,} products" if count > 1 else f"a sum of {depth:,} products",
    )
    with status(
        lambda: f"simfloat {progress_bar(sum(metered.done) / total, metered.seconds)}: {named}", every=REFRESH_SECONDS
    ):
        return sum_up(work._replace(engine=Around(engine, metered.run)))


def progress_bar(share: float, seconds: float) -> str:
    """Return a progress bar for a share that is done after `seconds`."""
    full = int(share * BAR_WIDTH)
    left = f", {seconds / share - seconds:.0f} s left" if share else ""
    return f"[{'#' * full}{'-' * (BAR_WIDTH - full)}] {share:.0%}, {seconds:.0f} s{left}"


@dataclass(eq=False)
class Metered:
    """Sums in pieces by an engine, and counts the products of the finished pieces."""

    chunk: int  # the products of a step of the partial sum if it resumes, otherwise 0
    done: list[int] = field(default_factory=list)  # threads append to it
    begun: float | None = None
    is_stopped: bool = False

    @property
    def seconds(self) -> float:
        """Seconds since its first piece began."""
        return 0.0 if self.begun is None else time.monotonic() - self.begun

    def run(self, engine: Engine, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        self.begun = self.begun or time.monotonic()
        try:
            for piece in self._pieces(engine.cost, a, b, out, region):
                if self.is_stopped:  # an error or Ctrl-C in another thread
                    return
                engine.run(*piece)
                self.done.append(piece[0].size * out.shape[1])
        except BaseException:
            self.is_stopped = True
            raise

    def _pieces(
        self, cost: float, a: NDArray, b: NDArray, out: NDArray, region: Region
    ) -> Iterator[tuple[NDArray, NDArray, NDArray, Region]]:
        """Generate the arguments of the engine's calls that compute these sums."""
        rows, depth = a.shape
        if len(b) != depth:  # a stack of matrices
            yield a, b, out, region
        elif rows > 1:
            height = max(int(PIECE_WORK / max(out.shape[1] * depth * cost, 1.0)), 1)
            for first in range(0, rows, height):
                part = slice(first, min(first + height, rows))
                scales = region.scales and (region.scales[0][part], region.scales[1])
                start = region.first + first * region.row_step
                yield a[part], b, out[part], region._replace(first=start, scales=scales)
        else:
            steps = max(int(PIECE_WORK / max(out.shape[1] * cost, SINGLE_SUM_COST)), 1)
            steps = math.ceil(steps / self.chunk) * self.chunk if self.chunk else max(depth, 1)
            for first in range(0, depth, steps):
                yield a[:, first : first + steps], b[first : first + steps], out, region
