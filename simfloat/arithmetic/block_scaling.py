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
from simfloat.arithmetic.scaling import Scaling
from simfloat.arithmetic.target import Target
from simfloat.checks import is_integer
from simfloat.formats import E4M3, E8M0, FP32, Format, as_format
from simfloat.formats.format_names import FormatLike

#: The rule of scales that are powers of two, unless another one is named.
ROUNDED_UP = "rceil"


class BlockScales(NamedTuple):
    """The scales of an operand's blocks: one for each run of `block` elements along k, in every row or column."""

    values: NDArray  # in the shape of the operand, but for k, along which there is one for each run
    block: int
    format: Format
    divide: bool  # numbers are elements / values; else elements * values
    whole: float = 1.0  # and / whole


def block(size: int | tuple[int, int], format: FormatLike, *, rule: str | None = None) -> Block:
    """A scale for each block of `size` elements along k, the axis that a contraction sums over.

    A pair is of elements across k and along it: ``block((128, 128), FP32)`` has one scale for each square. A short last
    block is a block. Blocks follow the contraction, so its backward products scale the original numbers anew. By the
    format of the scales:

    * E8M0: powers of two as OCP MX and cuBLAS have them. `rule`, as in :func:`simfloat.block_quantize`, is "rceil"
      unless given: amax / max rounded up. A block with an infinity or a NaN, or beyond 2^127, is NaN.
    * E4M3: NVFP4's rule of :func:`simfloat.block_quantize`, with a scale for the whole operand beside those of blocks.
    * FP32: s = max / amax of the block in float32, as :func:`simfloat.per_tensor` has it for all.

    Products of a block are summed from zero by the accumulator, divided by the block's two scales, exactly, and rounded
    to the accumulator's format; these are added to the running total in it. An exact sum is rounded to the output only,
    and a tensor core with block scales takes them itself. NVFP4's scales of whole operands divide before the output's
    rounding.

    Raises ValueError for sizes that are no positive integers, other formats, and a rule for scales other than E8M0.

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
    rule: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        pair = self.size if isinstance(self.size, tuple) else (1, self.size)
        if len(pair) != 2 or not all(is_integer(number, 1) for number in pair):
            raise ValueError(
                "The size of a block is a positive integer, its elements along k, or a pair of elements across k and "
                f"along it; got {self.size!r}."
            )
        if self.format not in (E8M0, E4M3, FP32):
            raise ValueError(f"Scales of blocks are numbers of E8M0, E4M3 or FP32, got {self.format}.")
        if self.rule is not None and self.format != E8M0:
            raise ValueError(
                f"rule={self.rule!r} chooses among powers of two: it needs E8M0 scales, got {self.format}."
            )
        if self.rule is not None and (not isinstance(self.rule, str) or self.rule not in RULES):
            raise ValueError(f"rule must be one of {', '.join(RULES)}; got {self.rule!r}.")
        if self.rule == ROUNDED_UP:
            object.__setattr__(self, "rule", None)

    @property
    def is_whole(self) -> bool:
        """Whether an operand has a scale as a whole, too."""
        return self.format == E4M3

    @property
    def along(self) -> int:
        """The elements of a block along k."""
        return int(self.size[1] if isinstance(self.size, tuple) else self.size)

    def check(self, format: Format) -> None:
        """Raise ValueError for elements that scales of its format cannot have."""
        super().check(format)
        check_elements(format, self.format)

    def quantize(self, x: NDArray, target: Target, axis: int, draw: Draw | None) -> tuple[NDArray, BlockScales]:
        """The elements of matrices `x` (..., rows, columns), of which `axis`, -1 or -2, is k; and their scales."""
        across = self.size[0] if isinstance(self.size, tuple) else 1
        blocks = Blocks(self.along, x.ndim + axis, int(across), x.ndim - 3 - axis)
        if self.format == E4M3:
            elements, scales, whole = scaled_in_two_levels(x, blocks, target, draw)
            return elements, BlockScales(scales, self.along, E4M3, False, whole)
        if self.format == FP32:
            elements, scales = scaled_by_quotients(x, blocks, target, draw)
            return elements, BlockScales(scales, self.along, FP32, True)
        elements, scales = scaled_by_powers(x, blocks, target, RULES[self.rule or ROUNDED_UP], draw)
        return elements, BlockScales(scales, self.along, E8M0, False)

    def _call(self, write: Any) -> str:
        rule = "" if self.rule is None else f", rule={self.rule!r}"
        return f"block({self.size}, {write(self.format)}{rule})"

    def __repr__(self) -> str:
        return self._call(repr)

    def __str__(self) -> str:
        return self._call(str)
