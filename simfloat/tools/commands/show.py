"""Implement `simfloat show FORMAT`."""

from __future__ import annotations

import argparse
import shutil

import numpy as np

import simfloat as sf
from simfloat.common import Table, table
from simfloat.formats.definition import round_value
from simfloat.formats.text import binary_code, format_facts, hexadecimal_code
from simfloat.terminal import argument_type

HELP = "the facts of a format, its codes, and the numbers around 1"

#: All codes are listed for formats of at most this many bits.
LISTED_BITS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument(
        "format", metavar="FORMAT", type=argument_type(sf.as_format), help="FP16, e4m3, bfloat16, e5m10 ..."
    )


def run(options: argparse.Namespace) -> int:
    """Print the facts of the format."""
    format = options.format
    print(f"{format} = {format!r}\n\n{format_facts(format)}")
    if format.min <= 1.0 <= format.max and round_value(1.0, format, sf.nearest_even) == 1.0:
        print(f"\n{with_neighbours_of_one(format)}")
    if format.bits <= LISTED_BITS:
        print(f"\n{all_codes(format, shutil.get_terminal_size((100, 24)).columns)}")
    return 0


def with_neighbours_of_one(format: sf.Format) -> Table:
    """Return a table of 1 and its neighbours, with their codes."""
    numbers = [float(sf.nextafter(1.0, side, format)) for side in (-np.inf, 1.0, np.inf)]
    codes = sf.encode(numbers, format).tolist()
    names = ("1 and its neighbours", "", "")
    rows = [
        (n, repr(x), hexadecimal_code(c, format), binary_code(c, format))
        for n, x, c in zip(names, numbers, codes, strict=True)
    ]
    return table(rows, has_head=False)


def all_codes(format: sf.Format, width: int) -> str:
    """Return every code with its value, in as many columns as fit into the width."""
    codes = np.arange(2**format.bits)
    if format.special == "fixed_symmetric":
        codes = np.delete(codes, 2 ** (format.bits - 1))  # the lowest code of two's complement is not a number
    numbers = sf.decode(codes, format).tolist()
    cells = [
        (hexadecimal_code(code, format)[2:], repr(number)) for code, number in zip(codes.tolist(), numbers, strict=True)
    ]
    entries = table(cells, has_head=False).splitlines()
    room = max(map(len, entries))
    columns = max(1, (width + 3) // (room + 3))
    height = -(-len(entries) // columns)
    lines = (" | ".join(entry.ljust(room) for entry in entries[i::height]).rstrip() for i in range(height))
    return "\n".join(lines)
