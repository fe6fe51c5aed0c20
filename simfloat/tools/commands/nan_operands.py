"""NaN among the operands of test vectors, with all kinds of codes.

A circuit may recognise only some NaN: those with one sign, those with the quiet bit, or those whose payload lies in the
bits that it keeps. All NaN are one value. So `with_nan` chooses the cases by values, and `with_nan_codes` writes codes
into the lines of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic.testfloat import Kind, digits_of, is_signalling, nan_codes
from simfloat.formats.exceptions import INVALID
from simfloat.sums.vector_cases import DOT, Case

#: The number of cases for each case that may get a NaN in place of a number.
CASES_PER_NAN = 8


def with_nan(
    operands: Sequence[NDArray[Any]],
    case: Case,
    is_repeated: NDArray[np.bool_],
    lacks_result: Callable[[list[NDArray]], NDArray[np.bool_]],
    has_addend: bool,
) -> list[NDArray[Any]]:
    """Return operands with more NaN: in each place, beside finite numbers, as many as the format has `nan_codes`.

    Repeated cases get a NaN first, then random ones from the end. A case that would lack a result remains. At most one
    of `CASES_PER_NAN` cases changes.
    """
    result = case.kinds[-1]
    has_addend &= case.accumulator is None or case.accumulator.takes_initial
    places = [place for place, kind in enumerate(case.kinds[: len(operands) - (not has_addend)]) if nan_codes(kind)]
    if not places or not case.reads_signalling or (isinstance(result, sf.Format) and not result.has_nan):
        return list(operands)
    rows = np.arange(len(operands[0]))
    special = np.sum([(~np.isfinite(x)).reshape(rows.size, -1).sum(axis=1) for x in operands], axis=0)
    wanted = {}
    for place in places:
        are_nan = np.isnan(operands[place]).reshape(rows.size, -1).any(axis=1)
        wanted[place] = len(nan_codes(case.kinds[place])) - int(np.count_nonzero(are_nan & (special == 1)))
    turns = [place for turn in range(max(wanted.values())) for place in places if turn < wanted[place]]
    random = rows[(special == 0) & ~is_repeated & (rows % 8 < 2)][::-1]
    chosen = [*rows[(special == 0) & is_repeated], *random][: rows.size // CASES_PER_NAN]
    replaced = [x.copy() for x in operands]
    for row, place in zip(chosen, turns, strict=False):
        x = replaced[place]
        x[(row, row // 8 % x.shape[1]) if x.ndim == 2 else row] = np.nan
    lacking = lacks_result(replaced)
    for x, before in zip(replaced, operands, strict=True):
        x[lacking] = before[lacking]
    return replaced


def with_nan_codes(lines: Sequence[str], case: Case) -> list[str]:
    """Return lines in which the NaN of each operand have the `nan_codes` of its format in turn.

    Cases in which the other operands are finite come first. A signalling NaN raises invalid (IEEE 754-2019, 6.2, 7.2).
    """
    rows = [line.split() for line in lines]
    if not rows or not case.reads_signalling:
        return list(lines)
    _, counts = case.columns(len(rows[0]))
    places = np.repeat(np.arange(len(counts)), counts).tolist()
    codes = [nan_codes(kind) for kind in case.kinds[: len(counts)]]
    signalling = [_signalling(of_place, kind) for of_place, kind in zip(codes, case.kinds, strict=False)]
    texts = [_texts(kind, np.nan) for kind in case.kinds]
    special = [set(_texts(kind, np.nan, np.inf, -np.inf)) for kind in case.kinds]
    columns = [[n for n, place in enumerate(places) if row[n] in special[place]] for row in rows]
    turns = [0] * len(counts)
    of_special = [(row, of_row) for row, of_row in zip(rows, columns, strict=True) if of_row]
    for row, of_row in sorted(of_special, key=lambda pair: len(pair[1]) != 1):
        raises = False
        for column in of_row:
            place = places[column]
            if row[column] in texts[place]:
                turn = turns[place] % len(codes[place])
                row[column] = f"{codes[place][turn]:0{len(row[column])}X}"
                raises |= signalling[place][turn]
                turns[place] += 1
        if raises:
            _raise_invalid(row, case, texts[-1])
    return [" ".join(row) for row in rows]


def _raise_invalid(row: list[str], case: Case, nan: Sequence[str]) -> None:
    """Let the flags of a line contain invalid, and let its result be NaN: a power of a quiet NaN may be 1."""
    of_result = len(row) - 1 - case.has_flags
    if case.operation != DOT and nan:
        row[of_result] = nan[0]
    if case.has_flags:
        row[-1] = f"{int(row[-1], 16) | INVALID:02X}"


def _signalling(codes: Sequence[int], kind: Kind) -> list[bool]:
    """Return True for the codes of signalling NaN."""
    return is_signalling(np.array(codes, np.uint64), kind).tolist() if isinstance(kind, sf.Format) else []


def _texts(kind: Kind, *values: float) -> list[str]:
    """Return the texts of those special values that a kind has."""
    if not isinstance(kind, sf.Format):
        return []
    has = [kind.has_nan if np.isnan(x) else kind.has_infinity and (kind.signed or x > 0) for x in values]
    codes = sf.encode(np.array(values)[has], kind).tolist()
    return [f"{code:0{digits_of(kind)}X}" for code in codes]
