"""Sums in a tree of neighbours."""

from __future__ import annotations

from typing import ClassVar

from simfloat.accumulate.stepwise import Stepwise
from simfloat.formats import Format, Rounding, as_format, nearest_even


def pairwise(format: Format | str, *, rounding: Rounding = nearest_even) -> Pairwise:
    """Products rounded to `format`, then neighbours added level by level, each sum rounded to it.

    An odd last one is carried up unchanged, so the error grows with log2 of the length (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd edition, section 4.2). A single product -0 gives -0.

    Raises ValueError for formats of more than 50 bits of precision, FP64 under nearest_even excepted.
    """
    return Pairwise(as_format(format), rounding)


class Pairwise(Stepwise):
    """See :func:`pairwise`."""

    kernel: ClassVar[str] = "pairwise"
    stages: ClassVar[int] = 2
    operations: ClassVar[int] = 2
