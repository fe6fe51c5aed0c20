"""Implement `simfloat vectors FOLDER` and `simfloat vectors FOLDER --unit unit.toml`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.formats.rounding import MODES, VARIANTS
from simfloat.sums.vector_cases import case_of
from simfloat.terminal import argument_type
from simfloat.tools.commands.special_sums import special_sums
from simfloat.tools.commands.unit import KEYS, Unit, read_unit

HELP = "write test vectors for RTL, another simulator or another language"

#: The version of the files; it changes whenever one of them does.
VERSION = 5

CASES = 200
OPERATIONS = ("round", "add", "subtract", "multiply", "divide", "fma", "sqrt")
FORMATS = (sf.E4M3, sf.E5M2, sf.FP16, sf.BF16, sf.FP32)

#: Modes that version 4 added. Their seeds follow those of all other files, whose operands remain the same.
LATER_MODES = tuple(mode.mode for mode in (sf.nearest_toward_zero, sf.nearest_up, sf.nearest_down))

#: The number of products in a sum, and of sums in a file beside the special ones.
TERMS, SUMS = 11, 40

#: File name -> the accumulator and the format of its results.
ACCUMULATORS: dict[str, tuple[sf.Accumulator, sf.Format]] = {
    "sequential": (sf.sequential(sf.FP16), sf.FP16),
    f"sequential_{sf.toward_zero}": (sf.sequential(sf.FP16, rounding=sf.toward_zero), sf.FP16),
    "sequential_products": (sf.sequential(sf.FP32, products=sf.FP16), sf.FP32),
    "kahan": (sf.kahan(sf.FP16), sf.FP16),
    "pairwise": (sf.pairwise(sf.FP16), sf.FP16),
    "blocked_4": (sf.blocked(4, sf.FP16, sf.FP32), sf.FP32),
    "fused_4_23": (sf.fused(4, 23), sf.FP32),
    "fused_8_24": (sf.fused(8, 24, sf.FP16), sf.FP16),
    "exact": (sf.exact, sf.FP32),
}

ABOUT = """version {version}
Test vectors of simfloat {simfloat}, by `simfloat vectors`. What they mean: docs/specification.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder, and the description of a unit."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "keys of TOML:\n" + "\n".join(f"  {key:10} {meaning}" for key, meaning in KEYS.items())
    parser.add_argument("folder", metavar="FOLDER", type=argument_type(Path), help="created if it is missing")
    parser.add_argument(
        "--unit",
        metavar="TOML",
        type=argument_type(read_unit),
        help="write vectors of the unit that this file describes",
    )


def run(options: argparse.Namespace) -> int:
    """Write all files."""
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    unit: Unit | None = options.unit
    if unit is not None:
        path = folder / f"{unit.name}.txt"
        try:
            unit.write(path)
        except ValueError as error:
            print(f"simfloat: {unit.name}.toml: {error}", file=sys.stderr)
            return 2
        description = path.with_suffix(".toml")
        description.write_text(unit.text(), encoding="utf-8", newline="\n")
        print(f"{unit.cases} cases in {path}. To compare the results of your unit:")
        print(f"simfloat check FILE --unit {description}")
        return 0
    about = ABOUT.format(version=VERSION, simfloat=sf.__version__)
    (folder / "README.txt").write_text(about, encoding="ascii", newline="\n")
    written = 1 + _write_operations(folder)
    files: dict[str, Iterator[str]] = {"draws.txt": _draws()}
    for variant, bits in product(VARIANTS, (3, 12)):
        files[f"stochastic_{variant}_{bits}.txt"] = _stochastic(sf.stochastic(bits, variant))
    for name, (accumulator, output) in ACCUMULATORS.items():
        files[f"sums_{name}.txt"] = _sums(accumulator, output)
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="ascii", newline="\n")
    print(f"{written + len(files)} files in {folder}, version {VERSION}.")
    return 0


def _write_operations(folder: Path) -> int:
    """Write operands, results and flags of every format to nearest even, and of FP16 in every mode; count the files."""
    written, first_modes = 0, [mode for mode in MODES if mode not in LATER_MODES]
    files = [*product(OPERATIONS, FORMATS, first_modes), *product(OPERATIONS, FORMATS, LATER_MODES)]
    for number, (operation, format, mode) in enumerate(files):
        if mode == sf.nearest_even.mode or format == sf.FP16:
            path = folder / f"{operation}_{format}_{mode}.txt"
            Unit(path.stem, {}, case_of(operation, format, mode), 1, CASES, number).write(path)
            written += 1
    return written


def _draws() -> Iterator[str]:
    """Yield lines of: seed, call, stage, element, step, and the four random words."""
    from simfloat.kernels.rounding.random import words_at

    for seed, call, stage, element, step in product((0, 2**64 - 1), (0, 2**33 + 1), (0, 5), (0, 2**32 + 7), (0, 9)):
        words = words_at(*(np.uint64(x) for x in (element, step, call, stage, seed)))
        yield f"{seed:x} {call:x} {stage:x} {element:x} {step:x} " + " ".join(f"{int(word):08x}" for word in words)


def _stochastic(rounding: sf.Rounding) -> Iterator[str]:
    """Yield lines of: an FP64 number, its random bits, and the rounded FP16 number."""
    words = random_words(Draw(0, 1), 0, 2 * CASES).reshape(2, CASES)
    x = 1.0 + words[0] / 2.0**32 * 2.0**-8
    draws = words[1] >> np.uint32(32 - rounding.bits)
    rounded = sf.round(x, sf.FP16, rounding, stream=sf.GivenBits(draws))
    for number, draw, result in zip(x, draws, rounded, strict=True):
        yield f"{sf.to_hex(number, sf.FP64)} {draw:x} {sf.to_hex(result, sf.FP16)}"


def _sums(accumulator: sf.Accumulator, output: sf.Format) -> Iterator[str]:
    """Yield lines of: the number of products, their factors in FP16, and the sum. Special sums come first."""
    words = random_words(Draw(0, 2), 0, 2 * SUMS * TERMS + 2).astype(np.int64)[: 2 * SUMS * TERMS]
    # Signs, eleven bits and a few binades: sums have cancellations, ties and subnormal results.
    significands = ((words >> 8) % 2048 + 2048) * (1 - 2 * (words & 1))
    a, b = sf.round(significands * 2.0 ** ((words >> 20) % 16 - 20.0), sf.FP16).reshape(2, SUMS, TERMS)
    a[:, -1], b[::2, -1] = -a[:, 0], b[::2, 0]
    first = special_sums((sf.FP16, sf.FP16, output), TERMS, accumulator.chunk, has_addend=False)
    for x, y in zip(np.concatenate([first[0], a]), np.concatenate([first[1], b]), strict=True):
        total = sf.dot(x, y, inputs=sf.FP16, accumulate=accumulator, output=output)
        pairs = " ".join(sf.to_hex(np.stack([x, y], axis=1).reshape(-1), sf.FP16))
        yield f"{TERMS} {pairs} {sf.to_hex(total, output)}"
