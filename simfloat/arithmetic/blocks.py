"""Scales of blocks: the division of an array into blocks, the rules for scales, block formats, and block scalings.

**Blocks.** Users may choose the format of scales, and the rule that computes them. Each family of scales has a function
that returns elements and scales.

**Block formats** are narrow elements that share a scale, as in OCP MX and NVFP4.

**Block scalings** give every run of elements along k its own scale, and squares of elements may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from simfloat.arithmetic.bit_stream import Draw, Stream, check_stream, take_draw
from simfloat.arithmetic.machines import device_of, is_on_gpu, on_cpu
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.operations import compute_in_thread, compute_with_draw, round_array, round_with_draw
from simfloat.arithmetic.scaling import LARGEST, Scaling, check_saturates, largest_magnitude, scale_quotients
from simfloat.arithmetic.target import Target, result_dtype
from simfloat.common import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import E4M3, E8M0, FP32, Format, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.definition import round_value
from simfloat.formats.rounding import RoundingLike, as_rounding


class Blocks(NamedTuple):
    """The division of an array: runs of `along` elements of an axis, and of `across` neighbours on `across_axis`.

    Short last blocks are blocks as well. Scales are computed for each block, and are stored for each run.
    """

    along: int
    axis: int  # counted from the first
    across: int = 1
    across_axis: int = 0

    def largest(self, x: NDArray) -> NDArray:
        """Return the largest magnitude of each block; NaN if it contains NaN."""
        amax = _largest_of_runs(np.abs(x), self.along, self.axis)
        if self.across == 1:
            return amax
        of_blocks = _largest_of_runs(amax, self.across, self.across_axis)
        return repeat_for_elements(of_blocks, self.across, self.across_axis, amax.shape)

    def spread(self, scales: NDArray, x: NDArray) -> NDArray:
        """Return an array of the shape of `x` in which every element has the value of its block."""
        return repeat_for_elements(scales, self.along, self.axis, x.shape)


def repeat_for_elements(scales: NDArray, block: int, axis: int, shape: tuple[int, ...]) -> NDArray:
    """Return an array of this shape in which every element has the value of its run of elements along the axis."""
    spread = np.repeat(scales, block, axis)
    return spread[(slice(None),) * axis + (slice(shape[axis]),)]


def _largest_of_runs(magnitudes: NDArray, block: int, axis: int) -> NDArray:
    """Return the largest element of each run along an axis."""
    if is_on_gpu(magnitudes):
        # CuPy's maximum has no reduceat: a short last run is padded with zeros.
        short = [(0, -length % block if i == axis else 0) for i, length in enumerate(magnitudes.shape)]
        whole = np.pad(magnitudes, short)
        before, length, after = whole.shape[:axis], whole.shape[axis], whole.shape[axis + 1 :]
        return whole.reshape(*before, length // block, block, *after).max(axis + 1)
    return np.maximum.reduceat(magnitudes, np.arange(0, magnitudes.shape[axis], block), axis)


ScaleRule = Callable[[NDArray[np.float64], Format], NDArray[np.integer]]


def scaled_by_powers(
    x: NDArray, blocks: Blocks, target: Target, rule: ScaleRule, draw: Draw | None
) -> tuple[NDArray, NDArray]:
    """Return elements x / X, rounded once, and the scales X, which are powers of two or NaN."""
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
    """Return elements, E4M3 scales of blocks, and a scale of the whole array, by float32 operations."""
    one, most, most_scale = np.float32(1), np.float32(target.format.max), np.float32(E4M3.max)
    with np.errstate(all="ignore"):
        single = x.astype(np.float32)
        amax = blocks.largest(single)
        usable = np.isfinite(amax)
        greatest = largest_magnitude(np.where(usable, amax, np.float32(0)))
        tensor_scale = scale_quotients(float(most_scale * most), greatest) if greatest else one
        reciprocal = np.minimum(one / tensor_scale, LARGEST)
        # TransformerEngine multiplies by the float32 1 / 6 here: about one scale in a few thousand then differs.
        exact_scales = np.clip(amax * (tensor_scale / most), -most_scale, most_scale)
        scales = np.where(usable, round_array(exact_scales, Target(E4M3, nearest_even, np.float32)), np.float32(np.nan))
        factors = np.minimum(one / (scales * reciprocal), LARGEST)
        sound = replace_unusable(single, usable, target.format, blocks)
        # A value beyond the largest number is clamped by the rounding, so that it is counted as an overflow.
        scaled = np.clip(sound * blocks.spread(np.where(usable, factors, one), x), -LARGEST, LARGEST)
    elements = round_with_draw(scaled, target, draw)
    return elements, scales.astype(result_dtype([x], E4M3)), float(tensor_scale)


def scaled_by_quotients(x: NDArray, blocks: Blocks, target: Target, draw: Draw | None) -> tuple[NDArray, NDArray]:
    """Return elements x * s, rounded once, and the scales s = max / amax of blocks, which are float32 values."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        amax = blocks.largest(x).astype(np.float32)
    usable = np.isfinite(amax) & (amax > 0)
    scales = np.where(usable, scale_quotients(target.format.max, amax), np.float32(1))
    return compute_with_draw("multiply", [x, blocks.spread(scales, x)], target, draw), scales


def replace_unusable(x: NDArray, usable: NDArray, format: Format, blocks: Blocks) -> NDArray:
    """Return `x` with the elements of blocks without a valid scale replaced."""
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
    return exponent - most_exponent + (fraction > most_fraction)  # the fractions' quotient is between 1/2 and 2


def _even(amax: NDArray, format: Format) -> NDArray:
    fraction, exponent = np.frexp(amax)
    units = 2.0**format.precision
    return exponent - 1 + (np.rint(fraction * units) == units) - format.emax


#: The rules for powers of two by name: the exponent of a scale from the largest magnitude and the element format.
RULES: dict[str, ScaleRule] = {"floor": _floor, "ceil": _ceil, "rceil": _rceil, "even": _even}


#: A function that returns the scale of a block from its largest magnitude and the element format.
ScaleFunction = Callable[[float, Format], float]

#: A rule by name, a function of the user, or None for the default rule of the scale format.
Rule = str | ScaleFunction | None


def check_rule(rule: Rule, scale: Format, needed: str = "E8M0 scales") -> None:
    """Raise ValueError for an invalid rule of scales of this format."""
    if not scale.fits_float32:
        raise ValueError(f"Block scales must be in a format that float32 can represent, got {scale}.")
    if rule is None or callable(rule):
        return
    if not isinstance(rule, str) or rule not in RULES:
        raise ValueError(
            f"rule must be one of {', '.join(RULES)}; got {rule!r}. It may also be a function of amax and the "
            "element format."
        )
    if scale != E8M0:
        raise ValueError(
            f"rule={rule!r} chooses among powers of two: it needs {needed}, got {scale}. A function of amax and the "
            "element format may choose among the numbers of any format."
        )


def has_two_levels(scale: Format, rule: Rule) -> bool:
    """Return True if the rule of NVFP4 applies, which also has a scale of the whole operand."""
    return scale == E4M3 and not callable(rule)


def scaled_by_rule(
    x: NDArray, blocks: Blocks, target: Target, scale: Format, rule: ScaleFunction | None, draw: Draw | None
) -> tuple[NDArray, NDArray]:
    """Return elements x / s, rounded once, and the scales s: from the rule, or amax / max rounded to nearest even.

    Blocks of zeros have the positive scale that is nearest to 1.
    """
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        amax = blocks.largest(x).astype(np.float64)
    usable = np.isfinite(amax)
    if not scale.has_nan and not usable.all():
        raise ValueError(f"A block with an infinity or a NaN needs a NaN scale, and {scale} has no NaN: clip x first.")
    have_scales = usable & (amax > 0)
    nearest_to_one = max(round_value(1.0, scale, nearest_even.saturating()), scale.smallest_subnormal)
    scales = np.full_like(amax, nearest_to_one)
    if rule is None:
        scales[have_scales] = _by_quotients(amax[have_scales], target.format, scale)
    else:
        scales[have_scales] = device_of(x).to_device(_by_rule(rule, on_cpu(amax[have_scales]), target.format, scale))
    sound = replace_unusable(x, usable, target.format, blocks)
    elements = compute_with_draw("divide", [sound, blocks.spread(scales, x)], target, draw)
    return elements, np.where(usable, scales, np.nan).astype(result_dtype([x], scale))


def _by_quotients(amax: NDArray, format: Format, scale: Format) -> NDArray:
    """Return amax / max, rounded once and limited to the positive numbers of the format."""
    target = Target(scale, nearest_even.saturating(), np.float64)
    quotients = compute_in_thread("divide", [amax, np.full_like(amax, format.max)], target)
    return np.maximum(quotients, scale.smallest_subnormal)


def _by_rule(rule: ScaleFunction, amax: NDArray, format: Format, scale: Format) -> NDArray:
    """Return the scale of the rule for each magnitude, with one call for each distinct magnitude."""
    magnitudes, places = np.unique(amax, return_inverse=True)
    scales = [_check_scale(rule(float(magnitude), format), float(magnitude), format, scale) for magnitude in magnitudes]
    return np.array(scales, np.float64)[places].reshape(amax.shape)


def _check_scale(value: Any, amax: float, format: Format, scale: Format) -> float:
    """Return the result of a rule if it is a scale; otherwise raise ValueError."""
    try:
        number = np.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not 0 < number < np.inf or round_value(number, scale, nearest_even) != number:
        raise ValueError(
            f"A rule must return a positive number of {scale}, the format of the scales; for amax = {amax!r} and "
            f"elements of {format} it returned {value!r}. Round the result to the format: simfloat.round(s, {scale})."
        )
    return number


#: The default rule for scales that are powers of two, from OCP MX.
DEFAULT_RULE = "floor"


@in_usual_environment
@dataclass(frozen=True, eq=False)
class BlockScaled:
    """Values as narrow elements and scales: element * scale / tensor_scale.

    It unpacks as ``elements, scales = block_quantize(...)`` if `tensor_scale` is 1; otherwise that raises ValueError:
    read the attributes below. To get codes, encode each part, for example by ``encode(q.scales, E4M3)``.

    Parameters:
        elements: numbers of the element format, in the shape of the quantized array.
        scales: numbers of the scale format, one for each block along `axis`.
        block: the number of elements that share a scale.
        axis: the axis along which blocks run; a negative one is stored as the equal axis from 0.
        tensor_scale: a scale of the whole array; by default 1.

    Examples:
        >>> x, scales = sf.block_quantize([[100.0, 3.0, 0.01, 7.0]], sf.E2M1, block=2)
        >>> x
        array([[6., 0., 0., 6.]])
        >>> scales
        array([[16.,  1.]])
    """

    elements: NDArray[np.floating]
    scales: NDArray[np.floating]
    block: int
    axis: int
    tensor_scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "axis", _from_first(self.axis, np.ndim(self.elements)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # older versions stored negative axes

    def __iter__(self) -> Iterator[NDArray[np.floating]]:
        if self.tensor_scale != 1:
            raise ValueError(
                f"The result has a tensor scale, {self.tensor_scale:.6g}, which unpacking into elements and scales "
                "would lose. Pass the result as a whole, or use its fields elements, scales and tensor_scale."
            )
        return iter((self.elements, self.scales))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("The values are computed from elements and scales, so they are new: leave out copy=False.")
        return self.values().astype(dtype or np.float64, copy=False)

    def values(self) -> NDArray[np.float64]:
        """Return the values that elements and scales represent; a NaN scale makes its block NaN.

        They are exact if `tensor_scale` is 1. Otherwise each is the exact quotient, rounded to float64.
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
    """Quantize an array to narrow elements with block scales, as hardware stores them.

    Each run of `block` elements along `axis` shares a scale; a short last run is a block as well. amax is the largest
    magnitude of a block, and max is the largest number of `format`. :func:`simfloat.matmul` sums products of the scaled
    values. With a cast with block scales (`inputs=`), it sums the products of elements of each block, and removes the
    scales from this sum.

    With E8M0 scales (OCP MX), the scale is a power of two X, and elements are x / X, rounded once and saturating.
    `rule` is one of:

    * ``"floor"``: 2^(floor(log2 amax) - emax), where emax is the exponent of max (OCP MX, the default);
    * ``"ceil"``: 2^(ceil(log2 amax) - emax);
    * ``"rceil"``: amax / max rounded up to a power of two, so that nothing saturates (cuBLAS);
    * ``"even"``: like floor, for amax rounded to nearest even to the precision of the format.

    X is 2^-127 if it would be smaller, and for a block of zeros. It is NaN if it would be above 2^127 (microxcaling).

    With E4M3 scales (NVFP4), `tensor_scale` is 448 max / amax of the whole array, or 1 for zeros. A scale is amax *
    (tensor_scale / max), rounded to E4M3. Elements are x / (scale * (1 / tensor_scale)), computed as a product with the
    reciprocal. Every step is a float32 operation, x is rounded to float32 first, and values beyond max, 448 or the
    range of float32 are clamped.

    With scales in another format that fits into float32, a scale s is amax / max, rounded to nearest even and limited
    to the positive numbers of the format. Elements are x / s, rounded once and saturating.

    `rule` may also be your own function, for scales of any format, including E8M0 and E4M3. ``rule(amax, format)`` is
    called with the largest magnitude of a block, a positive float, and the element format. It returns s, a positive
    number of the scale format; `tensor_scale` is then 1. It is called once for each distinct magnitude, so its result
    must depend only on its arguments. A block of zeros gets the scale nearest to 1, without a call.

    A block that contains an infinity or a NaN has the scale NaN. Its elements are NaN, or 0 in formats without NaN, and
    it does not affect `tensor_scale`.

    Parameters:
        x: an array.
        format: the format of the elements.
        block: the number of elements that share a scale; by default 16 for E4M3 scales without your own rule, otherwise
            32.
        scale: the format of the scales; by default E8M0.
        rule: the rule of E8M0 scales by name, or a function.
        axis: the axis along which blocks run; by default the last one.
        rounding: the rounding mode of the elements; by default to nearest even.
        stream: the random bits of a stochastic mode (`BitStream` or `GivenBits`); elements are numbered in C order of
            x.

    Returns:
        BlockScaled: elements in the shape of x, and scales of length ceil(length / block) along the axis. Dtypes are as
            in :func:`simfloat.round`. Its method `values`, and ``np.asarray``, return the values that it represents.

    Raises:
        ValueError: if float32 cannot represent the numbers of `format` or `scale`.
        ValueError: if the rule is unknown, or returns anything but a positive number of the scale format.
        ValueError: if a block has an infinity or NaN, and the scale format has no NaN.
        ValueError: if `block` is not a positive integer, or `axis` is not an axis of x.
        ValueError: if `rounding` is overflowing, because scaled values are clamped.

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
    check_saturates(rounding)
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
    """Return the block size, and the axis counted from the first one."""
    check_rule(None if rule == DEFAULT_RULE and scale == E4M3 else rule, scale, "scale=E8M0")
    check_elements(format, scale, rule)
    block = (16 if has_two_levels(scale, rule) else 32) if block is None else block
    if not is_integer(block, 1):
        raise ValueError(f"block must be a positive integer, the number of elements that share a scale; got {block!r}.")
    if x.ndim == 0:
        raise ValueError("block_quantize needs an array with an axis to cut into blocks, got a single number.")
    return int(block), _from_first(axis, x.ndim)


def _from_first(axis: Any, axes: int) -> int:
    """Return an axis counted from the first one."""
    if not is_integer(axis, -axes, axes - 1):
        raise ValueError(f"axis must be an integer from {-axes} to {axes - 1}, got {axis!r}.")
    return int(axis) % axes


def check_elements(format: Format, scale: Format, rule: Rule = None) -> None:
    """Raise ValueError if scales of this format do not support these elements."""
    most = float(LARGEST) / (E4M3.max if has_two_levels(scale, rule) else 1.0)
    if not format.fits_float32 or format.max > most:
        raise ValueError(f"Elements scaled by {scale} are float32 numbers of at most {most:.6g}; {format} has others.")


#: The default rule of `block` for scales that are powers of two.
DEFAULT_POLICY_RULE = "rceil"


class BlockScales(NamedTuple):
    """The scales of the blocks of an operand: one for each run of `block` elements along k, in every row or column."""

    values: NDArray  # in the shape of the operand, except that k has one element for each run
    block: int
    format: Format
    divide: bool  # values of the operand are elements / values, otherwise elements * values
    whole: float = 1.0  # the result is also divided by this scale of the whole operand


def block(size: int | tuple[int, int], format: FormatLike, *, rule: Rule = None) -> Block:
    """Scale each block of `size` elements along k, the axis that a contraction sums over.

    Blocks follow the contraction, so products of the backward pass scale the original values again, along their own k.
    A short last block is a block as well. The format of the scales determines the rule:

    * E8M0: powers of two, as in OCP MX and cuBLAS. `rule` is a name as in :func:`simfloat.block_quantize`; the default
      is "rceil": amax / max rounded up. The scale of a block with an infinity or a NaN is NaN, and so is a scale beyond
      2^127.
    * E4M3: the rule of NVFP4 in :func:`simfloat.block_quantize`, with an additional scale for the whole operand.
    * FP32: s = max / amax of the block in float32, as :func:`simfloat.per_tensor` for whole operands.
    * any other format that fits into float32: amax / max rounded to it, as in :func:`simfloat.block_quantize`.

    The accumulator sums the products of a block from zero. The sum is multiplied exactly by the two scales of the block
    (FP32 scales divide it), and is rounded to the format of the accumulator. These results are added to the partial sum
    in that format. An exact sum is rounded only to the output, and a tensor core with block scales applies them itself.
    The scale of a whole operand (NVFP4) divides the sum before it is rounded to the output.

    Parameters:
        size: the number of elements of a block along k, or a pair (elements across k, elements along k): ``block((128,
            128), FP32)`` has one scale for each square.
        format: the format of the scales, or its name.
        rule: the rule of E8M0 scales by name, or a function for scales of any format: ``rule(amax, format)`` returns
            the positive number of the scale format that the values of a block are divided by. A policy with such a
            function prints its name, and cannot be stored as TOML.

    Returns:
        A scaling for the option `scale` of :func:`cast`.

    Raises:
        ValueError: if `size` is not a positive integer or a pair of them, or if the format does not fit into float32.
        ValueError: if a rule is named for scales other than E8M0.
        ValueError: when it is used, if a rule returns anything but a positive number of the scale format.

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
        """True if there is also a scale of the whole operand."""
        return has_two_levels(self.format, self.rule)

    @property
    def divides(self) -> bool:
        """True if sums are divided by scales, and not multiplied by them."""
        return self.format == FP32 and self.rule is None

    @property
    def along(self) -> int:
        """The number of elements of a block along k."""
        return int(self.size[1] if isinstance(self.size, tuple) else self.size)

    def check(self, format: Format) -> None:
        """Raise ValueError if scales of its format do not support these elements."""
        super().check(format)
        check_elements(format, self.format, self.rule)

    def quantize(self, x: NDArray, target: Target, axis: int, draw: Draw | None) -> tuple[NDArray, BlockScales]:
        """Return elements and scales of matrices `x` (..., rows, columns) with the axis k = `axis`, -1 or -2."""
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
