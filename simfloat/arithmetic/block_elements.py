"""The elements and the scales of an array cut into blocks, by each family of scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic._round import round_array, round_with_draw
from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.machines import is_on_gpu
from simfloat.arithmetic.operations import compute_with_draw
from simfloat.arithmetic.scaling import LARGEST, largest_magnitude, scale_quotients
from simfloat.arithmetic.target import Target, result_dtype
from simfloat.formats import E4M3, E8M0, Format, nearest_even


class Blocks(NamedTuple):
    """How an array is cut: into runs of `along` elements of an axis, of as many as `across` neighbours on `other`.

    Short last blocks are blocks, too. Scales are found for each block, and are laid out for each run.
    """

    along: int
    axis: int  # counted from the first
    across: int = 1
    across_axis: int = 0

    def largest(self, x: NDArray) -> NDArray:
        """The largest magnitude of each block; NaN where there is one."""
        amax = _largest_of_runs(np.abs(x), self.along, self.axis)
        if self.across == 1:
            return amax
        return repeat_for_elements(
            _largest_of_runs(amax, self.across, self.across_axis), self.across, self.across_axis, amax.shape
        )

    def spread(self, scales: NDArray, x: NDArray) -> NDArray:
        """For every element of `x` what its block has."""
        return repeat_for_elements(scales, self.along, self.axis, x.shape)


def repeat_for_elements(scales: NDArray, block: int, axis: int, shape: tuple[int, ...]) -> NDArray:
    """For every element of an array of this shape what its run of `block` elements along the axis has."""
    spread = np.repeat(scales, block, axis)
    return spread[(slice(None),) * axis + (slice(shape[axis]),)]


def _largest_of_runs(magnitudes: NDArray, block: int, axis: int) -> NDArray:
    """The largest of each run along an axis."""
    if is_on_gpu(magnitudes):
        # CuPy's maximum has no reduceat: a short last run is filled up with zeros.
        short = [(0, -length % block if i == axis else 0) for i, length in enumerate(magnitudes.shape)]
        whole = np.pad(magnitudes, short)
        before, length, after = whole.shape[:axis], whole.shape[axis], whole.shape[axis + 1 :]
        return whole.reshape(*before, length // block, block, *after).max(axis + 1)
    return np.maximum.reduceat(magnitudes, np.arange(0, magnitudes.shape[axis], block), axis)


ScaleRule = Callable[[NDArray[np.float64], Format], NDArray[np.integer]]


def scaled_by_powers(
    x: NDArray, blocks: Blocks, target: Target, rule: ScaleRule, draw: Draw | None
) -> tuple[NDArray, NDArray]:
    """Elements x / X rounded once, and the scales X, powers of two or NaN."""
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        amax = blocks.largest(x).astype(np.float64)
        exponents = np.maximum(np.where(amax == 0, E8M0.emin, rule(amax, target.format)), E8M0.emin)
    usable = np.isfinite(amax) & (exponents <= E8M0.emax)
    exponents = np.where(usable, exponents, 0)
    reciprocals = blocks.spread(np.ldexp(np.ones_like(x, order="C", shape=1), -exponents), x)
    sound = replace_unusable(x, usable, target.format, blocks)
    elements = compute_with_draw("multiply", [sound, reciprocals], target, draw)
    return elements, np.where(usable, np.ldexp(1.0, exponents), np.nan).astype(result_dtype([x], E8M0))


def scaled_in_two_levels(
    x: NDArray, blocks: Blocks, target: Target, draw: Draw | None
) -> tuple[NDArray, NDArray, float]:
    """Elements, E4M3 scales of blocks, and a scale of all; every operation is one of float32."""
    one, most, most_scale = np.float32(1), np.float32(target.format.max), np.float32(E4M3.max)
    with np.errstate(all="ignore"):
        single = x.astype(np.float32)
        amax = blocks.largest(single)
        usable = np.isfinite(amax)
        greatest = largest_magnitude(np.where(usable, amax, np.float32(0)))
        tensor_scale = scale_quotients(float(most_scale * most), greatest) if greatest else one
        reciprocal = np.minimum(one / tensor_scale, LARGEST)
        # TransformerEngine multiplies by the float32 1 / 6 here: one scale in some thousands is then another one.
        exact_scales = np.clip(amax * (tensor_scale / most), -most_scale, most_scale)
        scales = np.where(usable, round_array(exact_scales, Target(E4M3, nearest_even, np.float32)), np.float32(np.nan))
        factors = np.minimum(one / (scales * reciprocal), LARGEST)
        sound = replace_unusable(single, usable, target.format, blocks)
        # What lies beyond the largest number becomes it where it is rounded, so that it counts as an overflow.
        scaled = np.clip(sound * blocks.spread(np.where(usable, factors, one), x), -LARGEST, LARGEST)
    elements = round_with_draw(scaled, target, draw)
    return elements, scales.astype(result_dtype([x], E4M3)), float(tensor_scale)


def scaled_by_quotients(x: NDArray, blocks: Blocks, target: Target, draw: Draw | None) -> tuple[NDArray, NDArray]:
    """Elements x * s rounded once, and the scales s = max / amax of blocks, float32 numbers."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        amax = blocks.largest(x).astype(np.float32)
    usable = np.isfinite(amax) & (amax > 0)
    scales = np.where(usable, scale_quotients(target.format.max, amax), np.float32(1))
    return compute_with_draw("multiply", [x, blocks.spread(scales, x)], target, draw), scales


def replace_unusable(x: NDArray, usable: NDArray, format: Format, blocks: Blocks) -> NDArray:
    """`x` with the elements of blocks that have no scale replaced."""
    if usable.all():
        return x
    substitute = x.dtype.type(np.nan if format.has_nan else 0.0)
    return np.where(blocks.spread(usable, x), x, substitute)


def _floor(amax: NDArray, format: Format) -> NDArray:
    return np.frexp(amax)[1] - 1 - format.emax


def _ceil(amax: NDArray, format: Format) -> NDArray:
    fraction, exponent = np.frexp(amax)  # the fraction of a power of two is 0.5
    return exponent - (fraction == 0.5) - format.emax


def _rceil(amax: NDArray, format: Format) -> NDArray:
    fraction, exponent = np.frexp(amax)
    most_fraction, most_exponent = np.frexp(format.max)
    # The quotient of the fractions lies between 1/2 and 2.
    return exponent - most_exponent + (fraction > most_fraction)


def _even(amax: NDArray, format: Format) -> NDArray:
    fraction, exponent = np.frexp(amax)
    units = 2.0**format.precision
    return exponent - 1 + (np.rint(fraction * units) == units) - format.emax


#: The exponent of a block's scale, by name; functions of the blocks' largest magnitudes and the element format.
RULES: dict[str, ScaleRule] = {"floor": _floor, "ceil": _ceil, "rceil": _rceil, "even": _even}
