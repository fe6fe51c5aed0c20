"""Implement `simfloat check VECTORS`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic.memory_images import UNKNOWN, unknown_digits_message
from simfloat.arithmetic.testfloat import Kind, digits_of, exact_name, read_field, without_prefix
from simfloat.formats.exceptions import INEXACT
from simfloat.formats.rounding import MODES
from simfloat.sums.test_vectors import Vectors, has_single_operands, read_cases, vectors_of
from simfloat.sums.vector_cases import DOT, Case, case_of
from simfloat.terminal import argument_type
from simfloat.tools.commands.unit import VERSION, Unit, read_unit

HELP = "compare the results in a file of test vectors with those of simfloat, and print the first line that differs"

#: The cases of a file: the number of a line, and its fields.
Cases: TypeAlias = list[tuple[int, list[str]]]

#: The placeholder for flags with digits that are unknown (x) or not driven (z); no operation returns it.
UNKNOWN_FLAGS = 255

#: The message on missing cases lists at most this many repeated lines, and as many lines with other operands.
MOST_LINES = 3

FLAG_NAMES = ((16, "invalid"), (8, "division by zero"), (4, "overflow"), (2, "underflow"), (1, "inexact"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file and the description of the unit."""
    parser.add_argument("vectors", metavar="VECTORS", type=argument_type(Path), help="operands, results and flags")
    parser.add_argument(
        "--unit",
        metavar="TOML",
        type=argument_type(read_unit),
        help="what the unit computes; by default the .toml file beside VECTORS, or the name OPERATION_FORMAT_MODE.txt. "
        "If it names the number of cases, VECTORS must contain all of them, in any order. All NaN are equal, whatever "
        "their payloads",
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
    case, unit = _case(path, unit)
    cases = read_cases(path, case.operation)
    if not cases:
        raise ValueError(f"{path} has no test vectors; `simfloat vectors` writes such files.")
    if case.operation == "round" and case.kinds[0] == sf.FP64 and has_single_operands(cases):
        case = case._replace(kinds=(sf.FP32, *case.kinds[1:]))
    if case.operation == DOT:
        # The number of fields shows if the file has flags.
        has_flags = (len(cases[0][1]) - case.draws) % 2 == 1
        if case.flags and not has_flags:
            raise ValueError(
                f"{path}, line {cases[0][0]}: the unit has flags = true, but the line has no flags; to compare only "
                "results, leave that key out."
            )
        case = case._replace(flags=has_flags)
    cases, unknown_results, unknown_flags = _without_unknown(cases, case)
    vectors = vectors_of(cases, case, path)
    file_flags = vectors.flags
    file_flags[list(unknown_flags)] = UNKNOWN_FLAGS
    result, flags = case.signal(*case.compute(vectors.operands), vectors.signalling)
    are_wrong = ~_are_equal(result, vectors.result)
    are_wrong[list(unknown_results)] = True
    differs = are_wrong
    if flags is not None:
        differs = are_wrong | (flags != file_flags)
    if np.isnan(result).any():
        print("All NaN are equal: payloads are not compared.")
    is_complete = unit is None or not unit.names_cases or _has_all_cases(path, unit, case, cases, vectors)
    if not differs.any():
        agreement = f"{len(cases)} cases of {_title(case)} agree"
        print(f"{agreement}." if is_complete else f"Failed: {agreement}, but cases of the unit are missing.")
        return 0 if is_complete else 1
    place = int(np.argmax(differs))
    wrong = "the result differs" if are_wrong[place] else "the flags differ"
    print(f"{path}, line {cases[place][0]}: {wrong}. {_title(case)}:")
    *codes, of_result = _codes_of(cases[place][1], case)
    for name, operand, kind, of_operand in zip(case.names, vectors.operands, case.kinds, codes, strict=False):
        print(f"  {name:8} {_text_of(operand[place], kind, of_operand)}")
    print(f"  {'expected':8} {_text_of(result[place], case.kinds[-1])}{_flags(flags, place)}")
    text = _text_of(vectors.result[place], case.kinds[-1], of_result)
    of_flags = _flags(file_flags, place, flags)
    if place in unknown_results:
        text, of_flags = unknown_digits_message(unknown_results[place]), ""
    elif place in unknown_flags:
        of_flags = f", flags {unknown_digits_message(unknown_flags[place])}"
    print(f"  {'found':8} {text}{of_flags}")
    print(f"{np.count_nonzero(differs)} of {len(cases)} lines differ.")
    if flags is not None and not are_wrong.any() and ((flags ^ file_flags)[differs] == INEXACT).all():
        _print_exact_name(case)
    return 1


def _has_all_cases(path: Path, unit: Unit, case: Case, cases: Cases, vectors: Vectors) -> bool:
    """Return True if a file has all cases of its unit; otherwise print their number, and lines that replace them."""
    missing, lines = max(unit.cases - len(cases), 0), ""
    if unit.version in (None, VERSION) and case.kinds == unit.case.kinds:
        absent, repeated, others = _compare_operands(unit, case, vectors)
        if unit.version is not None or not others:
            missing = absent
            numbers = [number for number, _ in cases]
            lines = _replacement_lines(
                path, [(numbers[n], numbers[first]) for n, first in repeated], [numbers[n] for n in others]
            )
        elif not missing:
            print(
                f"Line {cases[others[0]][0]} is not a case that this version of simfloat writes for the unit, so only "
                "the number of cases was checked."
            )
    if missing:
        verb = "is" if missing == 1 else "are"
        print(
            f"{path} has {unit.cases - missing} of the {unit.cases} cases of its unit: {missing} {verb} missing.{lines}"
        )
    return missing == 0


def _replacement_lines(path: Path, repeated: list[tuple[int, int]], others: list[int]) -> str:
    """Return sentences on the first lines that replace missing cases."""
    texts = [f"line {number} repeats line {first}" for number, first in repeated[:MOST_LINES]]
    texts += [f"line {number} has operands of no case" for number in others[:MOST_LINES]]
    rest = max(len(repeated) - MOST_LINES, 0) + max(len(others) - MOST_LINES, 0)
    texts += [f"and so on in {rest} more lines"] if rest else []
    return f"\n{path}: {', '.join(texts)}." if texts else ""


def _compare_operands(unit: Unit, case: Case, vectors: Vectors) -> tuple[int, list[tuple[int, int]], list[int]]:
    """Compare the operands of a file with those of its unit, in any order.

    Return the number of missing cases; for each line that repeats a case more often than the unit does, its place and
    the place of the first line with this case; and the places of lines that are not cases of the unit.
    """
    due = Counter(_rows_of_codes(unit.operands(), unit.case))
    absent, first_places = due.copy(), dict[bytes, int]()
    repeated, others = [], []
    for place, row in enumerate(_rows_of_codes(vectors.operands, case)):
        first = first_places.setdefault(row, place)
        absent[row] -= 1
        if row not in due:
            others.append(place)
        elif absent[row] < 0:
            repeated.append((place, first))
    return sum(max(count, 0) for count in absent.values()), repeated, others


def _rows_of_codes(operands: Sequence[NDArray[Any]], case: Case) -> list[bytes]:
    """Return the codes of the operands of each case; all NaN have one code."""
    columns = []
    for x, kind in zip(operands, case.kinds, strict=False):
        codes = sf.encode(x, kind) if isinstance(kind, sf.Format) else x.astype(kind).view(f"u{kind.itemsize}")
        columns.append(codes.astype(np.uint64).reshape(len(x), -1))
    return [row.tobytes() for row in np.hstack(columns)]


def _without_unknown(cases: Cases, case: Case) -> tuple[Cases, dict[int, str], dict[int, str]]:
    """Return the cases with zeros for results and flags with digits x or z, and the texts of these by their places."""
    widths = [digits_of(case.kinds[-1]), *([2] if case.has_flags else [])]
    texts: tuple[dict[int, str], dict[int, str]] = {}, {}
    known: Cases = []
    for place, (number, fields) in enumerate(cases):
        last = fields[-len(widths) :]
        for n, (text, width) in enumerate(zip(last, widths, strict=False)):
            text = without_prefix(text, width)
            if len(text) == width and UNKNOWN.fullmatch(text):
                last[n], texts[n][place] = "0" * width, text
        known.append((number, [*fields[: -len(widths)], *last]))
    return known, *texts


def _print_exact_name(case: Case) -> None:
    """Name the variant of TestFloat's operation that raises inexact, if there is one."""
    if case.signature is not None and case.signature.hides_inexact:
        print(f"{case.operation} never raises inexact; TestFloat's {exact_name(case.operation)} does.")


def _case(path: Path, unit: Unit | None) -> tuple[Case, Unit | None]:
    """Return the operation of a file, and its unit if a description of it exists."""
    beside = path.with_suffix(".toml")
    if unit is not None or beside.exists():
        unit = unit or read_unit(str(beside))
        return unit.case, unit
    operation, _, rest = path.stem.partition("_")
    format, _, mode = rest.partition("_")
    if mode in MODES:
        return case_of(operation, format, mode), None
    raise ValueError(
        f"No description of {path}: pass --unit unit.toml, or write {beside.name} beside it. A file of one operation "
        "needs none if its name is OPERATION_FORMAT_MODE.txt, such as fma_BF16_toward_negative.txt."
    )


def _title(case: Case) -> str:
    how = str(case.accumulator if case.operation == DOT else case.rounding)
    if case.operation == DOT and case.rounding != sf.nearest_even:
        how += f", rounded {case.rounding}"
    how += ", wrapping" if case.wraps else ""
    how += f", invalid as {case.invalid}" if case.invalid != Case._field_defaults["invalid"] else ""
    formats = "" if case.signature and not case.signature.takes_format else f" in {case.kinds[0]}"
    if case.operation == DOT and case.kinds[1] != case.kinds[0]:
        formats += f" and {case.kinds[1]}"
    output = f" to {case.kinds[-1]}" if not case.signature and case.kinds[-1] != case.kinds[0] else ""
    return f"{case.operation}{formats}{output}, {how}"


def _are_equal(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return True for equal results: NaN equals NaN, and -0 differs from +0."""
    if a.dtype.kind != "f":
        return np.asarray(a == b)
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def _codes_of(fields: Sequence[str], case: Case) -> list[list[int]]:
    """Return the codes in the fields of a line: a list for each operand, and one for the result."""
    kinds, counts = case.columns(len(fields))
    codes = [read_field(text, kind) for text, kind in zip(fields, kinds, strict=False)]
    ends = np.cumsum([*counts, 1]).tolist()
    return [codes[end - count : end] for end, count in zip(ends, [*counts, 1], strict=True)]


def _text_of(value: Any, kind: Kind, codes: Sequence[int] | None = None) -> str:
    """Return numbers with their codes: those of a file, or those to which the numbers encode."""
    if not isinstance(kind, sf.Format):
        return "; ".join(map(str, np.atleast_1d(value).tolist()))
    numbers = np.atleast_1d(value)
    own = sf.encode(numbers, kind).tolist() if codes is None else codes
    return "; ".join(f"{float(x)!r} ({code:0{digits_of(kind)}x})" for x, code in zip(numbers, own, strict=True))


def _flags(flags: NDArray[np.uint8] | None, place: int, other: Any = True) -> str:
    """Return the names of flags; nothing for an operation without flags."""
    if flags is None or other is None:
        return ""
    names = [name for bit, name in FLAG_NAMES if flags[place] & bit]
    return f", flags {int(flags[place]):02x}: {', '.join(names) or 'none'}"
