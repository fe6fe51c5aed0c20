"""Scalings by blocks: every run of elements along k has a scale of its own, and squares of them may share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.block_elements import (
    RULES,
    Blocks,
    scaled_by_powers,
    scaled_by_quotients,
    scaled_in_two_levels,
)
from simfloat.arithmetic.blocks import check_elements
from simfloat.arithmetic.own_scales import Rule, check_rule, has_two_levels, scaled_by_rule
from simfloat.arithmetic.scaling import Scaling
from simfloat.arithmetic.target import Target
from simfloat.checks import is_integer
from simfloat.formats import E4M3, E8M0, FP32, Format, as_format
from simfloat.formats.format_names import FormatLike

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
