"""Test vectors in the text of Berkeley TestFloat: operands, result and flags of an operation, a case a line.

`testfloat_gen` writes such lines, and `testfloat_ver` reads them: codes in hexadecimal digits, as many as the format
has, and two digits of flags, whose bits are ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import _round, functions
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.arithmetic.codes import code_of, decode, encode, texts_of
from simfloat.arithmetic.operands import as_operand
from simfloat.checks import did_you_mean, file_path
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, as_format, nearest_even
from simfloat.formats.exceptions import DIVISION_BY_ZERO, INEXACT, INVALID, OVERFLOW, UNDERFLOW
from simfloat.formats.format_names import FormatLike

#: Codes, which have no prefix here, and flags in two digits.
DIGITS, FLAGS = (re.compile(pattern, re.IGNORECASE) for pattern in ("[0-9a-f]+", "[0-9a-f]{2}"))
MOST = INEXACT | UNDERFLOW | OVERFLOW | DIVISION_BY_ZERO | INVALID

#: What TestFloat calls by another name, behind that of a format, as f16_mul.
THEIRS = {"sub": "subtract", "mul": "multiply", "div": "divide", "mulAdd": "fma"}


class Vectors(NamedTuple):
    """Cases of an operation: vectors of one length.

    `signalling` marks cases with a signalling NaN among their operands, which simfloat takes for quiet ones: other
    machines raise `invalid` there.
    """

    operands: tuple[NDArray[np.floating], ...]
    result: NDArray[np.floating]
    flags: NDArray[np.uint8]
    signalling: NDArray[np.bool_]


@in_usual_environment
def write_vectors(
    path: str | PathLike[str],
    operation: str,
    *operands_format_rounding: Any,
    stream: Stream | None = None,
) -> None:
    """Write what an operation makes of numbers of a format to a file, a case a line, as Berkeley TestFloat does.

    The operation is named as simfloat's function, ``"round"`` or ``"add"`` to ``"power"``. Its operands follow, numbers
    of the format, then the format, and a rounding if it is not nearest_even. A line holds the operands' codes, the
    result's and the flags of :func:`simfloat.round`, in upper-case hexadecimal digits; cases stand in C order.

    ``write_vectors(path, "round", x, format)`` writes the codes of FP64 numbers as operands.

    Raises ValueError for an unknown operation, another number of operands, and what is not a number of the format,
    before the file is touched.

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
    arrays = np.broadcast_arrays(*map(as_operand, operands))
    fields = [texts_of(encode(array, of_operands), of_operands) for array in arrays]
    result, flags = _function(operation)(*arrays, format, rounding, stream=stream, flags=True)
    fields += [texts_of(encode(result, format), format)]
    columns = [field.reshape(-1).tolist() for field in fields]
    columns.append([f"{flag:02x}" for flag in flags.reshape(-1).tolist()])
    lines = (" ".join(case).upper() for case in zip(*columns, strict=True))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii", newline="\n")


@in_usual_environment
def read_vectors(path: str | PathLike[str], operation: str, format: FormatLike) -> Vectors:
    """The cases of an operation in a file of :func:`write_vectors`' or `testfloat_gen`'s.

    TestFloat's ``mulAdd`` is ``"fma"``; ``"round"`` reads its ``f64_to_f16`` and ``f32_to_f16``: operands of 16 digits
    are numbers of FP64, those of 8 digits of FP32.

    Returns `operands`, a vector each, `result`, `flags`, and `signalling`, which marks cases that differ in simfloat: a
    signalling NaN is read as a quiet one. Every NaN is NaN, whatever its payload.

    Raises ValueError naming file and line for a line with more or fewer fields than the operation has, for what is no
    code with all digits of the format, and for flags that are no two digits up to 1f.

    Examples:
        >>> sf.write_vectors(folder / "add.txt", "add", [1.0, 65504.0], [2.0**-11, 65504.0], sf.FP16)
        >>> cases = sf.read_vectors(folder / "add.txt", "add", sf.FP16)
        >>> result, flags = sf.add(*cases.operands, sf.FP16, flags=True)
        >>> bool((result == cases.result).all() and (flags == cases.flags).all())
        True
    """
    path, format, count = file_path(path), as_format(format), _operands_of(operation)
    lines = path.read_bytes().decode("utf-8", errors="replace").splitlines()
    formats = [_format_of_operands(operation, format, lines)] * count + [format]
    rows: list[list[int]] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_case(line.split(), operation, formats))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    codes = np.array(rows, np.uint64).reshape(len(rows), count + 2).T
    operands = tuple(decode(column, formats[0]) for column in codes[:count])
    signalling = np.zeros(len(rows), np.bool_)
    for column, numbers in zip(codes, operands, strict=False):
        signalling |= np.isnan(numbers) & _is_signalling(column, formats[0])
    return Vectors(operands, decode(codes[count], format), codes[count + 1].astype(np.uint8), signalling)


def _case(fields: list[str], operation: str, formats: list[Format]) -> list[int]:
    """The codes and flags of a line's fields."""
    if len(fields) != len(formats) + 1:
        raise ValueError(
            f"A case of {operation} has {len(formats) + 1} fields: operands ({len(formats) - 1}), result and flags; "
            f"got {len(fields)}."
        )
    codes = [_code(text, format) for text, format in zip(fields, formats, strict=False)]
    if not FLAGS.fullmatch(fields[-1]) or int(fields[-1], 16) > MOST:
        raise ValueError(f"Flags are two hexadecimal digits from 00 to {MOST:02x}, got {fields[-1]!r}.")
    return [*codes, int(fields[-1], 16)]


def _code(text: str, format: Format) -> int:
    digits = -(-format.bits // 4)
    if len(text) != digits or not DIGITS.fullmatch(text):
        raise ValueError(f"A code of {format} has {digits} hexadecimal digits, got {text!r}.")
    return code_of(text, format)


def _is_signalling(codes: NDArray[np.uint64], format: Format) -> NDArray[np.bool_]:
    """Whether NaN among the codes are signalling: in IEEE formats of more than one fraction bit the first one is 0."""
    if format.special != "ieee" or format.mantissa_bits < 2:
        return np.zeros(codes.shape, np.bool_)
    return (codes >> np.uint64(format.mantissa_bits - 1)) & np.uint64(1) == 0


def _operands_of(operation: Any) -> int:
    """How many operands an operation has."""
    if operation == "round":
        return 1
    if not isinstance(operation, str) or operation not in FUNCTIONS:
        name = str(operation).rpartition("_")[2]
        hint = f" Did you mean {THEIRS[name]!r}?" if name in THEIRS else did_you_mean(name, FUNCTIONS)
        raise ValueError(f"operation is 'round' or one of {', '.join(FUNCTIONS)}; got {operation!r}.{hint}")
    return len(FUNCTIONS[operation].operands)


def _format_of_operands(operation: str, format: Format, lines: Sequence[str] = ()) -> Format:
    """That of the results, but for a rounding: FP64, or FP32 where the first of these lines has its digits."""
    if operation != "round":
        return format
    first = lines[0].split()[:1] if lines else []
    return as_format("FP32" if first and len(first[0]) == 8 else "FP64")


def _function(operation: str) -> Any:
    return _round.round if operation == "round" else getattr(functions, operation)
