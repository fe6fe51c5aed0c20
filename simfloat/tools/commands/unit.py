"""Descriptions of arithmetic units in TOML, and vectors that test them.

A description names an operation of :func:`simfloat.write_vectors`::

    operation = "dot"
    format = "E4M3"
    accumulate = "fused(4, 20)"
    terms = 4

`KEYS` has the meanings of all keys.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.common import did_you_mean, is_integer
from simfloat.policy.text import parse, quotes_missing, to_toml
from simfloat.sums.test_vectors import write_cases
from simfloat.sums.vector_cases import DOT, OPERATIONS, Case, case_of
from simfloat.tools.commands.nan_operands import with_nan_codes
from simfloat.tools.commands.operands import Operands

#: The keys of a description, and their meanings; the table of the cookbook contains them.
KEYS = {
    "operation": "'add', 'fma', 'round', ...; 'dot', a sum of products; a name such as TestFloat's 'f16_to_i32', "
    "'f16_to_i8' or 'f32_to_e5m2'; 'to_i8', from any format",
    "format": "the format of operands, two in a list for 'dot'; for 'round', of the result, with FP64 operands, or two "
    "in a list, of operand and result; not with names of TestFloat, which contain it",
    "output": "the format of the result; by default the format of the operands, or of the accumulator; the accumulator "
    "'exact' needs it; not for 'round'",
    "rounding": "the rounding mode; by default 'nearest_even'; for 'dot', the mode of the rounding to output, because "
    "the accumulator contains the mode of its steps",
    "accumulate": "the accumulator of 'dot', such as 'fused(4, 20)' or 'sequential(FP32)'",
    "scales": "the number of products per block and the format of scales of a 'dot', such as '(32, E8M0)', if the "
    "accumulator has none of its own",
    "terms": "the number of products of 'dot'; by default 4",
    "addend": "false for a 'dot' whose sums all start from c = +0",
    "wraps": "true for a 'dot' of fixed-point numbers, with accumulate = 'exact', whose sums wrap in two's complement",
    "invalid": "whose results invalid conversions to integers have: 'riscv', the default, 'arm' or 'x86'",
    "flags": "false for hardware without flags, true also for aligned and exact sums",
    "cases": "the number of cases; by default 200",
    "seed": "the seed of the operands; by default 0",
}

#: The version of the files of a unit; it changes if the same description gives other files.
VERSION = 7

#: The defaults and the limits of numbers in a description.
NUMBERS = {"terms": (4, 1, 4096), "cases": (200, 1, 10**6), "seed": (0, 0, 2**32 - 1)}

#: The place of random draws among the operands, for their random words.
PLACE_OF_DRAWS = 97

#: A format in which every operation has results, rounded to odd: NaN and negative numbers remain what they are.
WIDE = sf.Format(11, 40)


class Unit(NamedTuple):
    """An operation, and the number and the seed of the operands that test it."""

    name: str
    description: dict[str, Any]
    case: Case
    terms: int
    cases: int
    seed: int
    addend: bool = True  # False if all sums start from +0
    version: int | None = None  # of the cases, if `simfloat vectors` wrote the description beside them

    @property
    def names_cases(self) -> bool:
        """True if the description states the number of cases."""
        return self.version is not None or "cases" in self.description

    def operands(self) -> list[NDArray[Any]]:
        """Return the operands of all cases. Those without a result in the output's format are replaced by others."""
        operands = self._with_draws(self._operand_source.choose())
        if self._have_results(operands):
            return operands
        return self._with_draws(self._operand_source.choose(self._rows_without_result))

    def _have_results(self, operands: list[NDArray[Any]]) -> bool:
        """Return True if all results are numbers of the output's format."""
        try:
            results, _ = self.case.compute(operands)
            if isinstance(output := self.case.kinds[-1], sf.Format):
                sf.encode(results, output)
        except ValueError:
            return False
        return True

    @property
    def _operand_source(self) -> Operands:
        case = self.case
        if case.draws:
            case = case._replace(kinds=(*case.kinds[:-2], case.kinds[-1]), draws=0)
        return Operands(case, self.terms, self.cases, self.seed, self.addend)

    def _with_draws(self, operands: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the operands and the random draws of all cases; in three eighths of the draws, edge cases."""
        case = self.case
        if not case.draws:
            return operands
        bits = max(mode.bits for mode in (case.rounding, *(case.accumulator.roundings if case.accumulator else ())))
        shape = (self.cases, case.draws) if case.operation == DOT else (self.cases,)
        words = random_words(Draw(self.seed, PLACE_OF_DRAWS, 0), 0, 2 * self.cases * case.draws)
        random, kind = words.reshape(2, *shape)
        edges = np.array([0, 2**bits - 1, 2 ** (bits - 1)], np.int64)
        draws = np.where(kind % 8 < 3, edges[np.minimum(kind % 8, 2)], random >> np.uint32(32 - bits))
        return [*operands, draws]

    def write(self, path: Path) -> None:
        """Write vectors to a file."""
        try:
            self._write(path, self._operand_source.choose())
        except ValueError:  # as in `operands`, without a second computation of all results
            self._write(path, self._operand_source.choose(self._rows_without_result))

    def _write(self, path: Path, operands: list[NDArray[Any]]) -> None:
        case = self.case
        write_cases(path, case, self._with_draws(operands))
        lines = path.read_text(encoding="ascii").splitlines()
        if any(isinstance(kind, sf.Format) and not kind.subnormals for kind in case.kinds[:-1]):
            lines = [self._with_codes_of_zero(number, line) for number, line in enumerate(lines)]
        path.write_text("".join(f"{line}\n" for line in with_nan_codes(lines, case)), encoding="ascii", newline="\n")

    def _with_codes_of_zero(self, number: int, line: str) -> str:
        """Return a line with other codes of zero: without subnormal numbers, their codes are codes of zero."""
        fields = line.split()
        kinds, _ = self.case.columns(len(fields) - self.case.has_flags)
        for column, kind in enumerate(kinds[:-1]):
            if isinstance(kind, sf.Format) and not kind.subnormals and kind.mantissa_bits:
                code, fraction = int(fields[column], 16), (number * 0x9E3779B1 >> 7) % 2**kind.mantissa_bits
                if sf.decode(code, kind) == 0:
                    fields[column] = f"{code | fraction:0{len(fields[column])}X}"
        return " ".join(fields)

    def _rows_without_result(self, operands: list[NDArray[Any]]) -> NDArray[np.bool_]:
        """Return True for rows whose result is NaN or negative, if the output's format does not have such numbers."""
        case, output, cases = self.case, self.case.kinds[-1], len(operands[0])
        rows = np.zeros(cases, np.bool_)
        draws = [np.zeros((cases, case.draws), np.int64)] if case.draws else []
        if case.operation == DOT:  # a step of the sum may round to a format without infinities or NaN
            are_finite = np.all([np.isfinite(x).reshape(cases, -1).all(axis=1) for x in operands], axis=0)
            for row in np.flatnonzero(~are_finite):
                rows[row] = not self._have_results([operand[row : row + 1] for operand in [*operands, *draws]])
        if not isinstance(output, sf.Format):  # integers and booleans represent every result
            return rows
        kinds = (*case.kinds[:-1], WIDE)
        signature = case.signature and case.signature._replace(kinds=kinds)
        wide = case._replace(kinds=kinds, rounding=sf.to_odd, signature=signature)
        others = np.flatnonzero(~rows)
        try:
            results = wide.compute([operand[others] for operand in [*operands, *draws]])[0]
        except ValueError:  # not due to the output; writing the file raises the error
            return rows
        rows[others] = np.isnan(results) & (not output.has_nan)
        if not output.signed and not output.is_fixed:
            rows[others] |= results < 0
        return rows

    def text(self) -> str:
        """Return the description in TOML, with the versions."""
        return to_toml({**self.description, "version": VERSION, "simfloat": sf.__version__})


def read_unit(path: str) -> Unit:
    """Read the description in a file; ValueError naming the file if it is missing or invalid."""
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8").removeprefix("\ufeff")
        description = tomllib.loads(text)
        # `Unit.text` has written a description with versions.
        version, simfloat = (description.pop(key, None) for key in ("version", "simfloat"))
        return _as_unit(Path(path).stem, description)._replace(version=None if simfloat is None else version)
    except tomllib.TOMLDecodeError as error:
        advice = quotes_missing(text, error)
        raise ValueError(f"{path}: {error}{'.' if advice else ''}{advice}") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ValueError(f'{path} is not a text in UTF-8. A description looks like operation = "add".') from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _as_unit(name: str, description: dict[str, Any]) -> Unit:
    """Return the unit of a description; ValueError if it is invalid."""
    for key in description:
        if key not in KEYS:
            raise ValueError(f"{key!r} is not a key of a unit: {', '.join(KEYS)}.{did_you_mean(key, KEYS)}")
    if "operation" not in description:
        raise ValueError('The description of a unit must contain an operation, such as operation = "add".')
    numbers = {}
    for key, (default, least, most) in NUMBERS.items():
        numbers[key] = description.get(key, default)
        if not is_integer(numbers[key], least, most):
            raise ValueError(f"{key} must be an integer from {least} to {most}, got {numbers[key]!r}.")
    if isinstance(pair := description.get("format"), list):
        if len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise ValueError(
                f'format must be one name, or a pair for a and b, such as ["E4M3", "E5M2"]; got {pair!r}. If c of '
                "an fma has another format, write a 'dot' with terms = 1 and accumulate = 'sequential(FORMAT OF C)'."
            )
        description["format"] = f"({', '.join(pair)})"
    accumulate, format, scales = (description.get(key) for key in ("accumulate", "format", "scales"))
    operation = description["operation"]
    if operation in ("round", DOT, *OPERATIONS) and format is None:
        raise ValueError(
            f'The unit needs the format of {operation!r}: write format = "FP16", or a name of TestFloat, such as '
            'operation = "f16_add".'
        )
    if operation == "round" and "output" in description:
        advice = "the second format of the pair is that of results. Leave it out."
        if not str(format).startswith("("):
            advice = (
                "format is the format of the results, and operands are FP64 numbers. For operands of another format, "
                'write both formats: format = ["FP16", "E5M2"].'
            )
        raise ValueError(f"output is not a key of 'round': {advice}")
    case = case_of(
        operation,
        parse(format) if isinstance(format, str) and format.startswith(("(", "p3109(")) else format,
        description.get("rounding"),
        description.get("output"),
        None if accumulate is None else parse(str(accumulate)),
        flags=description.get("flags"),
        blocks=None if scales is None else parse(str(scales)),
    )
    addend = description.get("addend", True)
    if not isinstance(addend, bool):
        raise ValueError(f"addend must be true or false, got {addend!r}.")
    if not addend and case.operation != DOT:
        raise ValueError(f"addend = false is only for 'dot', whose sums then start from c = +0; got {operation!r}.")
    if not addend and not case.kinds[-2].has_zero:  # type: ignore[union-attr]
        raise ValueError(
            f"addend = false lets all sums start from c = +0, but {case.kinds[-2]}, the format of c, has no zero."
        )
    wraps = description.get("wraps", False)
    if not isinstance(wraps, bool):
        raise ValueError(f"wraps must be true or false, got {wraps!r}.")
    if "invalid" in description:
        case = case.with_invalid_results(description["invalid"])
    case = case.wrapping() if wraps else case.with_draws(numbers["terms"])
    return Unit(name, description, case, **numbers, addend=addend)
