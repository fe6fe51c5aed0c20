"""Test vectors: text files with the operands, the result and the flags of an operation, one case per line.

`testfloat_gen` writes such lines, and `testfloat_ver` reads them: codes in as many hexadecimal digits as the format
has, and two digits of flags, with the bits of :func:`simfloat.round`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic import functions, operations
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.arithmetic.codes import decode, encode, hexadecimal_texts, read_code
from simfloat.arithmetic.operands import as_operand
from simfloat.common import did_you_mean, file_path
from simfloat.environment import in_usual_environment
from simfloat.formats import BF16, FP16, FP32, FP64, Format, as_format, nearest_even, toward_negative, toward_positive
from simfloat.formats.catalog import FormatLike
from simfloat.formats.exceptions import DIVISION_BY_ZERO, INEXACT, INVALID, OVERFLOW, UNDERFLOW

#: Codes, which have no prefix in these files, and flags in two digits.
DIGITS, FLAGS = (re.compile(pattern, re.IGNORECASE) for pattern in ("[0-9a-f]+", "[0-9a-f]{2}"))
MOST = INEXACT | UNDERFLOW | OVERFLOW | DIVISION_BY_ZERO | INVALID

#: TestFloat's other names of operations, which follow the name of a format, as in f16_mul.
THEIRS = {"sub": "subtract", "mul": "multiply", "div": "divide", "mulAdd": "fma"}

#: The kind of a field: a number of a format, an integer of a dtype, or a boolean.
Kind: TypeAlias = Format | np.dtype
BOOLEAN = np.dtype(np.bool_)

#: TestFloat's names of types; its extF80 and f128 are wider than float64.
KINDS: dict[str, Kind] = {
    **{"f16": FP16, "bf16": BF16, "f32": FP32, "f64": FP64},
    **{"i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "ui32": np.dtype(np.uint32), "ui64": np.dtype(np.uint64)},
}

#: The number of operands of its operations. If the result is an integer, the name may contain a rounding.
THEIR_OPERANDS = dict(add=2, sub=2, mul=2, mulAdd=3, div=2, rem=2, sqrt=1, roundToInt=1)
COMPARISONS = ("eq", "le", "lt", "eq_signaling", "le_quiet", "lt_quiet")
THEIR_OPERANDS |= dict.fromkeys(COMPARISONS, 2)
THEIR_NAME = re.compile(
    rf"(?P<first>{'|'.join(KINDS)})_"
    rf"(?:to_(?P<other>{'|'.join(KINDS)})|(?P<name>{'|'.join(sorted(THEIR_OPERANDS, key=len, reverse=True))}))"
    r"(?:_rx?_(?:near_even|near_maxMag|minMag|min|max|odd)|_rx?|_x)?"
)

#: Comments; the sentences of `testfloat_ver` and `testfloat`; and, in the differences that they report, numbers as
#: sign, exponent and fraction, and flags as letters: invalid, infinite, overflow, underflow, inexact.
COMMENT = re.compile(r"(?://|#).*")
REPORT = re.compile(r"(?:>> )?(?:Testing|Errors found in) (?P<operation>\w+)[^=]*|(?:In )?\d+ tests?\b.*")
REPORTED = re.compile(r"(?P<sign>[+-])(?P<exponent>[0-9a-f]+)\.(?P<fraction>[0-9a-f]+)", re.IGNORECASE)
REPORTED_FLAGS = re.compile(r"[v.][i.][o.][u.][x.]")

#: The number of digits of an FP32 number: of its code, and of its form in a report, without sign and point.
SINGLE_DIGITS = 8


class Vectors(NamedTuple):
    """Cases of an operation: vectors of one length.

    `signalling` marks cases with a signalling NaN among their operands. simfloat treats these as quiet; hardware raises
    `invalid` for them.
    """

    operands: tuple[NDArray[Any], ...]
    result: NDArray[Any]
    flags: NDArray[np.uint8]
    signalling: NDArray[np.bool_]


@in_usual_environment
def write_vectors(
    path: str | PathLike[str], operation: str, *operands_format_rounding: Any, stream: Stream | None = None
) -> None:
    """Write operands, results and flags of an operation to a file, one case per line, like Berkeley TestFloat.

    A line contains the codes of the operands and of the result, and the flags of :func:`simfloat.round`, in upper-case
    hexadecimal digits. Cases are in C order. The operands of ``write_vectors(path, "round", x, format)`` are written as
    codes of FP64.

    Parameters:
        path: the file.
        operation: the name of a function of simfloat: ``"round"``, or ``"add"`` to ``"power"``.
        operands_format_rounding: the operands, which are numbers of the format; then the format; and a rounding mode,
            if it is not nearest_even.
        stream: the random bits of a stochastic mode (`BitStream` or `GivenBits`).

    Raises:
        ValueError: if the operation is unknown, if the number of operands is wrong, or if an operand is not a number of
            the format; the file is not written then.

    Examples:
        >>> sf.write_vectors(folder / "add.txt", "add", [1.0, 65504.0], [2.0**-11, 65504.0], sf.FP16)
        >>> print((folder / "add.txt").read_text(), end="")
        3C00 1000 3C00 01
        7BFF 7BFF 7C00 05
    """
    path, count = file_path(path), _operands_of(operation)
    if not count + 1 <= len(operands_format_rounding) <= count + 2:
        raise ValueError(
            f"write_vectors takes a path, {operation!r}, its {count} operands, a format, and a rounding if you like; "
            f"got {len(operands_format_rounding)} arguments behind {operation!r}."
        )
    *operands, format = operands_format_rounding[: count + 1]
    rounding = operands_format_rounding[count + 1] if len(operands_format_rounding) > count + 1 else nearest_even
    format = as_format(format)
    of_operands = _format_of_operands(operation, format)
    # np.broadcast_arrays returns arrays that warn when their flags are read, up to NumPy 2.0.
    values = [as_operand(x) for x in operands]
    shape = np.broadcast_shapes(*(x.shape for x in values))
    arrays = [np.broadcast_to(x, shape) for x in values]
    fields = [hexadecimal_texts(encode(array, of_operands), of_operands) for array in arrays]
    result, flags = _function(operation)(*arrays, format, rounding, stream=stream, flags=True)
    fields += [hexadecimal_texts(encode(result, format), format)]
    columns = [field.reshape(-1).tolist() for field in fields]
    columns.append([f"{flag:02x}" for flag in flags.reshape(-1).tolist()])
    lines = (" ".join(case).upper() for case in zip(*columns, strict=True))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii", newline="\n")


@in_usual_environment
def read_vectors(path: str | PathLike[str], operation: str, format: FormatLike | None = None) -> Vectors:
    """Read the cases of an operation from a file that :func:`write_vectors` or Berkeley TestFloat has written.

    A case is a line of operands, result and flags, separated by white space or ``_`` (as in `.tv` files). Blank lines,
    comments (from ``//`` or ``#`` to the end of the line) and the sentences of TestFloat's programs are skipped. From
    a difference that `testfloat_ver` reports (``+0F.000  +0F.000  => +10.001 ....x  expected +10.000 .....``) the
    expected result and flags are read. A signalling NaN is read as a quiet one, and every NaN is NaN, whatever its
    payload.

    Parameters:
        path: the file.
        operation: an operation of simfloat (``"add"``, ``"fma"``), ``"round"``, or an operation of TestFloat by its own
            name: ``"f16_add"``, ``"f16_to_f32"``, ``"f16_to_i32"``, ``"i32_to_f16"``, ``"f16_rem"``,
            ``"f16_roundToInt"``, ``"f16_le"``. ``"round"`` reads operands of 16 digits as numbers of FP64, and operands
            of 8 digits as numbers of FP32.
        format: the format of the result. The names of TestFloat contain it; for them it may be omitted.

    Returns:
        `operands`, one vector each; `result`; `flags`; and `signalling`, which marks cases with a signalling NaN.
        Integers are vectors of int32, int64, uint32 or uint64, and results of comparisons are vectors of booleans.

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
    path, theirs = file_path(path), kinds_of_testfloat(operation)
    if theirs is None:
        _operands_of(operation)
    lines = path.read_bytes().decode("utf-8-sig", errors="replace").splitlines()
    result_format = None if format is None else as_format(format)
    cases = list(_cases(lines, path, operation))
    if theirs is not None:
        _check_format(result_format, theirs, operation)
    kinds = theirs or _kinds_of_operation(operation, result_format, [fields for _, fields in cases])
    rows: list[list[int]] = []
    for number, fields in cases:
        try:
            rows.append(_case(fields, operation, kinds))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    codes = np.array(rows, np.uint64).reshape(len(rows), len(kinds) + 1).T
    *operands, result = (_values(column, kind) for column, kind in zip(codes, kinds, strict=False))
    if operation == "round":
        _check_roundings(operands[0], result, kinds, path)
    signalling = np.zeros(len(rows), np.bool_)
    for column, numbers, kind in zip(codes, operands, kinds, strict=False):
        if isinstance(kind, Format):
            signalling |= np.isnan(numbers) & _is_signalling(column, kind)
    return Vectors(tuple(operands), result, codes[-1].astype(np.uint8), signalling)


def kinds_of_testfloat(operation: Any) -> tuple[Kind, ...] | None:
    """Return the kinds of the operands and the result of an operation of TestFloat; None for any other name."""
    parts = THEIR_NAME.fullmatch(operation) if isinstance(operation, str) else None
    if parts is None:
        return None
    first, name, target = KINDS[parts["first"]], parts["name"], parts["other"]
    if target is not None:
        is_conversion = parts["first"] != target and (isinstance(first, Format) or isinstance(KINDS[target], Format))
        return (first, KINDS[target]) if is_conversion else None
    if not isinstance(first, Format):
        return None
    operands = (first,) * THEIR_OPERANDS[name]
    return (*operands, BOOLEAN if name in COMPARISONS else first)


def _kinds_of_operation(operation: Any, format: Format | None, cases: Sequence[Sequence[str]]) -> tuple[Kind, ...]:
    """Return the kinds of the operands and the result of an operation of simfloat.

    The operands of a rounding are FP64 numbers, or FP32 numbers if the first case has the number of digits of FP32.
    """
    count = _operands_of(operation)
    if format is None:
        raise ValueError(
            f"read_vectors needs the format of {operation!r}: write read_vectors(path, {operation!r}, simfloat.FP16), "
            "or a name of TestFloat such as 'f16_add'."
        )
    is_single = bool(cases) and bool(cases[0]) and len(cases[0][0].lstrip("+-").replace(".", "")) == SINGLE_DIGITS
    return (*[_format_of_operands(operation, format, is_single)] * count, format)


def _check_format(format: Format | None, kinds: Sequence[Kind], operation: str) -> None:
    """Raise ValueError if an operation of TestFloat does not have this format."""
    if format is not None and format not in kinds:
        names = ", ".join(str(kind) for kind in dict.fromkeys(kinds) if isinstance(kind, Format))
        raise ValueError(f"{operation} is an operation of TestFloat on {names}, got the format {format}; leave it out.")


def _cases(lines: Sequence[str], path: Path, operation: str) -> Iterator[tuple[int, list[str]]]:
    """Generate (line number, fields) of every case; a difference gives its operands, expected result and flags."""
    pending: tuple[int, list[str]] | None = None  # a line that may be the operands of a difference
    for number, line in enumerate(lines, 1):
        text = COMMENT.sub("", line).strip()
        if (report := REPORT.fullmatch(text)) is not None:
            named = report["operation"]
            if named and kinds_of_testfloat(operation) and named != operation:
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


def _case(fields: list[str], operation: str, kinds: Sequence[Kind]) -> list[int]:
    """Return the codes and the flags of the fields of a line."""
    if len(fields) != len(kinds) + 1:
        raise ValueError(
            f"A case of {operation} has {len(kinds) + 1} fields: operands ({len(kinds) - 1}), result and flags; "
            f"got {len(fields)}."
        )
    codes = [_read_code(text, kind) for text, kind in zip(fields, kinds, strict=False)]
    return [*codes, _flags(fields[-1])]


def _flags(text: str) -> int:
    """Read flags in two digits, or in the five letters of a report."""
    if REPORTED_FLAGS.fullmatch(text):
        return int("".join("0" if letter == "." else "1" for letter in text), 2)
    if not FLAGS.fullmatch(text) or int(text, 16) > MOST:
        raise ValueError(f"Flags are two hexadecimal digits from 00 to {MOST:02x}, got {text!r}.")
    return int(text, 16)


def _read_code(text: str, kind: Kind) -> int:
    """Return the code of a number, an integer or a boolean."""
    if isinstance(kind, Format):
        if parts := REPORTED.fullmatch(text):
            exponent, fraction = int(parts["exponent"], 16), int(parts["fraction"], 16)
            code = (((parts["sign"] == "-") << kind.exponent_bits | exponent) << kind.mantissa_bits) | fraction
            if not exponent >> kind.exponent_bits and not fraction >> kind.mantissa_bits:
                return code
        digits = -(-kind.bits // 4)
        if len(text) != digits or not DIGITS.fullmatch(text):
            raise ValueError(f"A code of {kind} has {digits} hexadecimal digits, got {text!r}.")
        return read_code(text, kind)
    digits, most = (1, 1) if kind is BOOLEAN else (2 * kind.itemsize, 2 ** (8 * kind.itemsize) - 1)
    if len(text) != digits or not DIGITS.fullmatch(text) or int(text, 16) > most:
        what = "0 or 1" if kind is BOOLEAN else f"{digits} hexadecimal digits of {kind.name}"
        raise ValueError(f"A field of this operation is {what}, got {text!r}.")
    return int(text, 16)


def _values(codes: NDArray[np.uint64], kind: Kind) -> NDArray[Any]:
    """Return the values that the codes represent."""
    if isinstance(kind, Format):
        return decode(codes, kind)
    return codes.astype(f"u{kind.itemsize}").view(kind)


def _check_roundings(x: NDArray, result: NDArray, kinds: Sequence[Kind], path: Path) -> None:
    """Raise ValueError if most results are not neighbours of the operands, which then are not floating-point
    numbers."""
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


def _is_signalling(codes: NDArray[np.uint64], format: Format) -> NDArray[np.bool_]:
    """Return True for signalling NaN among the codes: in IEEE formats, the first of several fraction bits is 0."""
    if format.special != "ieee" or format.mantissa_bits < 2:
        return np.zeros(codes.shape, np.bool_)
    return (codes >> np.uint64(format.mantissa_bits - 1)) & np.uint64(1) == 0


def _operands_of(operation: Any) -> int:
    """Return the number of operands of an operation."""
    if operation == "round":
        return 1
    if not isinstance(operation, str) or operation not in FUNCTIONS:
        name = str(operation).rpartition("_")[2]
        hint = f" Did you mean {THEIRS[name]!r}?" if name in THEIRS else did_you_mean(name, FUNCTIONS)
        raise ValueError(f"operation is 'round' or one of {', '.join(FUNCTIONS)}; got {operation!r}.{hint}")
    return len(FUNCTIONS[operation].operands)


def _format_of_operands(operation: str, format: Format, is_single: bool = False) -> Format:
    """Return the format of operands: the format of the result, or FP64 or FP32 for a rounding."""
    if operation != "round":
        return format
    return FP32 if is_single else FP64


def _function(operation: str) -> Any:
    return operations.round if operation == "round" else getattr(functions, operation)
