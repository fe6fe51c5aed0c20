"""The scales of blocks of products, as matmul accepts them, and sums by blocks of scaled operands.

The two scales of a block are removed from its sum before the sum is added to the partial sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.blocks import BlockScaled
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.operations import compute_in_thread, results_rounded_to_odd
from simfloat.arithmetic.target import Target, carrier_of, odd_suffices
from simfloat.environment import in_usual_environment
from simfloat.formats import E8M0, Format, Rounding, nearest_even
from simfloat.sums.accumulator import Accumulator, Engine
from simfloat.sums.blocked import RunLengths, RunsEngine, SumOfSums
from simfloat.sums.bounds import Bounds, bounds_of
from simfloat.sums.by_operations import RemovedScales
from simfloat.sums.exact import fractions_for
from simfloat.sums.operands import BOUNDS_OF_ONES, OperandBounds, Problem, ScaledOperand, first_outside_format
from simfloat.sums.sequential import SequentialSum


class Scales(NamedTuple):
    """The scales of the blocks of both operands along k."""

    a: NDArray  # (..., m, blocks)
    b: NDArray  # (..., blocks, n)
    block: int  # the products of a block; the last block may be short
    divisor: float = 1.0  # the factor by which sums of scaled products are too large
    divide: bool | None = None  # scales divide sums of blocks, or multiply them; None: they multiply the operands


@in_usual_environment
def unpack_blocks(a: Any, b: Any, scales: Any = None) -> tuple[Any, Any, Any]:
    """Return elements and scales of operands, at least one of which is a result of block_quantize; the other has
    ones."""
    if scales is not None:
        raise ValueError("Block-scaled operands have scales already, so scales= cannot be given: pass one of both.")
    blocks = [x.block for x in (a, b) if isinstance(x, BlockScaled)]
    if blocks[0] != blocks[-1]:
        raise ValueError(f"Both operands must have blocks of one size along k; a has {blocks[0]}, b has {blocks[1]}.")
    (x, s, left_divisor), (y, t, right_divisor) = (
        _elements_and_scales(a, "a", -1, blocks[0]),
        _elements_and_scales(b, "b", -2, blocks[0]),
    )
    return x, y, Scales(s, t, blocks[0], left_divisor * right_divisor)


def _elements_and_scales(x: Any, name: str, axis: int, block: int) -> tuple[NDArray, NDArray, float]:
    """Return elements, scales along k, and the scale of the whole tensor."""
    if not isinstance(x, BlockScaled):
        x = as_operand(x, name)
        along = max(x.ndim + axis, 0)
        shape = (*x.shape[:along], -(-x.shape[along] // block), *x.shape[along + 1 :]) if x.ndim else ()
        return x, np.ones_like(x, np.float64, order="C", shape=shape), 1.0
    along = max(x.elements.ndim + axis, 0)
    if x.axis != along:
        raise ValueError(
            f"The blocks of {name} must run along k, its axis {along}; they run along axis {x.axis}: "
            f"block_quantize({name}, ..., axis={axis if x.elements.ndim > 1 else -1})."
        )
    return x.elements, x.scales, x.tensor_scale


@in_usual_environment
def as_scales(scales: Scales | tuple[ArrayLike, ArrayLike], a: NDArray, b: NDArray, accumulator: Accumulator) -> Scales:
    """Check the scales of the blocks of both operands; return them as (..., m, blocks) and (..., blocks, n).

    An accumulator without scales of its own accepts blocks of any length that divides k.
    """
    if not isinstance(scales, Scales):
        scales = _read_scales(scales, a.shape[-1], accumulator)
    elif accumulator.scales and accumulator.scales[0] != scales.block:
        raise ValueError(
            f"{accumulator} takes blocks of {accumulator.scales[0]} products, got blocks of {scales.block}."
        )
    if scales.a.ndim == 1:
        scales = scales._replace(a=scales.a[np.newaxis])
    if scales.b.ndim == 1:
        scales = scales._replace(b=scales.b[:, np.newaxis])
    needed = -(-a.shape[-1] // scales.block)
    expected = (*a.shape[:-1], needed), (*b.shape[:-2], needed, b.shape[-1])
    if (scales.a.shape, scales.b.shape) != expected:
        raise ValueError(
            f"The operands' scales must have shapes {expected[0]} and {expected[1]}, "
            f"one scale for each block of k; got {scales.a.shape} and {scales.b.shape}."
        )
    for name, values in (("a", scales.a), ("b", scales.b)):
        _check_values(name, values, accumulator.scales[1] if accumulator.scales else None)
    return scales


def _read_scales(scales: Any, depth: int, accumulator: Accumulator) -> Scales:
    if not isinstance(scales, tuple | list) or len(scales) != 2:
        raise ValueError(
            "scales must be a pair of arrays, for the blocks of a (..., m, k / block) and of b (..., k / block, n)."
        )
    left, right = as_operand(scales[0], "a's scales"), as_operand(scales[1], "b's scales")
    if accumulator.scales:
        return Scales(left, right, accumulator.scales[0])
    blocks = left.shape[-1] if left.ndim else 0
    return Scales(left, right, max(depth // blocks, 1) if blocks and depth % blocks == 0 else 1)


def _check_values(name: str, values: NDArray, format: Format | None) -> None:
    """Raise ValueError unless scales are numbers of their format that are finite or NaN."""
    infinite = np.isinf(values)
    place = tuple(int(i) for i in np.argwhere(infinite)[0]) if infinite.any() else None
    what = "a finite number or NaN"
    if place is None and format is not None:
        # A unit does not read the sign of a scale.
        place, what = first_outside_format(np.abs(values) if format.signed else values, format), f"an {format} number"
    if place is not None:
        raise ValueError(f"A scale must be {what}, and that of {name}{list(place)} is {float(values[place])!r}.")


def scales_of_blocks(left: ScaledOperand, right: ScaledOperand, accumulator: Accumulator) -> Scales | None:
    """Return the scales that casts gave to blocks of one or both operands; None without blocks.

    The other operand has ones. Raises ValueError for two block sizes, and for blocks that the accumulator does not
    support.
    """
    blocks_of_operands = [operand.blocks for operand in (left, right) if operand.blocks]
    if not blocks_of_operands:
        return None
    first, last = blocks_of_operands[0], blocks_of_operands[-1]
    if first.block != last.block:
        raise ValueError(
            f"Both operands must have blocks of one size along k; a has {first.block}, b has {last.block}."
        )
    for blocks in blocks_of_operands:
        if accumulator.scales and accumulator.scales != (blocks.block, blocks.format):
            block, format = accumulator.scales
            raise ValueError(
                f"{accumulator} takes blocks of {block} products with {format} scales, got blocks of {blocks.block} "
                f"with {blocks.format} scales."
            )
    # FP32 scales are max / amax and divide sums; scales of other formats multiply them. A product has one kind. Powers
    # of two can be used either way.
    divide = first.divide if first.format != E8M0 else last.divide
    values = [_scale_values(operand, axis, first.block, divide) for operand, axis in ((left, -1), (right, -2))]
    return Scales(values[0], values[1], first.block, divide=divide)


def _scale_values(operand: ScaledOperand, axis: int, block: int, divide: bool) -> NDArray:
    """Return the scales of an operand as divisors or as factors of sums."""
    blocks, array = operand.blocks, operand.operand.array
    if blocks is None:
        assert array is not None
        shape = list(array.shape)
        shape[axis] = -(-shape[axis] // block)
        return np.ones_like(array, np.float64, order="C", shape=shape)
    if blocks.divide == divide:
        return blocks.values
    if blocks.format != E8M0:
        raise ValueError(
            f"Sums of blocks cannot be divided by FP32 scales and multiplied with {blocks.format} ones at once: scale "
            "both operands by blocks of one kind."
        )
    return 1.0 / blocks.values.astype(np.float64)


def with_scales(
    x: OperandBounds, y: OperandBounds, scales: Scales | None, accumulator: Accumulator
) -> tuple[OperandBounds, OperandBounds, Scales | None]:
    """Multiply the operands by their scales, unless the accumulator or sums of blocks use the scales."""
    if accumulator.scales and not scales:
        block, format = accumulator.scales
        raise ValueError(
            f"{accumulator} needs scales=(a_scales, b_scales) in {format}, blocks of {block}, or inputs= that are "
            f"scaled by block({block}, {format})."
        )
    if not scales or accumulator.scales:
        return x, y, scales
    # An exact sum of scaled products is an exact sum of products of scaled operands.
    if scales.divide is None or (accumulator.result is None and not scales.divide):
        return scale_operand(x, scales.a, scales.block, -1), scale_operand(y, scales.b, scales.block, -2), None
    return x, y, scales


def scale_operand(operand: OperandBounds, scales: NDArray, block: int, axis: int) -> OperandBounds:
    """Multiply an operand exactly by the scales of its blocks, for accumulators without scales."""
    x = operand.array
    assert x is not None
    factors = np.repeat(scales.astype(np.float64), block, axis)
    factors = factors[..., : x.shape[-1]] if axis == -1 else factors[..., : x.shape[-2], :]
    values, scale = operand.bounds, bounds_of(scales)
    products = values.product_bounds(scale)
    if products.precision > 53 or products.low < -1074 or products.high > 1023:
        raise ValueError(
            f"Operands of {values.precision} bits times scales of {scale.precision} bits, from 2^{products.low} to "
            f"2^{products.high}, are not float64 numbers; use scales that are powers of two near one."
        )
    with np.errstate(invalid="ignore"):
        product = x * factors
    return OperandBounds(None, None, False, product)


def engine_by_blocks(accumulator: Accumulator, problem: Problem, scales: Scales) -> Engine:
    """Return an engine that sums each block from zero, removes its two scales, and rounds and adds the result.

    The format and the mode are those of the accumulator, and blocks are added one after the other. An exact sum is
    rounded only at the end.
    """
    format, divide = accumulator.result, bool(scales.divide)
    if format is None:
        return fractions_for(problem, scales.block)
    mode, blocks = _rounding_of_results(accumulator), -(-problem.depth // scales.block)
    machine, depth = problem.device, min(scales.block, problem.depth)
    # Blocks start from zero: an initial value goes to the outer sum, which adds blocks without their scales.
    inner = accumulator.engine(Problem(problem.a, problem.b, depth, format, device=machine))
    _check_draws(format, mode)
    freeing = _ScaleRemoval("divide" if divide else "multiply", format, mode)
    outer = freeing.total.engine(
        Problem(freeing.results, BOUNDS_OF_ONES, blocks, format, initial=problem.initial, device=machine)
    )
    stages, steps = freeing.total.stages, accumulator.steps(scales.block)
    return RunsEngine(
        RunLengths(scales.block), inner, outer, format, stages, steps, mode.is_stochastic, scale_removal=freeing
    )


def removed_scales(accumulator: Accumulator, scales: Scales) -> RemovedScales:
    """Return the steps that remove the scales from sums of blocks, for sums by operations."""
    assert accumulator.result is not None
    operation = "divide" if scales.divide else "multiply"
    removal = _ScaleRemoval(operation, accumulator.result, _rounding_of_results(accumulator))
    return RemovedScales(scales.block, operation, removal.total)


def _rounding_of_results(accumulator: Accumulator) -> Rounding:
    """Return the mode in which the results of an accumulator are rounded."""
    while isinstance(accumulator, SumOfSums):
        accumulator = accumulator.outer
    return getattr(accumulator, "rounding", None) or nearest_even


class _ScaleRemoval(NamedTuple):
    """Removes scales from sums of blocks, with bounds on the results."""

    operation: str  # divide or multiply
    format: Format
    rounding: Rounding

    @property
    def total(self) -> SequentialSum:
        """The accumulator of the results. A stochastic one also rounds them, because it has the positions of draws."""
        return SequentialSum(
            self.format, rounding=self.rounding, products=self.format if self.rounding.is_stochastic else None
        )

    @property
    def results(self) -> OperandBounds:
        """Bounds on the results."""
        if self.rounding.is_stochastic:
            return OperandBounds(Bounds(53, -1074, -1074, 1024, False), None, False)
        smallest = self.format.emin - self.format.mantissa_bits
        bounds = Bounds(self.format.precision, smallest, smallest, self.format.last_binade + 1, False)
        return OperandBounds(bounds, self.format, self.format.fits_float32)

    def remove_scales(self, sums: NDArray, a: NDArray, b: NDArray) -> NDArray:
        """Return the sums (rows, columns) of a block without its scales: a of the rows, b of the columns."""
        # Scales have at most 24 bits, so float64 can represent their products.
        scales = a.astype(np.float64)[:, np.newaxis] * b.astype(np.float64)
        if not self.rounding.is_stochastic:
            target = Target(self.format, self.rounding, carrier_of(self.format))
            return compute_in_thread(self.operation, [sums, scales], target)
        return results_rounded_to_odd(self.operation, [sums, scales])


def _check_draws(format: Format, rounding: Rounding) -> None:
    """Raise ValueError if a draw would read more bits of a quotient than float64 has."""
    if rounding.is_stochastic and not odd_suffices(format, rounding):
        raise ValueError(
            f"Sums of blocks that are divided by their scales have 53 known bits, too few to round them to {format} "
            f"with {rounding.bits} random bits; use stochastic(bits={max(51 - format.precision, 1)}) at most."
        )
