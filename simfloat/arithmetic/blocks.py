"""Block formats: narrow elements that share a scale, as OCP MX and NVFP4 have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.bit_stream import Stream, check_stream, take_draw
from simfloat.arithmetic.block_elements import (
    RULES,
    Blocks,
    repeat_for_elements,
    scaled_by_powers,
    scaled_in_two_levels,
)
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.own_scales import Rule, check_rule, has_two_levels, scaled_by_rule
from simfloat.arithmetic.scaling import LARGEST
from simfloat.arithmetic.target import Target, result_dtype
from simfloat.checks import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import E4M3, E8M0, Format, as_format, nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding

#: The rule of OCP MX, that of scales that are powers of two unless another one is given.
DEFAULT_RULE = "floor"


@in_usual_environment
@dataclass(frozen=True, eq=False)
class BlockScaled:
    """Numbers as narrow elements and scales: element * scale / tensor_scale.

    Unpacks as two, ``elements, scales = block_quantize(...)``, where there is no tensor scale; else ValueError. Codes
    of either come from :func:`simfloat.encode`.

    Examples:
        >>> x, scales = sf.block_quantize([[100.0, 3.0, 0.01, 7.0]], sf.E2M1, block=2)
        >>> x
        array([[6., 0., 0., 6.]])
        >>> scales
        array([[16.,  1.]])
    """

    elements: NDArray[np.floating]  # numbers of the element format, in the shape of what was quantized
    scales: NDArray[np.floating]  # numbers of the scale format; along `axis` one for each block
    block: int
    axis: int
    tensor_scale: float = 1.0

    def __iter__(self) -> Iterator[NDArray[np.floating]]:
        if self.tensor_scale != 1:
            raise ValueError(
                f"elements * scales are {self.tensor_scale:.6g} times the numbers, the tensor scale: to unpack as two "
                "would lose it. Pass the result as a whole, or use its fields elements, scales and tensor_scale."
            )
        return iter((self.elements, self.scales))

    def values(self) -> NDArray[np.float64]:
        """The numbers that elements and scales stand for; a NaN scale makes its block NaN.

        Exact if `tensor_scale` is 1, else the exact quotient rounded to float64.
        """
        scales = repeat_for_elements(self.scales, self.block, self.axis, self.elements.shape)
        return self.elements.astype(np.float64) * scales / self.tensor_scale


@in_usual_environment
def block_quantize(
    x: ArrayLike,
    format: FormatLike,
    *,
    block: int | None = None,
    scale: FormatLike = E8M0,
    rule: Rule = None,
    axis: int = -1,
    rounding: RoundingLike = nearest_even,
    stream: Stream | None = None,
) -> BlockScaled:
    """The elements, numbers of `format`, and scales, numbers of `scale`, that hardware would store for `x`.

    Each run of `block` elements along `axis` shares a scale; a short last run is a block too. Elements have the shape
    of x, scales have ceil(length / block) along the axis; dtypes are those of :func:`simfloat.round`.

    With E8M0 scales (OCP MX; `block` is 32 unless given) the scale is a power of two X that depends on the block's
    largest magnitude amax, and elements are x / X rounded once, saturating. `rule`, "floor" unless given, says how:

    * ``"floor"``: 2^(floor(log2 amax) - emax), emax being the exponent of the format's largest number (OCP MX);
    * ``"ceil"``: 2^(ceil(log2 amax) - emax);
    * ``"rceil"``: amax / max rounded up to a power of two, so that nothing saturates (cuBLAS);
    * ``"even"``: as floor, for amax rounded to nearest even to the format's precision.

    Below 2^-127, and for a block of zeros, X is 2^-127; above 2^127 it is NaN (microxcaling).

    With E4M3 scales (NVFP4; `block` is 16 unless given) `tensor_scale` is 448 max / amax of the whole array, or 1 for
    zeros; a scale is amax * (tensor_scale / max) rounded to E4M3, and elements are x / (scale * (1 / tensor_scale)),
    as a product with the reciprocal. Every step is a float32 operation, x is rounded to float32 first, and what
    exceeds max, 448 or float32 is clamped.

    With scales in any other format that float32 holds (`block` is 32 unless given) a scale s is amax / max rounded to
    nearest even, inside the format's positive numbers, and elements are x / s rounded once, saturating.

    `rule` may be a function of one's own, for scales of any format, E8M0 and E4M3 too: ``rule(amax, format)`` is given
    a block's largest magnitude, a positive float, and the element format, and returns s, a positive number of the scale
    format; `tensor_scale` is then 1. It is asked once for each magnitude, so it should follow from its arguments alone.
    A block of zeros has the scale nearest to 1, and is not asked for.

    The scale of a block with an infinity or NaN is NaN, and refused where the scale format has none; its elements are
    NaN, or 0 in formats without NaN, and it takes no part in `tensor_scale`. `rounding` is the mode of the elements
    only; a stochastic one takes its bits from `stream`, elements being numbered in C order of x.

    Raises ValueError for scale and element formats beyond float32, for an unknown rule, and for one that returns NaN,
    zero, a negative number or none of the scale format.

    Sources: OCP Microscaling Formats 1.0, section 6.3; microxcaling; torchao; TransformerEngine's NVFP4 reference.

    Examples:
        >>> x, scales = sf.block_quantize([[0.1, 0.2, 100.0, 3.0]], sf.E2M1, block=2)
        >>> scales
        array([[ 0.03125, 16.     ]])
        >>> x * np.repeat(scales, 2, axis=1)
        array([[9.375e-02, 1.875e-01, 9.600e+01, 0.000e+00]])
        >>> def root(amax, format):  # a power of two near the square root of what would fill the range
        ...     return 2.0 ** round(np.log2(amax / format.max) / 2)
        >>> sf.block_quantize([[0.1, 0.2, 100.0, 3.0]], sf.E2M1, block=2, scale=sf.E5M2, rule=root).scales
        array([[0.25, 4.  ]])
    """
    format, scale, rounding = as_format(format), as_format(scale), as_rounding(rounding)
    check_stream(stream)
    x = as_operand(x)
    block, axis = _check_block_and_axis(x, format, block, scale, rule, axis)
    blocks, draw = Blocks(block, axis), take_draw(stream, rounding)
    target = Target(format, rounding.saturating(), result_dtype([x], format))
    if has_two_levels(scale, rule):
        elements, scales, tensor_scale = scaled_in_two_levels(x, blocks, target, draw)
        return BlockScaled(elements, scales, block, axis, tensor_scale)
    if scale == E8M0 and not callable(rule):
        elements, scales = scaled_by_powers(x, blocks, target, RULES[rule or DEFAULT_RULE], draw)
    else:
        elements, scales = scaled_by_rule(x, blocks, target, scale, rule if callable(rule) else None, draw)
    return BlockScaled(elements, scales, block, axis)


def _check_block_and_axis(
    x: NDArray, format: Format, block: int | None, scale: Format, rule: Rule, axis: int
) -> tuple[int, int]:
    """The block size and the axis counted from the first."""
    check_rule(None if rule == DEFAULT_RULE and scale == E4M3 else rule, scale, "scale=E8M0")
    check_elements(format, scale, rule)
    if block is None:
        block = 16 if has_two_levels(scale, rule) else 32
    if not is_integer(block, 1):
        raise ValueError(f"block must be a positive integer, the number of elements that share a scale; got {block!r}.")
    if x.ndim == 0:
        raise ValueError("block_quantize needs an array with an axis to cut into blocks, got a single number.")
    if not is_integer(axis, -x.ndim, x.ndim - 1):
        raise ValueError(f"axis must be an integer from {-x.ndim} to {x.ndim - 1}, got {axis!r}.")
    return int(block), int(axis) % x.ndim


def check_elements(format: Format, scale: Format, rule: Rule = None) -> None:
    """Raise ValueError for elements that scales of this format cannot have."""
    most = float(LARGEST) / (E4M3.max if has_two_levels(scale, rule) else 1.0)
    if not format.fits_float32 or format.max > most:
        raise ValueError(f"Elements scaled by {scale} are float32 numbers of at most {most:.6g}; {format} has others.")
