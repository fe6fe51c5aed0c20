"""Sums in a tree of neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from simfloat.accumulate.bounds import Bounds
from simfloat.accumulate.engine import Engine
from simfloat.accumulate.long_pairwise import LEAST_CUT, LongPairwise, RoundedProducts
from simfloat.accumulate.one_format import InOneFormat
from simfloat.accumulate.operand_bounds import BOUNDS_OF_ONES, OperandBounds, Problem
from simfloat.arithmetic.loops import Loop
from simfloat.arithmetic.machines import CPU, Device
from simfloat.formats import as_format, nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding


def pairwise(format: FormatLike, rounding: RoundingLike = nearest_even) -> Pairwise:
    """Products rounded to `format`, then neighbours added level by level, each sum rounded to it.

    An odd last one is carried up unchanged, so the error grows with log2 of the length (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd edition, section 4.2). A single product -0 gives -0.

    Raises ValueError for what is no format or no rounding mode, and for formats of more than 50 bits of precision,
    FP64 under nearest_even excepted.

    Examples:
        >>> ones = np.ones(8192)
        >>> sf.sum(ones, accumulate=sf.FP16), sf.sum(ones, accumulate=sf.pairwise(sf.FP16))
        (array(2048.), array(8192.))
    """
    return Pairwise(as_format(format), rounding=as_rounding(rounding))


@dataclass(frozen=True, repr=False)
class Pairwise(InOneFormat):
    """See :func:`pairwise`."""

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "pairwise"
    stages: ClassVar[int] = 2  # the sums, then the products

    @classmethod
    def loops(cls, device: Device) -> Mapping[str, Loop]:
        return device.loops.pairwise_loops.loops

    def engine(self, problem: Problem) -> Engine:
        """The fastest loop that is exact for such operands, which may cut long sums into runs."""
        engine = super().engine(problem)
        may_be_cut = problem.device is CPU and not self.rounding.is_stochastic and self.format.has_nan
        if problem.depth < LEAST_CUT or not may_be_cut:
            return engine
        rounded = OperandBounds(problem.products.after_rounding(self.format, self.rounding), self.format, True)
        runs = super().engine(Problem(BOUNDS_OF_ONES, rounded, problem.depth, problem.output, problem.rounding))
        is_inside = problem.a.bounds.are_in_format(self.format)
        products = RoundedProducts(self.format, self.rounding, runs.carrier, is_inside)
        return LongPairwise(engine, runs, products)

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """A level's sums are at most twice as large: of numbers up to 2^h they lie up to 2^(h + 1), and powers of two
        are numbers of the format, which no rounding passes."""
        return added.high + math.ceil(math.log2(max(terms, 1))) + 1
