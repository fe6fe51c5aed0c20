"""Scales of blocks: how an array is cut into blocks, the rules that scale them, block formats, and their scalings.

**Blocks.** The elements and the scales of an array are found by each family of scales; users may choose the format of
scales and the rule by which they are made.

**Block formats** are narrow elements that share a scale, as OCP MX and NVFP4 have them.

**Scalings by blocks** give every run of elements along k a scale of its own, and squares of them may share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.bit_stream import Draw, Stream, check_stream, take_draw
from simfloat.arithmetic.machines import device_of, is_on_gpu, on_cpu
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.operations import compute_in_thread, compute_with_draw, round_array, round_with_draw
from simfloat.arithmetic.scaling import LARGEST, Scaling, largest_magnitude, scale_quotients
from simfloat.arithmetic.target import Target, result_dtype
from simfloat.common import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import E4M3, E8M0, FP32, Format, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.definition import round_value
from simfloat.formats.rounding import RoundingLike, as_rounding


class Blocks(NamedTuple):
    """How an array is cut: into runs of `along` elements of an axis, of `across` neighbours on `across_axis`.

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


#: The scale of a block of numbers of this largest magnitude, for elements of this format.
ScaleFunction = Callable[[float, Format], float]

#: A rule by name, one of one's own, or that of the format of the scales.
Rule = str | ScaleFunction | None


def check_rule(rule: Rule, scale: Format, needed: str = "E8M0 scales") -> None:
    """Raise ValueError for what is no rule of scales of this format."""
    if not scale.fits_float32:
        raise ValueError(f"Scales of blocks are numbers of a format that float32 holds; {scale} has others.")
    if rule is None or callable(rule):
        return
    if not isinstance(rule, str) or rule not in RULES:
        raise ValueError(
            f"rule must be one of {', '.join(RULES)}; got {rule!r}. A function of amax and the element format "
            "serves, too."
        )
    if scale != E8M0:
        raise ValueError(
            f"rule={rule!r} chooses among powers of two: it needs {needed}, got {scale}. A function of amax and the "
            "element format may choose among the numbers of any format."
        )


def has_two_levels(scale: Format, rule: Rule) -> bool:
    """Whether there is a scale of the whole operand, too: NVFP4's rule."""
    return scale == E4M3 and not callable(rule)


def scaled_by_rule(
    x: NDArray, blocks: Blocks, target: Target, scale: Format, rule: ScaleFunction | None, draw: Draw | None
) -> tuple[NDArray, NDArray]:
    """Elements x / s rounded once, and the scales s: as the rule says, or amax / max rounded to nearest even.

    Blocks of zeros have the scale nearest to 1, a positive one.
    """
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        amax = blocks.largest(x).astype(np.float64)
    usable = np.isfinite(amax)
    if not scale.has_nan and not usable.all():
        raise ValueError(f"{scale} has no NaN, the scale of a block with an infinity or a NaN: clip the numbers first.")
    have_scales = usable & (amax > 0)
    nearest_to_one = max(round_value(1.0, scale, nearest_even.saturating()), scale.smallest_subnormal)
    scales = np.full_like(amax, nearest_to_one)
    if rule is None:
        scales[have_scales] = _by_quotients(amax[have_scales], target.format, scale)
    else:
        own_scales = _by_rule(rule, on_cpu(amax[have_scales]), target.format, scale)
        scales[have_scales] = device_of(x).to_device(own_scales)
    sound = replace_unusable(x, usable, target.format, blocks)
    elements = compute_with_draw("divide", [sound, blocks.spread(scales, x)], target, draw)
    return elements, np.where(usable, scales, np.nan).astype(result_dtype([x], scale))


def _by_quotients(amax: NDArray, format: Format, scale: Format) -> NDArray:
    """amax / max rounded once, inside the positive numbers of the format."""
    target = Target(scale, nearest_even.saturating(), np.float64)
    quotients = compute_in_thread("divide", [amax, np.full_like(amax, format.max)], target)
    return np.maximum(quotients, scale.smallest_subnormal)


def _by_rule(rule: ScaleFunction, amax: NDArray, format: Format, scale: Format) -> NDArray:
    """What the rule gives for each magnitude; every one is asked for once."""
    magnitudes, places = np.unique(amax, return_inverse=True)
    scales = [_check_scale(rule(float(magnitude), format), float(magnitude), format, scale) for magnitude in magnitudes]
    return np.array(scales, np.float64)[places].reshape(amax.shape)


def _check_scale(value: Any, amax: float, format: Format, scale: Format) -> float:
    """A rule's result, if it is a scale."""
    try:
        number = np.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not 0 < number < np.inf or round_value(number, scale, nearest_even) != number:
        raise ValueError(
            f"A rule must return a positive number of {scale}, the format of the scales; for amax = {amax!r} and "
            f"elements of {format} it returned {value!r}. simfloat.round(s, {scale}) makes a number of it."
        )
    return number


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


#: The rule of scales that are powers of two, unless another one is named.
DEFAULT_POLICY_RULE = "rceil"


class BlockScales(NamedTuple):
    """The scales of an operand's blocks: one for each run of `block` elements along k, in every row or column."""

    values: NDArray  # in the shape of the operand, but for k, along which there is one for each run
    block: int
    format: Format
    divide: bool  # numbers are elements / values; else elements * values
    whole: float = 1.0  # and / whole


def block(size: int | tuple[int, int], format: FormatLike, *, rule: Rule = None) -> Block:
    """A scale for each block of `size` elements along k, the axis that a contraction sums over.

    A pair is of elements across k and along it: ``block((128, 128), FP32)`` has one scale for each square. A short last
    block is a block. Blocks follow the contraction, so its backward products scale the original numbers anew. By the
    format of the scales:

    * E8M0: powers of two as OCP MX and cuBLAS have them. `rule`, as in :func:`simfloat.block_quantize`, is "rceil"
      unless given: amax / max rounded up. A block with an infinity or a NaN, or beyond 2^127, is NaN.
    * E4M3: NVFP4's rule of :func:`simfloat.block_quantize`, with a scale for the whole operand beside those of blocks.
    * FP32: s = max / amax of the block in float32, as :func:`simfloat.per_tensor` has it for all.
    * any other format that float32 holds: amax / max rounded to it, as in :func:`simfloat.block_quantize`.

    `rule` may be a function of one's own, for scales of any of these formats: ``rule(amax, format)`` returns the number
    of the scale format by which a block's numbers are divided, as in :func:`simfloat.block_quantize`. A policy with
    such a function prints its name, and no TOML text stands for it.

    Products of a block are summed from zero by the accumulator, multiplied with the block's two scales (with FP32's,
    divided by them), exactly, and rounded to the accumulator's format; these are added to the running total in it. An
    exact sum is rounded to the output only, and a tensor core with block scales takes them itself. NVFP4's scales of
    whole operands divide before the output's rounding.

    Raises ValueError for sizes that are no positive integers, formats beyond float32, a named rule for scales other
    than E8M0, and, when it is used, for a rule that returns no positive number of the scale format.

    Sources: OCP Microscaling Formats 1.0; TransformerEngine, MXFP8BlockScaling, NVFP4BlockScaling and
    Float8BlockScaling; DeepSeek-V3, arXiv 2412.19437, section 3.3.

    Examples:
        >>> mx = sf.scaled(sf.E4M3, sf.block(32, sf.E8M0))  # MXFP8
        >>> nv = sf.scaled(sf.E2M1, sf.block(16, sf.E4M3))  # NVFP4
        >>> a = np.linspace(-1, 1, 32)
        >>> float(sf.dot(a, a, inputs=mx, accumulate=sf.FP32)), float(sf.dot(a, a, inputs=nv, accumulate=sf.FP32))
        (11.421875, 11.597222328186035)
    """
    return Block(size, as_format(format), rule=rule)


@dataclass(frozen=True)
class Block(Scaling):
    """See :func:`block`."""

    size: int | tuple[int, int]
    format: Format
    rule: Rule = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        pair = self.size if isinstance(self.size, tuple) else (1, self.size)
        if len(pair) != 2 or not all(is_integer(number, 1) for number in pair):
            raise ValueError(
                "The size of a block is a positive integer, its elements along k, or a pair of elements across k and "
                f"along it; got {self.size!r}."
            )
        check_rule(self.rule, self.format)
        if self.rule == DEFAULT_POLICY_RULE:
            object.__setattr__(self, "rule", None)

    @property
    def is_whole(self) -> bool:
        """Whether an operand has a scale as a whole, too."""
        return has_two_levels(self.format, self.rule)

    @property
    def divides(self) -> bool:
        """Whether sums are divided by scales, and not multiplied with them."""
        return self.format == FP32 and self.rule is None

    @property
    def along(self) -> int:
        """The elements of a block along k."""
        return int(self.size[1] if isinstance(self.size, tuple) else self.size)

    def check(self, format: Format) -> None:
        """Raise ValueError for elements that scales of its format cannot have."""
        super().check(format)
        check_elements(format, self.format, self.rule)

    def quantize(self, x: NDArray, target: Target, axis: int, draw: Draw | None) -> tuple[NDArray, BlockScales]:
        """The elements of matrices `x` (..., rows, columns), of which `axis`, -1 or -2, is k; and their scales."""
        across = self.size[0] if isinstance(self.size, tuple) else 1
        blocks = Blocks(self.along, x.ndim + axis, int(across), x.ndim - 3 - axis)
        if self.is_whole:
            elements, scales, whole = scaled_in_two_levels(x, blocks, target, draw)
            return elements, BlockScales(scales, self.along, E4M3, False, whole)
        function = self.rule if callable(self.rule) else None
        if self.divides:
            elements, scales = scaled_by_quotients(x, blocks, target, draw)
        elif self.format == E8M0 and function is None:
            elements, scales = scaled_by_powers(x, blocks, target, RULES[str(self.rule or DEFAULT_POLICY_RULE)], draw)
        else:
            elements, scales = scaled_by_rule(x, blocks, target, self.format, function, draw)
        return elements, BlockScales(scales, self.along, self.format, self.divides)

    def _call(self, write: Any) -> str:
        name = getattr(self.rule, "__name__", repr(self.rule))
        rule = "" if self.rule is None else f", rule={name}"
        return f"block({self.size}, {write(self.format)}{rule})"

    def __repr__(self) -> str:
        return self._call(repr)

    def __str__(self) -> str:
        return self._call(str)
