"""The scales of blocks of products, as matmul takes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.accumulate.accumulator import Accumulator, Operand, Scales
from simfloat.accumulate.facts import facts_of
from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.target import Target
from simfloat.formats import Format, nearest_even


def as_scales(
    scales: tuple[ArrayLike, ArrayLike] | None, a: NDArray, b: NDArray, accumulator: Accumulator
) -> Scales | None:
    """The scales of both operands' blocks, checked: (..., m, k / block) and (..., k / block, n).

    An accumulator without scales of its own takes blocks of any length that divides k.
    """
    if scales is None:
        return None
    if not isinstance(scales, tuple | list) or len(scales) != 2:
        raise ValueError("scales is a pair, of the blocks of a (..., m, k / block) and of b (..., k / block, n).")
    left, right = as_operand(scales[0], "a's scales"), as_operand(scales[1], "b's scales")
    depth = a.shape[-1]
    blocks = left.shape[-1] if left.ndim else 0
    if accumulator.scales:
        # Hardware pads the last block with zeros.
        needed = -(-depth // accumulator.scales[0])
    else:
        needed = blocks if blocks and depth % blocks == 0 else depth
    expected = (*a.shape[:-1], needed), (*b.shape[:-2], needed, b.shape[-1])
    if (left.shape, right.shape) != expected:
        raise ValueError(
            f"The operands' scales must have shapes {expected[0]} and {expected[1]}, "
            f"one scale a block of k; got {left.shape} and {right.shape}."
        )
    for name, values in (("a", left), ("b", right)):
        _check(name, values, accumulator.scales[1] if accumulator.scales else None)
    return left, right


def _check(name: str, values: NDArray, format: Format | None) -> None:
    """Scales are finite numbers of their format."""
    wrong, what = ~np.isfinite(values), "a finite number"
    if format is not None and not wrong.any():
        # A scale's sign is not read.
        magnitudes = np.abs(values)
        wrong = round_array(magnitudes, Target(format, nearest_even, np.float64)) != magnitudes
        what = f"an {format} number"
    if wrong.any():
        place = [int(i) for i in np.argwhere(wrong)[0]]
        raise ValueError(
            f"A scale must be {what}, and that of {name}{place} is {float(values[tuple(place)])!r}. A block that "
            "holds NaN or infinity has no scale."
        )


def scaled(operand: Operand, scales: NDArray, axis: int) -> Operand:
    """The operand times the scales of its blocks, exact, for accumulators that know no scales."""
    x = operand.array
    factors = np.repeat(scales.astype(np.float64), x.shape[axis] // max(scales.shape[axis], 1), axis)
    values, scale = operand.facts or facts_of(x), facts_of(scales)
    products = values.times(scale)
    if products.precision > 53 or products.low < -1074 or products.high > 1023:
        raise ValueError(
            f"Operands of {values.precision} bits times scales of {scale.precision} bits, from 2^{products.low} to "
            f"2^{products.high}, are not float64 numbers; use scales that are powers of two near one."
        )
    return Operand(x * factors)
