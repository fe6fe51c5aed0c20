"""Sums of runs of products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfloat.accumulate._sequential import as_accumulator
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.blocked_engines import RunLengths
from simfloat.accumulate.sums_of_sums import SumOfSums
from simfloat.checks import is_integer
from simfloat.formats import Format
from simfloat.formats.format_names import FormatLike


def blocked(size: int, inner: Accumulator | FormatLike, outer: Accumulator | FormatLike) -> Blocked:
    """Each run of `size` products is summed from zero by `inner`; `outer` sums the results, as simfloat.sum does.

    The last run may be short. Both may be any accumulator but `exact`, and a format means `sequential`. With
    ``inner=tensor_core("hopper", E4M3)`` and ``outer=FP32`` this is the promotion of partial sums of DeepSeek-V3
    (arXiv 2412.19437, section 3.3.2); with two formats, the chunked sums of Wang et al. (NeurIPS 2018).

    Raises ValueError unless `size` is a positive integer, and for exact sums, which have no format.

    Examples:
        >>> ones = np.ones(8192)
        >>> sf.dot(ones, ones, accumulate=sf.FP16)
        array(2048.)
        >>> sf.dot(ones, ones, accumulate=sf.blocked(64, sf.FP16, sf.FP32))
        array(8192.)
    """
    if not is_integer(size, 1):
        raise ValueError(f"size must be a positive integer, the products of a run; got {size!r}.")
    return Blocked(int(size), inner=as_accumulator(inner), outer=as_accumulator(outer))


@dataclass(frozen=True, repr=False)
class Blocked(SumOfSums):
    """See :func:`blocked`."""

    size: int

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "blocked"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.scales and self.size % self.inner.scales[0]:
            block = self.inner.scales[0]
            raise ValueError(f"A run must consist of whole blocks of {block} products, got size={self.size}.")

    def lengths(self, terms: int) -> RunLengths:
        """Runs of `size`."""
        return RunLengths(self.size)

    @property
    def scales(self) -> tuple[int, Format] | None:
        """The scales of the inner accumulator."""
        return self.inner.scales

    @property
    def chunk(self) -> int | None:
        """The products of as many runs as the outer sum takes at a time."""
        return None if self.outer.chunk is None else self.size * self.outer.chunk

    @property
    def resumes(self) -> bool:
        """Whether the outer sum does, and no step draws."""
        return self.outer.resumes and not any(rounding.is_stochastic for rounding in self.roundings)
