"""Implement `simfloat round X FORMAT [--rounding MODE]`."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator
from fractions import Fraction

import simfloat as sf
from simfloat.common import table
from simfloat.formats.definition import floor_log2, round_value
from simfloat.formats.exact_numbers import exact_number
from simfloat.formats.rounding import as_rounding
from simfloat.formats.text import binary_code, hexadecimal_code
from simfloat.terminal import argument_type

HELP = "round a number to a format: the result, its code, its error and its neighbours"
HEAD = ("", "number", "as a hexadecimal float", "code", "its bits", "number - x")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number, the format and the rounding mode."""
    number = "0.1, 1e-5, 1/3, 0x1.8p-3, inf or nan; read exactly"
    parser.add_argument("x", metavar="X", type=argument_type(lambda text: (text, read_number(text))), help=number)
    parser.add_argument(
        "format", metavar="FORMAT", type=argument_type(sf.as_format), help="FP16, e4m3, bfloat16, e5m10 ..."
    )
    modes = "nearest_even (default), toward_zero, nearest_even.saturating() ..."
    parser.add_argument(
        "--rounding", metavar="MODE", type=argument_type(read_rounding), default=sf.nearest_even, help=modes
    )


def read_rounding(text: str) -> sf.Rounding:
    """Return the deterministic rounding mode of a text; raise ValueError for any other text."""
    rounding = as_rounding(text)
    if rounding.is_stochastic:
        raise ValueError(f"{text} needs random bits; its results are the numbers on both sides of X.")
    return rounding


def run(options: argparse.Namespace) -> int:
    """Round the number by the definition, and print the result between its neighbours; return 2 if it has no result."""
    (text, x), format = options.x, options.format
    try:
        result = round_value(x, format, options.rounding)
    except ValueError as error:  # a NaN in a format without NaN
        print(f"simfloat round: {error}", file=sys.stderr)
        return 2
    print(f"{text} in {format}, rounded by {options.rounding}:\n")
    print(table([HEAD, *(_row(name, value, x, format) for name, value in with_neighbours(result, format))]))
    return 0


def with_neighbours(number: float, format: sf.Format) -> Iterator[tuple[str, float]]:
    """Yield a number of the format and its neighbours below and above, if they exist."""
    for name, side in (("below", -math.inf), ("result", number), ("above", math.inf)):
        value = float(sf.nextafter(number, side, format))
        if name == "result" or not (math.isnan(value) or value == number):
            yield name, value


def _row(name: str, value: float, x: Fraction | float, format: sf.Format) -> tuple[str, ...]:
    """Return the cells of a number of the format."""
    code = int(sf.encode(value, format))
    return (
        name,
        repr(value),
        short_hex(value),
        hexadecimal_code(code, format),
        binary_code(code, format),
        error(value, x, format),
    )


def error(value: float, x: Fraction | float, format: sf.Format) -> str:
    """Return the difference of the value and x, in units in the last place of the format at x."""
    if not math.isfinite(value) or (isinstance(x, float) and not math.isfinite(x)):
        return "-"
    exact = Fraction(x)
    ulps = (Fraction(value) - exact) / spacing(exact, format)
    return f"{float(ulps):+.6g} ulp" if ulps else "exact"


def spacing(x: Fraction, format: sf.Format) -> Fraction:
    """Return the spacing of the format at a number, like :func:`simfloat.ulp`, also outside the range of float64."""
    if abs(x) < Fraction(format.smallest_normal) or format.is_fixed:
        return Fraction(format.smallest_subnormal)
    return Fraction(2) ** (floor_log2(abs(x)) - format.mantissa_bits)


def read_number(text: str) -> Fraction | float:
    """Return the number in a text exactly, as :func:`simfloat.formats.exact_numbers.exact_number` reads it."""
    try:
        return exact_number(text)
    except ValueError as error:
        raise ValueError(f"{error}.") from None


def short_hex(value: float) -> str:
    """Return Python's hexadecimal text of a float without trailing zeros."""
    return re.sub(r"\.?0*p", "p", value.hex(), count=1)
