"""Test vectors: text files with the operands, the result and the flags of an operation, one case per line.

`testfloat_gen` writes such lines, and `testfloat_ver` reads them: codes in as many hexadecimal digits as the format
has, and two digits of flags, with the bits of :func:`simfloat.round`. A sum is an operation, too: ``"dot"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic import operations
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.codes import encode, hexadecimal_texts
from simfloat.arithmetic.machines import on_cpu
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.testfloat import (
    BOOLEAN,
    Kind,
    digits_of,
    is_signalling,
    read_field,
    read_flags,
    signature_of,
    values_of,
    without_prefix,
)
from simfloat.common import file_path
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64, Format, Rounding, toward_negative, toward_positive
from simfloat.formats.catalog import FormatLike
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.vector_cases import DOT, Case, case_of, operand_count

#: Comments, and the sentences of `testfloat_ver` and `testfloat`.
COMMENT = re.compile(r"(?://|#).*")
REPORT = re.compile(r"(?:>> )?(?:Testing|Errors found in) (?P<operation>\w+)[^=]*|(?:In )?\d+ tests?\b.*")

#: The number of digits of an FP32 number: of its code, and in a report without sign and point.
SINGLE_DIGITS = 8


class Vectors(NamedTuple):
    """Cases of an operation: vectors of one length. The operands of sums are matrices with a row for each case.

    The operands of a sum are a, b and c; with block scales, a, b, the scales of both, and c.

    `signalling` marks cases with a signalling NaN among their operands. simfloat treats these as quiet; hardware raises
    `invalid` for them. `flags` are zeros for a file without flags.
    """

    operands: tuple[NDArray[Any], ...]
    result: NDArray[Any]
    flags: NDArray[np.uint8]
    signalling: NDArray[np.bool_]


@in_usual_environment
def write_vectors(
    path: str | PathLike[str],
    operation: str,
    *operands_format_rounding: Any,
    output: FormatLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    scales: tuple[ArrayLike, ArrayLike] | None = None,
    blocks: tuple[int, FormatLike] | None = None,
    flags: bool | None = None,
    stream: Stream | None = None,
    invalid: str | None = None,
) -> None:
    """Write operands, results and flags of an operation to a file, one case per line, like Berkeley TestFloat.

    A line contains the codes of the operands and of the result, and the flags of :func:`simfloat.round`, in upper-case
    hexadecimal digits. Cases are in C order. The operands of ``write_vectors(path, "round", x, format)`` are written as
    codes of FP64; those of ``write_vectors(path, "round", x, (format of x, format))`` in their own format. Every NaN is
    written as the quiet NaN of its format, also a signalling one. Files of ``simfloat vectors`` contain signalling NaN.

    Parameters:
        path: the file.
        operation: the name of a function of simfloat, such as ``"round"`` or ``"add"``; a name of TestFloat,
            such as ``"f16_to_i32"`` or ``"f16_to_i8"``; ``"to_i8"`` and so on, from any format; or ``"dot"``, a sum of
            products. As in TestFloat, roundings to integers raise inexact only if the name ends in ``_x``:
            ``"f16_to_i32_x"``, ``"f16_roundToInt_rx_minMag"``.
        operands_format_rounding: the operands, which are numbers of the format; then the format; and a rounding mode,
            if it is not nearest_even. Names of TestFloat contain the format, which is left out. The operands of
            ``"dot"`` are a, b and c: matrices with a row for each sum, and the numbers from which the sums start. Their
            format may be a pair, for a and for b. The mode of ``"dot"`` belongs to the rounding to `output`, as in
            :func:`simfloat.dot`; the accumulator contains the mode of its steps.
        output: the format of the result; by default the format of the operands, or of the accumulator. `exact` needs
            it: c and the result have this format.
        accumulate: the accumulator of ``"dot"``.
        scales: the scales of the blocks of a and of b, matrices with a row for each sum, for a unit that reads them. A
            line has them before c.
        blocks: the number of products in a block and the format of scales, for an accumulator without block scales of
            its own: ``(32, sf.E8M0)`` beside ``sf.blocked(32, sf.FP32, sf.FP32)``.
        flags: False to leave out the flags, for hardware without flags; True to write them also for aligned and exact
            sums. By default, lines have flags; sums have them only if each of their steps is a rounded operation.
        stream: the random bits of a stochastic mode (`BitStream` or `GivenBits`). They are not written. A file with
            draws, which `simfloat check` can compare, is written by ``simfloat vectors FOLDER --unit unit.toml``.
        invalid: whose results invalid conversions to integers have. ``"riscv"``, the default: the nearest integer, and
            the largest one for NaN. ``"arm"``: the nearest integer, and 0 for NaN. ``"x86"``, as in programs of
            TestFloat that were built for x86-64: always the "integer indefinite", which is the smallest signed integer,
            or the largest unsigned one.

    Raises:
        ValueError: if the operation is unknown, if the number of operands is wrong, or if an operand is not a number of
            the format; the file is not written then.
        ValueError: for ``"dot"``, if `accumulate` is `exact` and `output` is missing, or if a mode is given although
            `output` is the format of the accumulator.

    Examples:
        >>> sf.write_vectors(folder / "add.txt", "add", [1.0, 65504.0], [2.0**-11, 65504.0], sf.FP16)
        >>> print((folder / "add.txt").read_text(), end="")
        3C00 1000 3C00 01
        7BFF 7BFF 7C00 05
        >>> sf.write_vectors(folder / "convert.txt", "f16_to_i32", [2.5, 65504.0], sf.toward_positive)
        >>> sf.write_vectors(folder / "dot.txt", "dot", [[1.0, 2.0]], [[3.0, 0.5]], [1.0], sf.E4M3, accumulate=sf.FP16)
        >>> print((folder / "dot.txt").read_text(), end="")
        38 40 44 30 3C00 4500 00
    """
    path = file_path(path)
    signature = signature_of(operation)
    count = 3 if operation == DOT else signature.operands if signature else operand_count(operation)
    needs_format = signature is None or signature.takes_format
    least = count + needs_format
    is_mode = len(operands_format_rounding) == least and isinstance(operands_format_rounding[-1], Rounding)
    if not least <= len(operands_format_rounding) <= count + 2 or (needs_format and is_mode):
        format_text = (" a, b and c," if operation == DOT else ",") + (" a format," if needs_format else "")
        raise ValueError(
            f"write_vectors takes a path, {operation!r}, its {count} operands{format_text} and a rounding if you "
            f"like; got {len(operands_format_rounding)} arguments behind {operation!r}."
        )
    operands, options = operands_format_rounding[:count], list(operands_format_rounding[count:])
    format = options.pop(0) if needs_format or (options and isinstance(options[0], Format)) else None
    case = case_of(operation, format, options[0] if options else None, output, accumulate, False, flags, blocks)
    if invalid is not None:
        case = case.with_invalid_results(invalid)
    if (scales is not None) != bool(case.block):
        has = "reads scales of blocks" if case.block else "has none; 'dot' reads them with blocks=(32, simfloat.E8M0)"
        raise ValueError(f"scales= is for units with block scales: {case.accumulator or repr(operation)} {has}.")
    if scales is not None and (size := len(scales) if isinstance(scales, tuple | list) else type(scales).__name__) != 2:
        raise ValueError(f"scales must be a pair of arrays, (scales of a, scales of b); got {size}.")
    write_cases(path, case, (*operands[:2], *(scales or ()), *operands[2:]), stream)


def write_cases(path: Path, case: Case, operands: Sequence[Any], stream: Stream | None = None) -> None:
    """Write operands, results and flags of an operation to a file."""
    arrays = _operands(case, operands)
    fields = [
        _texts(array, kind, f"{name}: ") for array, kind, name in zip(arrays, case.kinds, case.names, strict=False)
    ]
    result, raised = case.compute(arrays, stream)
    fields.append(_texts(result, case.kinds[-1]))
    columns = [column for field in fields for column in (field.T if field.ndim == 2 else [field.reshape(-1)])]
    if raised is not None:
        columns.append(np.array([f"{flag:02x}" for flag in raised.reshape(-1).tolist()]))
    lines = (" ".join(row).upper() for row in zip(*(column.tolist() for column in columns), strict=True))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii", newline="\n")


def _operands(case: Case, operands: Sequence[Any]) -> list[NDArray]:
    """Return the operands as vectors of one length, or as the matrices of a sum."""
    arrays = [
        _integers(x, kind) if isinstance(kind, np.dtype) else on_cpu(as_operand(x, name))
        for x, kind, name in zip(operands, case.kinds, case.names, strict=False)
    ]
    if case.operation != DOT:
        # np.broadcast_arrays returns arrays that warn when their flags are read, up to NumPy 2.0.
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        return [np.broadcast_to(x, shape).reshape(-1) for x in arrays]
    draws = [arrays.pop()] if case.draws else []
    a, b, *scales, c = arrays
    if a.ndim != 2 or a.shape != b.shape or c.shape not in ((), (len(a),)):
        raise ValueError(
            "The operands of 'dot' are a and b with a row for each sum, and c with one number for each sum; got shapes "
            f"{a.shape}, {b.shape} and {c.shape}."
        )
    for x in scales:
        if x.shape != (len(a), -(-a.shape[1] // case.block)):
            raise ValueError(
                f"scales must have a row for each sum and a column for each block of {case.block} products; a has the "
                f"shape {a.shape}, and scales have {x.shape}."
            )
    return [a, b, *scales, np.broadcast_to(c, len(a)).copy(), *draws]


def _integers(x: Any, dtype: np.dtype) -> NDArray[Any]:
    """Return integers of a dtype; ValueError for others."""
    array = np.asarray(x)
    if array.dtype.kind == "f" and not isinstance(x, np.ndarray):
        array = np.array(x, object)  # NumPy reads [1, 2**64 - 1] as float64
    limits = np.iinfo(dtype)
    is_whole = array.dtype.kind in "iu" or (array.dtype == object and all(isinstance(one, int) for one in array.flat))
    if not is_whole or (array.size and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max):
        raise ValueError(f"Operands of this operation are integers of {dtype}, from {limits.min} to {limits.max}.")
    return array.astype(dtype)


def _texts(values: NDArray, kind: Kind, name: str = "") -> NDArray[np.str_]:
    """Return the codes of numbers, integers or booleans in hexadecimal digits. A ValueError names the operand."""
    if isinstance(kind, Format):
        try:
            return hexadecimal_texts(encode(values, kind), kind)
        except ValueError as error:
            raise ValueError(f"{name}{error}") from None
    if kind is BOOLEAN:
        return np.where(values, "1", "0")
    codes = values.astype(kind).view(f"u{kind.itemsize}").reshape(-1).tolist()
    texts = np.array([f"{code:0{digits_of(kind)}x}" for code in codes], f"U{digits_of(kind)}")
    return texts.reshape(values.shape)


@in_usual_environment
def read_vectors(
    path: str | PathLike[str],
    operation: str,
    format: FormatLike | tuple[FormatLike, FormatLike] | None = None,
    *,
    output: FormatLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    blocks: tuple[int, FormatLike] | None = None,
    flags: bool | None = None,
) -> Vectors:
    """Read the cases of an operation from a file that :func:`write_vectors` or Berkeley TestFloat has written.

    A case is a line of operands, result and flags, separated by white space or ``_`` (as in `.tv` files). Codes and
    flags may begin with ``0x``. Blank lines, comments (from ``//`` or ``#`` to the end of the line) and the sentences
    of TestFloat's programs are skipped. From a difference that `testfloat_ver` reports
    (``+0F.000  +0F.000  => +10.001 ....x  expected +10.000 .....``) the expected result and flags are read. A
    signalling NaN is read as a quiet one, and every NaN is NaN, whatever its payload.

    Parameters:
        path: the file.
        operation: an operation of simfloat (``"add"``, ``"fma"``, ``"dot"``), ``"round"``, or an operation of TestFloat
            by its own name: ``"f16_add"``, ``"f16_to_f32"``, ``"f16_to_i32"``, ``"i32_to_f16"``, ``"f16_rem"``,
            ``"f16_roundToInt"``, ``"f16_le"``. ``"round"`` reads operands of 16 digits as numbers of FP64, and operands
            of 8 digits as numbers of FP32.
        format: the format of the operands, or for ``"round"`` of the result. A pair has the formats of a and b of
            ``"dot"``, or of operand and result of ``"round"``. It may be omitted for names of TestFloat, which contain
            the format.
        output: the format of the result, if it is another one.
        accumulate: the accumulator of ``"dot"``.
        blocks: the number of products in a block and the format of scales, as in :func:`write_vectors`.
        flags: False for a file without flags. In a file of sums, the number of fields shows if there are flags.

    Returns:
        `operands`, one vector each; `result`; `flags`, zeros for a file without flags; and `signalling`, which marks
        cases with a signalling NaN. Integers are vectors of int32, int64, uint32 or uint64, and results of comparisons
        are vectors of booleans.

    Raises:
        ValueError: naming file and line, if a line has more or fewer fields than the operation, if a field is not a
            code with all its digits, or if flags are not two digits up to 1f.
        ValueError: if the file is a report on another operation.
        ValueError: if ``"round"`` reads a file of integers, in which results are not roundings of the operands as
            numbers of FP32 or FP64.

    Examples:
        >>> sf.write_vectors(folder / "add.txt", "add", [1.0, 65504.0], [2.0**-11, 65504.0], sf.FP16)
        >>> cases = sf.read_vectors(folder / "add.txt", "add", sf.FP16)
        >>> result, flags = sf.add(*cases.operands, sf.FP16, flags=True)
        >>> bool((result == cases.result).all() and (flags == cases.flags).all())
        True
    """
    path = file_path(path)
    if signature_of(operation) is None and operation != DOT:
        operand_count(operation)
    cases = read_cases(path, operation)
    case = case_of(operation, format, None, output, accumulate, has_single_operands(cases), flags, blocks)
    vectors = vectors_of(cases, case, path)
    if operation == "round" and not isinstance(format, tuple):
        _check_roundings(vectors.operands[0], vectors.result, case.kinds, path)
    return vectors


def read_cases(path: Path, operation: str) -> list[tuple[int, list[str]]]:
    """Return (line number, fields) of every case in a file of an operation."""
    lines = path.read_bytes().decode("utf-8-sig", errors="replace").splitlines()
    return list(_cases(lines, path, operation))


def has_single_operands(cases: Sequence[tuple[int, list[str]]]) -> bool:
    """Return True if the first field of a file has as many digits as a code of FP32."""
    text = cases[0][1][0] if cases and cases[0][1] else ""
    return len(without_prefix(text, SINGLE_DIGITS).lstrip("+-").replace(".", "")) == SINGLE_DIGITS


def vectors_of(cases: Sequence[tuple[int, list[str]]], case: Case, path: Path) -> Vectors:
    """Return the cases (line number, fields) as vectors; ValueError naming the line of an invalid one."""
    width = len(cases[0][1]) if cases else 0
    has_flags = (width - case.draws) % 2 == 1 if case.operation == DOT else case.has_flags
    kinds, counts = case.columns(width)
    rows: list[list[int]] = []
    for number, fields in cases:
        try:
            rows.append(_case(fields, case, kinds, has_flags))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    codes = np.array(rows, np.uint64).reshape(len(rows), len(kinds) + has_flags).T
    *columns, result = (values_of(column, kind) for column, kind in zip(codes, kinds, strict=False))
    signalling = np.zeros(len(rows), np.bool_)
    for column, numbers, kind in zip(codes, columns, kinds, strict=False):
        if isinstance(kind, Format):
            signalling |= np.isnan(numbers) & is_signalling(column, kind)
    flags = codes[-1].astype(np.uint8) if has_flags else np.zeros(len(rows), np.uint8)
    if case.operation == DOT:
        ends = np.cumsum(counts).tolist()
        parts = [columns[end - count : end] for end, count in zip(ends, counts, strict=True)]
        columns = [np.array(part).T.reshape(len(rows), len(part)) for part in parts]
        of_c = -2 if case.draws else -1
        columns[of_c] = columns[of_c][:, 0]
    return Vectors(tuple(columns), result, flags, signalling)


def _cases(lines: Sequence[str], path: Path, operation: str) -> Iterator[tuple[int, list[str]]]:
    """Generate (line number, fields) of every case; a difference gives its operands, expected result and flags."""
    pending: tuple[int, list[str]] | None = None  # a line that may be the operands of a difference
    for number, line in enumerate(lines, 1):
        text = COMMENT.sub("", line).strip()
        if (report := REPORT.fullmatch(text)) is not None:
            named = report["operation"]
            if named and signature_of(operation) and named != operation:
                raise ValueError(f"{path}, line {number}: the report is on {named}, not on {operation}.")
            continue
        before, is_difference, after = text.partition("=>")
        operands = before.split()
        if pending is not None:
            if is_difference and not operands:
                operands = pending[1]
            else:
                yield pending
        pending = None
        if is_difference:
            yield number, [*operands, *after.partition("expected")[2].split()]
        elif text:
            pending = number, text.replace("_", " ").split()
    if pending is not None:
        yield pending


def _case(fields: list[str], case: Case, kinds: Sequence[Kind], has_flags: bool) -> list[int]:
    """Return the codes and the flags of the fields of a line."""
    if len(fields) != (count := len(kinds) + has_flags):
        last = "result and flags" if has_flags else "and result"
        lacks_flags = has_flags and len(fields) == count - 1 and case.operation != DOT and not case.draws
        draws = ", the last of which are draws" if case.draws else ""
        hint = " For a file without flags, write flags = false (in Python, flags=False)." if lacks_flags else ""
        raise ValueError(
            f"A case of {case.operation} has {count} fields: operands ({len(kinds) - 1}{draws}), {last}; got "
            f"{len(fields)}.{hint}"
        )
    codes = [read_field(text, kind) for text, kind in zip(fields, kinds, strict=False)]
    return [*codes, read_flags(fields[-1])] if has_flags else codes


def _check_roundings(x: NDArray, result: NDArray, kinds: Sequence[Kind], path: Path) -> None:
    """Raise ValueError if most results are not neighbours of the operands, which then are not numbers of a format."""
    wide, format = kinds
    assert isinstance(format, Format)
    if not format.has_nan:
        x, result = x[~np.isnan(x)], result[~np.isnan(x)]
    ends = [operations.round(x, format, mode) for mode in (toward_negative, toward_positive)]
    near = (result == ends[0]) | (result == ends[1]) | np.isnan(result)
    wrong = int(np.count_nonzero(~near))
    if 2 * wrong > np.count_nonzero(x):
        integer = f"i{64 if wide == FP64 else 32}"
        raise ValueError(
            f"{path}: {wrong} of {x.size} results are not roundings of the operands as numbers of {wide}. If the "
            f"operands are integers, read the file by TestFloat's name, such as '{integer}_to_f16' or "
            f"'u{integer}_to_f16'."
        )
