"""The values that describe the range and the precision of a format, under the names of NumPy."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike, as_format
from simfloat.formats.definition import round_value
from simfloat.formats.format import Format
from simfloat.formats.rounding import nearest_even


class FormatInfo(NamedTuple):
    """The result of :func:`simfloat.finfo`: the fields of numpy.finfo, as Python numbers."""

    bits: int  # of a code
    eps: float  # distance from 1 to the next larger number
    epsneg: float  # distance from 1 to the next smaller number
    iexp: int  # bits of the exponent
    machep: int  # log2(eps)
    max: float  # largest finite number
    maxexp: int  # exponent of the smallest power of two that is too large
    min: float  # most negative number
    minexp: int  # exponent of the smallest normal number
    negep: int  # log2(epsneg)
    nexp: int  # bits of the exponent
    nmant: int  # bits of the mantissa
    precision: int  # decimal digits that are always kept, approximately
    resolution: float  # 10^-precision, as a number of the format
    tiny: float  # smallest normal number
    smallest_normal: float
    smallest_subnormal: float


@in_usual_environment
def finfo(format: FormatLike) -> FormatInfo:
    """Return the limits of a format, with the fields of numpy.finfo.

    They equal the values of numpy.finfo for float16, float32 and float64, and of ml_dtypes.finfo for its types.

    Parameters:
        format: the format, or anything that :func:`simfloat.as_format` reads.

    Returns:
        FormatInfo: a tuple with the fields of numpy.finfo, as Python numbers.

    Raises:
        ValueError: if `format` is invalid.

    Examples:
        >>> sf.finfo(sf.BF16).eps, sf.finfo("fp16").max
        (0.0078125, 65504.0)
    """
    return _finfo(as_format(format))


@lru_cache(maxsize=64)
def _finfo(format: Format) -> FormatInfo:
    if format.is_fixed:
        return _fixed_point_limits(format)
    # The spacing below one is half of the spacing above, unless one is the smallest normal number.
    negep = max(-format.precision, format.emin - format.mantissa_bits if format.has_zero else -format.precision)
    precision = math.floor(format.mantissa_bits * math.log10(2))
    if format.bits >= 8:
        precision = max(precision, 1)  # as in ml_dtypes
    return FormatInfo(
        bits=format.bits,
        eps=format.eps,
        epsneg=2.0**negep,
        iexp=format.exponent_bits,
        machep=-format.mantissa_bits,
        max=format.max,
        maxexp=format.emax + 1,
        min=format.min,
        minexp=format.emin,
        negep=negep,
        nexp=format.exponent_bits,
        nmant=format.mantissa_bits,
        precision=precision,
        resolution=round_value(Fraction(1, 10**precision), format, nearest_even),
        tiny=format.smallest_normal,
        smallest_normal=format.smallest_normal,
        smallest_subnormal=format.smallest_subnormal,
    )


def _fixed_point_limits(format: Format) -> FormatInfo:
    """Return the limits of fixed-point numbers, which have no exponent and a constant spacing."""
    digits = format.bits - format.signed
    return FormatInfo(
        bits=format.bits,
        eps=format.eps,
        epsneg=format.eps,
        iexp=0,
        machep=-format.fraction_bits,
        max=format.max,
        maxexp=math.frexp(format.max)[1],
        min=format.min,
        minexp=-format.fraction_bits,
        negep=-format.fraction_bits,
        nexp=0,
        nmant=digits,
        precision=math.floor(digits * math.log10(2)),
        resolution=format.eps,
        tiny=format.eps,
        smallest_normal=format.eps,
        smallest_subnormal=format.eps,
    )
