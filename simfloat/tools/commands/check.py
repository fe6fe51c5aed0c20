"""Implement `simfloat check VECTORS`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic.memory_images import UNKNOWN, unknown_digits_message
from simfloat.arithmetic.testfloat import Kind, digits_of, exact_name, without_prefix
from simfloat.formats.exceptions import INEXACT
from simfloat.formats.rounding import MODES
from simfloat.sums.test_vectors import DOT, Case, case_of, has_single_operands, read_cases, vectors_of
from simfloat.terminal import argument_type
from simfloat.tools.commands.unit import Unit, read_unit

HELP = "compare the results in a file of test vectors with those of simfloat, and print the first line that differs"

#: The cases of a file: the number of a line, and its fields.
Cases: TypeAlias = list[tuple[int, list[str]]]

#: A code in which digits may be unknown (x) or not driven (z), as simulators write them.
CODE_OR_UNKNOWN = re.compile("[0-9a-fxz]+", re.IGNORECASE)

#: The placeholder for flags with such digits; no operation returns it.
UNKNOWN_FLAGS = 255

FLAG_NAMES = ((16, "invalid"), (8, "division by zero"), (4, "overflow"), (2, "underflow"), (1, "inexact"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file and the description of the unit."""
    parser.add_argument("vectors", metavar="VECTORS", type=argument_type(Path), help="operands, results and flags")
    parser.add_argument(
        "--unit",
        metavar="TOML",
        type=argument_type(read_unit),
        help="what the unit computes; by default the .toml file beside VECTORS, or the name OPERATION_FORMAT_MODE.txt. "
        "If it names the number of cases, VECTORS must contain all of them. All NaN are equal, whatever their payloads",
    )


def run(options: argparse.Namespace) -> int:
    """Compare the file; return 1 if a line differs or cases are missing, and 2 if the file is invalid."""
    try:
        return _compare(options.vectors, options.unit)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}."
    except ValueError as error:
        message = str(error)
    print(f"simfloat: {message}", file=sys.stderr)
    return 2


def _compare(path: Path, unit: Unit | None) -> int:
    case, count = _case(path, unit)
    cases = read_cases(path, case.operation)
    if not cases:
        raise ValueError(f"{path} has no test vectors; `simfloat vectors` writes such files.")
    if case.operation == "round" and has_single_operands(cases):
        case = case._replace(kinds=(sf.FP32, case.kinds[-1]))
    if case.operation == DOT:
        # The number of fields shows if the file has flags.
        has_flags = len(cases[0][1]) % 2 == 1
        if case.flags and not has_flags:
            raise ValueError(
                f"{path}, line {cases[0][0]}: the unit has flags = true, but the line has no flags; to compare only "
                "results, leave that key out."
            )
        case = case._replace(flags=has_flags)
    cases, unknown_results, unknown_flags = _without_unknown(cases, case)
    vectors = vectors_of(cases, case, path)
    if vectors.flags is not None:
        vectors.flags[list(unknown_flags)] = UNKNOWN_FLAGS
    result, flags = case.compute(vectors.operands)
    are_wrong = ~_are_equal(result, vectors.result)
    are_wrong[list(unknown_results)] = True
    differs = are_wrong
    if flags is not None and vectors.flags is not None:
        differs = are_wrong | (flags != vectors.flags) & ~vectors.signalling
    if np.isnan(result).any():
        print("All NaN are equal: payloads are not compared.")
    missing = max(count - len(cases), 0)
    if missing:
        print(f"{path} has {len(cases)} of the {count} cases of its unit: {missing} are missing.")
    if not differs.any():
        print(f"{len(cases)} cases of {_title(case)} agree.")
        return 1 if missing else 0
    place = int(np.argmax(differs))
    wrong = "the result differs" if are_wrong[place] else "the flags differ"
    print(f"{path}, line {cases[place][0]}: {wrong}. {_title(case)}:")
    for name, operand, kind in zip(_names(case), vectors.operands, case.kinds, strict=False):
        print(f"  {name:8} {_text_of(operand[place], kind)}")
    print(f"  {'expected':8} {_text_of(result[place], case.kinds[-1])}{_flags(flags, place)}")
    in_file, flags_in_file = _text_of(vectors.result[place], case.kinds[-1]), _flags(vectors.flags, place, flags)
    if place in unknown_results:
        in_file, flags_in_file = unknown_digits_message(unknown_results[place]), ""
    elif place in unknown_flags:
        flags_in_file = f", flags {unknown_digits_message(unknown_flags[place])}"
    print(f"  {'found':8} {in_file}{flags_in_file}")
    print(f"{np.count_nonzero(differs)} of {len(cases)} lines differ.")
    if (
        flags is not None
        and vectors.flags is not None
        and not are_wrong.any()
        and ((flags ^ vectors.flags)[differs] == INEXACT).all()
    ):
        _print_exact_name(case)
    return 1


def _without_unknown(cases: Cases, case: Case) -> tuple[Cases, dict[int, str], dict[int, str]]:
    """Return the cases with zeros for results and flags with digits x or z, and the texts of these by their places."""
    widths = [digits_of(case.kinds[-1]), *([2] if case.has_flags else [])]
    texts: tuple[dict[int, str], dict[int, str]] = {}, {}
    known: Cases = []
    for place, (number, fields) in enumerate(cases):
        last = fields[-len(widths) :]
        for n, (text, width) in enumerate(zip(last, widths, strict=False)):
            text = without_prefix(text, width)
            if len(text) == width and CODE_OR_UNKNOWN.fullmatch(text) and UNKNOWN.search(text):
                last[n], texts[n][place] = "0" * width, text
        known.append((number, [*fields[: -len(widths)], *last]))
    return known, *texts


def _print_exact_name(case: Case) -> None:
    """Name the variant of TestFloat's operation that raises inexact, if there is one."""
    if case.signature is not None and case.signature.hides_inexact:
        print(f"{case.operation} never raises inexact; TestFloat's {exact_name(case.operation)} does.")


def _case(path: Path, unit: Unit | None) -> tuple[Case, int]:
    """Return the operation of a file, and the number of its cases, or 0 if no description contains it."""
    beside = path.with_suffix(".toml")
    if unit is not None or beside.exists():
        unit = unit or read_unit(str(beside))
        return unit.case, unit.cases if unit.describes_file or "cases" in unit.description else 0
    operation, _, rest = path.stem.partition("_")
    format, _, mode = rest.partition("_")
    if mode in MODES:
        return case_of(operation, format, mode), 0
    raise ValueError(f"No description of {path}: pass --unit unit.toml, or write {beside.name} beside it.")


def _title(case: Case) -> str:
    how = case.accumulator if case.operation == DOT else case.rounding
    if case.operation == DOT and case.rounding != sf.nearest_even:
        how = f"{how}, rounded {case.rounding}"
    formats = "" if case.signature else f" in {case.kinds[0]}"
    if case.operation == DOT and case.kinds[1] != case.kinds[0]:
        formats += f" and {case.kinds[1]}"
    output = f" to {case.kinds[-1]}" if not case.signature and case.kinds[-1] != case.kinds[0] else ""
    return f"{case.operation}{formats}{output}, {how}"


def _names(case: Case) -> list[str]:
    if case.block:
        return ["a", "b", "scales a", "scales b", "c"]
    return ["a", "b", "c"] if len(case.kinds) > 2 else ["x"]


def _are_equal(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return True for equal results: NaN equals NaN, and -0 differs from +0."""
    if a.dtype.kind != "f":
        return np.asarray(a == b)
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def _text_of(value: Any, kind: Kind) -> str:
    """Return numbers with their codes."""
    if np.ndim(value):
        return "; ".join(_text_of(one, kind) for one in value)
    return f"{float(value)!r} ({sf.to_hex(value, kind)})" if isinstance(kind, sf.Format) else str(value)


def _flags(flags: NDArray[np.uint8] | None, place: int, other: Any = True) -> str:
    """Return the names of flags; nothing for an operation without flags."""
    if flags is None or other is None:
        return ""
    names = [name for bit, name in FLAG_NAMES if flags[place] & bit]
    return f", flags {int(flags[place]):02x}: {', '.join(names) or 'none'}"
