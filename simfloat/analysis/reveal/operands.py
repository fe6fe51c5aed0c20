"""The formats to which an unknown function rounds its operands, if its results show them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfloat.analysis.reveal.probe import BlackBox, OutOfCalls
from simfloat.arithmetic.operations import round
from simfloat.formats import BF16, E4M3, E5M2, FP16, TF32, Format

#: The formats that operands may be rounded to, the narrowest first.
FORMATS = (E4M3, E5M2, FP16, BF16, TF32)

#: A rounding that changes an operand must keep the results of all sums: the number of sums that are tried, and the
#: number that is enough if there are no more.
COMPARED, ENOUGH = 48, 16

Row = tuple[NDArray, NDArray, float]


def rounded_operands(box: BlackBox) -> tuple[Format, Format]:
    """Return for each operand the narrowest format that it can be rounded to without changing a result.

    An operand without such a format has the format of the box; both have it if no calls are left.
    """
    rows = [
        (a, b, result)
        for sums in box.sums()
        for a, b, result in zip(sums.a, sums.b, sums.results.tolist(), strict=True)
        if np.isfinite(result)
    ]
    try:
        first, second = (_format_of_operand(box, side, rows) for side in (0, 1))
    except OutOfCalls:
        return box.inputs
    return first, second


def _format_of_operand(box: BlackBox, side: int, rows: Sequence[Row]) -> Format:
    for format in FORMATS:
        count = 0
        for *operands, result in rows:
            rounded = round(operands[side], format)
            if np.isfinite(rounded).all() and (rounded != operands[side]).any():
                count += 1
                operands[side] = rounded
                if box(*operands) != result:
                    count = 0
                    break
            if count == COMPARED:
                break
        if count >= ENOUGH and not _exceeds(box, side, format) and not _keeps_next_bit(box, side, format):
            return format
    return box.inputs[side]


def _exceeds(box: BlackBox, side: int, format: Format) -> bool:
    """Return True if a power of two beyond the largest number of the format keeps its value, times 1/8.

    FP16 and TF32 have the same precision, and differ only in range.
    """
    power = 2.0 ** (format.emax + 1)
    if power > box.inputs[side].max:
        return False
    return _keeps(box, side, power, 0.125)


def _keeps_next_bit(box: BlackBox, side: int, format: Format) -> bool:
    """Return True if an operand keeps the bit after the last bit of the format.

    A function with FP16 sums shows no change of most operands that are rounded to BF16, but it shows this one.
    """
    return _keeps(box, side, 1 + format.unit_roundoff, 1.0)


def _keeps(box: BlackBox, side: int, x: float, factor: float) -> bool:
    """Return True if the function returns x times the factor, which is exact, for x as an operand of this side."""
    operands = np.zeros((2, box.terms))
    operands[side, 0], operands[1 - side, 0] = x, factor
    return box(*operands) == x * factor


def results_format(box: BlackBox) -> Format | None:
    """Return the first of `FORMATS` that can represent all finite results, or None."""
    results = np.concatenate([sums.results for sums in box.sums()])
    results = results[np.isfinite(results)]
    for format in FORMATS:
        if results.size and (round(results, format) == results).all():
            return format
    return None
