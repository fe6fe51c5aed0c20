"""Compensated sums."""

from __future__ import annotations

from typing import ClassVar

from simfloat.accumulate.stepwise import Stepwise
from simfloat.formats import Format, Rounding, as_format, nearest_even


def kahan(format: Format | str, *, rounding: Rounding = nearest_even) -> Kahan:
    """Kahan's sum: beside the sum s a correction c carries what the last addition lost; all rounded to `format`.

    For ascending k: p = a * b, y = p - c, t = s + y, c = (t - s) - y, s = t, five roundings; the result is s. Its
    error is 2 u sum |p| whatever the length (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
    section 4.3). After an overflow inf - inf makes the sum NaN, as it does in hardware.

    Raises ValueError for formats of more than 50 bits of precision, FP64 under nearest_even excepted.
    """
    return Kahan(as_format(format), rounding)


class Kahan(Stepwise):
    """See :func:`kahan`."""

    kernel: ClassVar[str] = "kahan"
    stages: ClassVar[int] = 5
    operations: ClassVar[int] = 5
