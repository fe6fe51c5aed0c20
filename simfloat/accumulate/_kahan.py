"""Compensated sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from simfloat.accumulate.bounds import Bounds
from simfloat.accumulate.one_format import InOneFormat
from simfloat.formats import as_format, nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding


def kahan(format: FormatLike, rounding: RoundingLike = nearest_even) -> Kahan:
    """Kahan's sum: beside the sum s a correction c carries what the last addition lost; all rounded to `format`.

    For ascending k: p = a * b, y = p - c, t = s + y, c = (t - s) - y, s = t, five roundings; the result is s. Its
    error is 2 u sum |p| whatever the length (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
    section 4.3). After an overflow inf - inf makes the sum NaN, as it does in hardware.

    Raises ValueError for what is no format or no rounding mode, and for formats of more than 50 bits of precision,
    FP64 under nearest_even excepted.

    Examples:
        >>> tenths = np.full(1000, 0.1)
        >>> sf.sum(tenths, inputs=sf.FP16, accumulate=sf.FP16)
        array(105.1875)
        >>> sf.sum(tenths, inputs=sf.FP16, accumulate=sf.kahan(sf.FP16))
        array(100.)
    """
    return Kahan(as_format(format), rounding=as_rounding(rounding))


@dataclass(frozen=True, repr=False)
class Kahan(InOneFormat):
    """See :func:`kahan`."""

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "kahan"
    stages: ClassVar[int] = 5
    chunk: ClassVar[int] = 1

    #: The correction is lost where a sum is interrupted.
    resumes: ClassVar[bool] = False

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """To nearest: t = round(s + y) is no farther from s + y than s is, so t - s lies between 0 and 2y, and so does
        its rounding, for 2y is a number of the format; hence |c| <= |y|. Likewise |y| <= |c| + 2|p|, as c is a number
        of the format, so after n products |y| <= 2n max|p|, and |s| <= |initial| + 2 * (2 + 4 + ... + 2n) max|p|.
        In other modes, where t - s may be a spacing of s, however small y is, the format's largest number is the
        bound, and twice that of a sum of two.
        """
        largest = added.high if initial is None else max(added.high, initial.high)
        if self.rounding.is_to_nearest:
            return largest + 2 * math.ceil(math.log2(terms + 1)) + 2
        return max(largest, self.format.last_binade + 1) + 1
