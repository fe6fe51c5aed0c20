"""The widest of several formats: what an operation that a list of casts leaves alone computes in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from simfloat.formats import CATALOG, FP64, Format

#: What results are stored in: TF32 is a format of operands, and takes the memory of FP32.
STORAGE_FORMATS = sorted(
    (format for format in CATALOG.values() if format.bits in (8, 16, 32, 64)), key=lambda f: f.bits
)


def widest_format(formats: Iterable[Format]) -> Format:
    """The format that holds the numbers of all the others.

    If none of them does, the smallest format of the catalog that does: FP32 for FP16 and BF16.
    """
    result: Format | None = None
    for format in formats:
        result = format if result is None else _wider(result, format)
    if result is None:
        raise ValueError("The widest of no formats is asked for: an operation needs an operand.")
    return result


@cache
def _wider(a: Format, b: Format) -> Format:
    candidates = (a, b, *STORAGE_FORMATS)
    return next((format for format in candidates if contains(format, a) and contains(format, b)), FP64)


def contains(wide: Format, narrow: Format) -> bool:
    """Whether every number of one format is a number of the other."""
    return (
        wide.precision >= narrow.precision
        and wide.min <= narrow.min
        and wide.max >= narrow.max
        and wide.smallest_subnormal <= narrow.smallest_subnormal
        and (wide.signed or not narrow.signed)
        and (wide.has_infinity or not narrow.has_infinity)
        and (wide.has_nan or not narrow.has_nan)
        and (wide.has_negative_zero or not narrow.has_negative_zero)
    )
