"""Descriptions of arithmetic units in TOML, with operands that test them.

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
from numpy.typing import ArrayLike, NDArray

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.arithmetic.testfloat import Kind
from simfloat.common import did_you_mean, is_integer
from simfloat.policy.text import parse, quotes_missing, to_toml
from simfloat.sums.test_vectors import DOT, OPERATIONS, Case, case_of, write_vectors

#: The keys of a description, and their meanings; the table of the cookbook contains them.
KEYS = {
    "operation": "'add', 'fma', 'round', ...; 'dot', a sum of products; a name of TestFloat, such as 'f16_to_i32'",
    "format": "the format of operands, or of results of 'round'; two in a list for 'dot'; not with names of TestFloat",
    "output": "the format of the result; by default the format of the operands, or of the accumulator",
    "rounding": "the rounding mode; by default 'nearest_even'; not for 'dot'",
    "accumulate": "the accumulator of 'dot', such as 'fused(4, 20)' or 'sequential(FP32)'",
    "terms": "the number of products of 'dot'; by default 4",
    "flags": "false for hardware without flags, true also for aligned and exact sums",
    "cases": "the number of cases; by default 200",
    "seed": "the seed of the operands; by default 0",
}

#: The version of the files of a unit; it changes if the same description gives other files.
VERSION = 3

#: The defaults and the limits of numbers in a description.
NUMBERS = {"terms": (4, 1, 4096), "cases": (200, 1, 10**6), "seed": (0, 0, 2**32 - 1)}

#: Far larger products that cancel: their largest exponent, so that sums in FP16 do not overflow, and the number of
#: differences between their exponent and that of the other products.
LARGEST_EXPONENT, GAPS = 13, 32

#: Distances of operands of a rounding from a number of the result, in spacings of the result.
DISTANCES = np.array([0.0, 0.25, 0.5, 0.5, 0.5, 0.75])

#: The number of draws of operands, if operands of the first have no result; and a format in which every operation has
#: results, rounded to odd: NaN and negative numbers remain what they are.
DRAWS, WIDE = 16, sf.Format(11, 40)


class Unit(NamedTuple):
    """An operation, and the number and the seed of the operands that test it."""

    name: str
    description: dict[str, Any]
    case: Case
    terms: int
    cases: int
    seed: int
    describes_file: bool = False  # `simfloat vectors` wrote the description beside its cases

    def write(self, path: Path) -> None:
        """Write vectors to a file. Operands without a result in the output's format are replaced by others."""
        operands = self._operands(0)
        try:
            self._write(path, operands)
        except ValueError:
            self._replace_rows_without_result(operands)
            self._write(path, operands)

    def _write(self, path: Path, operands: list[NDArray[Any]]) -> None:
        case, scales = self.case, None
        if case.operation == DOT:
            a, b, *of_blocks, c = operands
            operands, scales = [a, b, c], tuple(of_blocks) or None
        arguments: list[Any] = [] if case.signature else [case.kinds[:2] if case.operation == DOT else case.kinds[0]]
        arguments += [] if case.operation == DOT else [case.rounding]
        if case.operation == "round":
            arguments[0] = case.kinds[-1]
        options: dict[str, Any] = {} if case.signature or case.operation == "round" else {"output": case.kinds[-1]}
        options |= {"accumulate": case.accumulator, "scales": scales, "flags": case.flags}
        write_vectors(path, case.operation, *operands, *arguments, **options)

    def _operands(self, draw: int) -> list[NDArray[Any]]:
        operands = [self._operand(place, kind, draw) for place, kind in enumerate(self.case.kinds[:-1])]
        if self.case.operation == DOT:
            self._relate_terms(operands, draw)
        return operands

    def _replace_rows_without_result(self, operands: list[NDArray[Any]]) -> None:
        """Replace rows without a result by later draws, and rows that had no result in any draw by other rows."""
        for draw in range(1, DRAWS):
            rows = self._rows_without_result(operands)
            if not rows.any():
                return
            for operand, other in zip(operands, self._operands(draw), strict=True):
                operand[rows] = other[rows]
        rows = self._rows_without_result(operands)
        if not rows.all():
            for operand in operands:
                operand[rows] = np.resize(operand[~rows], operand[rows].shape)

    def _rows_without_result(self, operands: list[NDArray[Any]]) -> NDArray[np.bool_]:
        """Return True for rows whose result is NaN, or negative if the output's format has no negative numbers."""
        case, output = self.case, self.case.kinds[-1]
        rows = np.zeros(self.cases, np.bool_)
        if case.operation == DOT:  # a step of the sum may round to a format without NaN
            rows = ~np.all([np.isfinite(x).reshape(self.cases, -1).all(axis=1) for x in operands], axis=0)
        wide = case._replace(kinds=(*case.kinds[:-1], WIDE), rounding=sf.to_odd)
        others = np.flatnonzero(~rows)
        try:
            results = wide.compute([operand[others] for operand in operands])[0]
        except ValueError:  # not due to the output; writing the file raises the error
            return rows
        rows[others] = np.isnan(results)
        if isinstance(output, sf.Format) and not output.signed and not output.is_fixed:
            rows[others] |= results < 0
        return rows

    def _operand(self, place: int, kind: Kind, draw: int) -> NDArray[Any]:
        """Return random numbers of a kind, half of them replaced by edge cases."""
        is_factor = self.case.operation == DOT and place < 2
        is_scale = self.case.operation == DOT and 2 <= place < len(self.case.kinds) - 2
        columns = -(-self.terms // self.case.block) if is_scale else self.terms if is_factor else 1
        size = self.cases * columns
        words = random_words(Draw(self.seed, place, draw), 0, 4 * size).reshape(4, size)
        codes = words[0].astype(np.uint64) << np.uint64(32) | words[1]
        if isinstance(kind, np.dtype):
            edges = np.array([0, 1, -1, np.iinfo(kind).min, np.iinfo(kind).max], object)
            numbers = codes.astype(f"u{kind.itemsize}").view(kind).astype(object)
        else:
            edges = self._edges(kind)
            if self._narrows(kind):
                edges = np.append(edges, self._edges_of_result(kind))
            codes &= np.uint64(2**kind.bits - 1)
            if kind.special == "fixed_symmetric":  # the lowest code is not a number
                codes[codes == 2 ** (kind.bits - 1)] = 0
            numbers = sf.decode(codes, kind).astype(np.float64)
            if self.case.operation == DOT:  # infinities and NaN would be the only results
                # The factors of every fifth row differ more.
                reach = np.where(is_factor & (np.arange(size) // columns % 5 == 4), 12, 6)
                exponents = (words[1] % (2 * reach)).astype(np.int64) - reach
                numbers = _with_exponents(_random_significands(words[0], words[3]), exponents, kind)
            elif self._narrows(kind):
                near = np.arange(size) % 4 != 3
                numbers[near] = self._operands_near_results(kind, draw)[near]
        rarity = 16 * columns if is_factor or is_scale else 4 if self._narrows(kind) else 2
        at = words[2] % np.uint32(rarity * edges.size) < edges.size
        numbers[at] = edges[words[3][at] % np.uint32(edges.size)]
        if is_scale and isinstance(kind, sf.Format) and not kind.has_zero:  # powers of two, with rare NaN
            numbers[np.isfinite(numbers) & at] = 1.0
        return numbers.reshape(self.cases, columns) if is_factor or is_scale else numbers

    @staticmethod
    def _edges(format: sf.Format) -> NDArray[np.float64]:
        edges = [0.0 if format.has_zero else 1.0, 1.0, format.smallest_subnormal, format.smallest_normal, format.max]
        if format.signed:
            edges += [-x for x in edges]
        edges += [np.inf] if format.has_infinity else []
        edges += [np.nan] if format.has_nan else []
        return np.unique(sf.round(edges, format)).astype(np.float64) if format.is_fixed else np.array(edges)

    def _narrows(self, kind: Kind) -> bool:
        """Return True if the operation rounds one operand of this kind to an integer, or to fewer significant bits."""
        result = self.case.kinds[-1]
        if not isinstance(kind, sf.Format) or not (self.case.operation == "round" or "_to_" in self.case.operation):
            return False
        return isinstance(result, np.dtype) or result.precision < kind.precision

    def _edges_of_result(self, kind: sf.Format) -> NDArray[np.float64]:
        """Return the ends of the range of the result, and the ties next to them."""
        result = self.case.kinds[-1]
        if isinstance(result, np.dtype):
            limits = np.iinfo(result)
            edges = [limits.min + step / 2 for step in range(-2, 2)] + [limits.max + step / 2 for step in range(-1, 3)]
        else:
            tiny, normal, most, gap = _ends(result)
            edges = [tiny / 2, tiny * 1.5, normal - tiny / 2, normal, most, most + gap / 2, most + gap]
            edges += [-x for x in edges if result.signed]
        return sf.round(edges, kind, sf.nearest_even.saturating()).astype(np.float64)

    def _operands_near_results(self, kind: sf.Format, draw: int) -> NDArray[np.float64]:
        """Return operands of a rounding that lie in the range of the result.

        Each is a number of the result plus a part of the spacing, in every second case a half. Every second operand is
        then moved by a small part of the spacing. Two of eight operands are below twice the smallest normal number, and
        one is among the largest numbers.
        """
        result, size, rows = self.case.kinds[-1], self.cases, np.arange(self.cases)
        words = random_words(Draw(self.seed, 1, draw), 0, 5 * size).reshape(5, size)
        if isinstance(result, np.dtype):
            bits = np.iinfo(result).bits - (result.kind == "i")
            codes = words[0].astype(np.uint64) << np.uint64(32) | words[1]
            numbers = (codes >> (np.uint64(64) - np.uint64(1) - words[2] % np.uint64(bits))).astype(np.float64)
            spacings, is_signed, precision = np.ones(size), result.kind == "i", kind.precision
        else:
            codes = (words[0].astype(np.uint64) << np.uint64(32) | words[1]) & np.uint64(2**result.bits - 1)
            with np.errstate(invalid="ignore"):
                numbers = np.abs(sf.decode(codes, result).astype(np.float64))
            tiny, _, most, gap = _ends(result)
            digits = words[1].astype(np.float64) % 2.0 ** (min(result.mantissa_bits, 30) + 1)
            numbers = np.select([rows % 8 < 2, rows % 8 == 2], [tiny * digits, most - gap * (words[1] % 4)], numbers)
            numbers = np.clip(np.where(np.isfinite(numbers), numbers, 1.0), 0.0, most)
            spacings, is_signed = sf.ulp(numbers, result).astype(np.float64), result.signed
            precision = kind.precision - result.precision
        depths = 2.0 + words[2] // 16 % max(precision - 2, 1)
        away = np.array([0.0, 0.0, 1.0, -1.0])[words[3] // 16 % 4] * 2.0**-depths
        distances = DISTANCES[words[4] % DISTANCES.size] + away
        signs = 1.0 - 2.0 * (words[3] & 1) if is_signed else 1.0
        near = signs * np.abs(numbers + distances * spacings)
        return sf.round(near, kind, sf.nearest_even.saturating()).astype(np.float64)

    def _relate_terms(self, operands: list[NDArray[Any]], draw: int) -> None:
        """Let the terms of a sum cancel, or cut bits of each other.

        In every second row the first product and another one cancel; in half of these rows, they are far larger than
        the other products. A third of the sums start from zero. Another third start from a number with all significant
        bits of its format, whose exponent is near that of the largest product, or of the products that do not cancel.
        The terms of every eleventh row are near the smallest normal number of the sums, or of b.
        """
        a, b, *scales, c = operands
        of_a, of_b, *_, of_c, _ = self.case.kinds
        assert isinstance(of_a, sf.Format) and isinstance(of_b, sf.Format) and isinstance(of_c, sf.Format)
        rows, columns = np.arange(self.cases), np.arange(self.terms)
        key = Draw(self.seed, len(operands), draw)
        words = random_words(key, 0, 4 * self.cases).reshape(4, self.cases).astype(np.int64)
        are_tiny = rows % 11 == 5
        are_far = (rows % 4 == 0) & ~are_tiny
        limits = of_c.smallest_normal, of_c.max / 4.0, of_a.max, of_b.max
        least, most, most_a, most_b = (int(_exponents(x)) for x in limits)
        top = min(most_a + most_b, most, LARGEST_EXPONENT)
        gap = words[0] % GAPS
        related = np.where(are_tiny, least - 2, top - gap)[:, np.newaxis] - (rows[:, np.newaxis] + columns) % 4
        wanted = related - _exponents(a)
        moved = _with_exponents(b, wanted, of_b)
        b[are_far | are_tiny] = moved[are_far | are_tiny]
        # Products that cannot be as small as the sums are zero in half of the rows, so that sums are subnormal.
        if of_b.has_zero:
            b[(are_tiny & (rows % 2 == 1))[:, np.newaxis] & (wanted < _exponents(of_b.smallest_subnormal))] = 0.0
        a[are_far, 0] = _with_exponents(a[are_far, 0], np.full(are_far.sum(), min(top // 2, most_a)), of_a)
        b[are_far, 0] = _with_exponents(b[are_far, 0], top - _exponents(a[are_far, 0]), of_b)
        for first, column in ((0, -1), (2, -1), (4, min(1, self.terms - 1)), (6, -1)):
            a[first::8, column] = -a[first::8, 0] if of_a.signed else a[first::8, 0]
            b[first::8, column] = b[first::8, 0]
        with np.errstate(invalid="ignore", over="ignore"):
            products = np.abs(a * b)
            for scale in scales:
                products *= np.repeat(scale, self.case.block, axis=1)[:, : self.terms]
        largest = _exponents(np.max(products, axis=1, where=np.isfinite(products), initial=0.0))
        # Half of the exponents differ by at most 4, the others by more than the significant bits.
        reach = np.where(words[1] & 1, 4, of_c.precision + 2)
        near = largest - np.where(are_far, gap, 0) + words[2] % (2 * reach + 1) - reach
        exponents = np.where(are_tiny, least - words[2] % of_c.precision, near)
        starts = _with_exponents(_random_significands(words[0], words[3]), exponents, of_c)
        c[...] = np.select([(rows % 3 == 1) | are_tiny, rows % 3 == 0], [starts, c], 0.0 if of_c.has_zero else 1.0)
        if self.case.accumulator is not None and not self.case.accumulator.takes_initial:
            c[...] = 0.0

    def text(self) -> str:
        """Return the description in TOML, with the versions."""
        return to_toml({**self.description, "version": VERSION, "simfloat": sf.__version__})


def _ends(format: sf.Format) -> tuple[float, float, float, float]:
    """Return the smallest, the smallest normal and the largest number of a format, and the last spacing."""
    most = float(format.max)
    return float(format.smallest_subnormal), float(format.smallest_normal), most, float(sf.ulp(most, format))


def _random_significands(words: NDArray[Any], signs: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers from 1 to 2 of 33 significant bits, with random signs."""
    return (1.0 + words / 2.0**32) * (1.0 - 2.0 * (signs & 1))


def _exponents(x: ArrayLike) -> NDArray[np.int64]:
    """Return the exponents of the binades of numbers."""
    return np.frexp(x)[1].astype(np.int64) - 1


def _with_exponents(x: NDArray[np.float64], exponents: NDArray[np.int64], format: sf.Format) -> NDArray[np.float64]:
    """Return numbers of a format with the significands of x, and with exponents as near as the format has them."""
    exponents = np.clip(exponents, _exponents(format.smallest_subnormal), _exponents(format.max))
    moved = np.ldexp(x, (exponents - _exponents(x)).astype(np.int32))
    return sf.round(moved if format.signed else np.abs(moved), format, sf.nearest_even.saturating()).astype(np.float64)


def read_unit(path: str) -> Unit:
    """Read the description in a file; ValueError naming the file if it is missing or invalid."""
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8").removeprefix("\ufeff")
        description = tomllib.loads(text)
        # `Unit.text` has written a description with versions.
        versions = [description.pop(key, None) for key in ("version", "simfloat")]
        return _as_unit(Path(path).stem, description)._replace(describes_file=None not in versions)
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
            raise ValueError(f'format must be one name, or a pair for a and b, such as ["E4M3", "E5M2"]; got {pair!r}.')
        description["format"] = f"({', '.join(pair)})"
    accumulate, format = description.get("accumulate"), description.get("format")
    operation = description["operation"]
    if operation in ("round", DOT, *OPERATIONS) and format is None:
        raise ValueError(
            f'The unit needs the format of {operation!r}: write format = "FP16", or a name of TestFloat, such as '
            'operation = "f16_add".'
        )
    case = case_of(
        operation,
        parse(format) if isinstance(format, str) and format.startswith(("(", "p3109(")) else format,
        description.get("rounding"),
        description.get("output"),
        None if accumulate is None else parse(str(accumulate)),
        flags=description.get("flags"),
    )
    modes = (case.rounding, *(case.accumulator.roundings if case.accumulator else ()))
    if any(mode.is_stochastic for mode in modes):
        raise ValueError("A unit rounds in a deterministic mode; vectors with draws come from simfloat.write_vectors.")
    return Unit(name, description, case, **numbers)
