"""Operands that test a unit: random numbers, edge cases, and operands whose results are near a rounding boundary.

A wrong rounding shows only if the exact result is a tie, or near one. Random operands have such results rarely. So a
boundary of the rounding is drawn first, and then operands whose exact result is this boundary, or near it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.arithmetic.testfloat import COMPARISONS, SIMFLOAT_NAMES, Kind
from simfloat.sums.test_vectors import DOT, Case

#: Far larger products that cancel: their largest exponent, so that sums in FP16 do not overflow, and the number of
#: differences between their exponent and that of the other products.
LARGEST_EXPONENT, GAPS = 13, 32

#: The number of rows after which the kinds of operands of a single operation repeat, and the number of operands from
#: which the ones with the result nearest to a boundary are taken.
FAMILIES, CANDIDATES = 8, 16

#: The number of rows whose candidates are computed at once, and the largest precision of results whose boundaries
#: float64 can represent, with what is behind them.
ROWS_AT_ONCE, MOST_PRECISION = 4096, 50

#: The exact result of an operation, and the last operand for an exact result and the other operands. A conversion has
#: the name "to" in TestFloat.
EXACT: dict[str, Callable[..., Any]] = {
    **{"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "sqrt": np.sqrt},
    **{"fma": lambda a, b, c: a * b + c, "round": lambda x: x, "to": lambda x: x},
}
LAST: dict[str, Callable[..., Any]] = {
    **{"add": lambda t, a: t - a, "subtract": lambda t, a: a - t, "multiply": lambda t, a: t / a},
    **{"divide": lambda t, a: a / t, "sqrt": lambda t: t * t, "fma": lambda t, a, b: t - a * b},
    **{"round": lambda t: t, "to": lambda t: t},
}

#: Operations that round their only operand; and operations whose results are integers, also as numbers of a format.
CONVERSIONS = frozenset(("round", "to"))
TO_INTEGERS = frozenset(("roundToInt", "rint", "floor", "ceil", "trunc"))


class Operands(NamedTuple):
    """The operands of the cases of an operation, which follow from a seed."""

    case: Case
    terms: int
    cases: int
    seed: int

    def draw(self, number: int) -> list[NDArray[Any]]:
        """Return the draw with a number: vectors, or for factors and scales of sums matrices with a row a case."""
        operands = [self._operand(place, kind, number) for place, kind in enumerate(self.case.kinds[:-1])]
        if self.case.operation == DOT:
            self._relate_terms(operands, number)
        else:
            self._relate_operands(operands, number)
        # Codes decide the sign of zero: some formats have no -0.
        return [
            sf.decode(sf.encode(x, kind), kind).astype(np.float64) if isinstance(kind, sf.Format) else x
            for x, kind in zip(operands, self.case.kinds, strict=False)
        ]

    def _operand(self, place: int, kind: Kind, draw: int) -> NDArray[Any]:
        """Return random numbers of a kind, half of them replaced by edge cases."""
        is_factor = self.case.operation == DOT and place < 2
        is_scale = self.case.operation == DOT and 2 <= place < len(self.case.kinds) - 2
        columns = -(-self.terms // self.case.block) if is_scale else self.terms if is_factor else 1
        size = self.cases * columns
        words = random_words(Draw(self.seed, place, draw), 0, 4 * size).reshape(4, size)
        codes = words[0].astype(np.uint64) << np.uint64(32) | words[1]
        if isinstance(kind, np.dtype):
            least, most = np.iinfo(kind).min, np.iinfo(kind).max
            edges = np.array([0, 1, max(-1, least), least, most], object)
            numbers = codes.astype(f"u{kind.itemsize}").view(kind).astype(object)
        else:
            edges = _edges(kind)
            codes &= np.uint64(2**kind.bits - 1)
            if kind.special == "fixed_symmetric":  # the lowest code is not a number
                codes[codes == 2 ** (kind.bits - 1)] = 0
            numbers = sf.decode(codes, kind).astype(np.float64)
            if self.case.operation == DOT:  # infinities and NaN would be the only results
                # The factors of every fifth row differ more.
                reach = np.where(is_factor & (np.arange(size) // columns % 5 == 4), 12, 6)
                exponents = (words[1] % (2 * reach)).astype(np.int64) - reach
                numbers = _with_exponents(_random_significands(words[0], words[3]), exponents, kind)
        rarity = 16 * columns if is_factor or is_scale else 2
        at = words[2] % np.uint32(rarity * edges.size) < edges.size
        numbers[at] = edges[words[3][at] % np.uint32(edges.size)]
        if is_scale and isinstance(kind, sf.Format) and not kind.has_zero:  # powers of two, with rare NaN
            numbers[np.isfinite(numbers) & at] = 1.0
        return numbers.reshape(self.cases, columns) if is_factor or is_scale else numbers

    def _relate_terms(self, operands: list[NDArray[Any]], draw: int) -> None:
        """Let the terms of a sum cancel, cut bits of each other, or carry far.

        In every second row the first product and another one cancel; in half of these rows, they are far larger than
        the other products. A third of the sums start from zero. Another third start from a number with all significant
        bits of its format, whose exponent is near that of the largest product, or of the products that do not cancel.
        The terms of every eleventh row are near the smallest normal number of the sums, or of b. In another eleventh
        all terms have one sign, one exponent and the largest significands, so that their sum carries as far as it can.
        """
        a, b, *scales, c = operands
        of_a, of_b, *_, of_c, _ = self.case.kinds
        assert isinstance(of_a, sf.Format) and isinstance(of_b, sf.Format) and isinstance(of_c, sf.Format)
        rows, columns = np.arange(self.cases), np.arange(self.terms)
        key = Draw(self.seed, len(operands), draw)
        words = random_words(key, 0, 4 * self.cases).reshape(4, self.cases).astype(np.int64)
        are_tiny, are_full = rows % 11 == 5, rows % 11 == 9
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
            # The lowest number of two's complement has no opposite.
            a[first::8, column] = _as_numbers(-a[first::8, 0], of_a)
            b[first::8, column] = b[first::8, 0]
        for x, kind in ((a, of_a), (b, of_b)):
            exponents = np.minimum(words[3, are_full] % 4, int(_exponents(kind.max)) - 1)[:, np.newaxis]
            x[are_full] = _with_exponents(np.full(x[are_full].shape, 2.0 - kind.eps), exponents, kind)
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
        c[are_full] = np.abs(c[are_full])
        if self.case.accumulator is not None and not self.case.accumulator.takes_initial:
            c[...] = 0.0

    def _relate_operands(self, operands: list[NDArray[Any]], draw: int) -> None:
        """Replace five eighths of the rows by operands whose results are near a boundary of the rounding.

        In rows 3 of 8, the exact result is as near as possible to a number halfway between two neighbours, or to a
        neighbour, but not equal to it. In rows 4 it is a tie, if ties exist. In rows 5 it is near the overflow
        threshold or near the smallest numbers. In rows 6 the operands cancel, or the result is exact. In rows 7 an
        operand is subnormal, or zero in a format without subnormal numbers. Most operands of a conversion are near
        numbers of the result in rows 0 and 1, and near subnormal numbers of the result in rows 2.
        """
        signature = self.case.signature
        name = signature.operation if signature else self.case.operation
        name = SIMFLOAT_NAMES.get(name, name)
        rows = np.arange(self.cases)
        if name in COMPARISONS or name == "remainder":
            self._relate_pairs(name, operands)
            return
        if name in LAST or name in TO_INTEGERS:
            family, is_other = rows % FAMILIES, (rows // FAMILIES % 4 > 0) & (name in CONVERSIONS)
            is_near = (family >= 3) & (family <= 6) | (family < 3) & is_other
            for block in np.array_split(np.flatnonzero(is_near), -(-self.cases // ROWS_AT_ONCE)):
                for operand, values in zip(operands, self._solve(name, block, draw), strict=True):
                    operand[block] = values
        for place, kind in enumerate(self.case.kinds[:-1]):
            if isinstance(kind, sf.Format) and kind.has_zero and not kind.is_fixed and kind.mantissa_bits:
                small = rows[(rows % FAMILIES == 7) & (rows // FAMILIES % len(operands) == place)]
                parts = np.fmod(np.abs(np.nan_to_num(operands[place][small], posinf=0.0)), 1.0)
                multiples = np.maximum(np.round(np.ldexp(parts, kind.mantissa_bits)), 1.0) * kind.subnormals
                operands[place][small] = _as_numbers(multiples * kind.smallest_subnormal, kind)
        of_first = self.case.kinds[0]
        if name in CONVERSIONS and isinstance(of_first, sf.Format):  # all special values, in turn
            edges, at = _edges(of_first), rows[rows % (2 * FAMILIES) == 2 * FAMILIES - 1]
            operands[0][at] = edges[at // (2 * FAMILIES) % edges.size]

    def _relate_pairs(self, name: str, operands: list[NDArray[Any]]) -> None:
        """Let two operands be equal or neighbours; for a remainder, let their quotient be halfway between integers."""
        first, last = operands
        kind = self.case.kinds[0]
        assert isinstance(kind, sf.Format)
        is_near = np.arange(self.cases) % FAMILIES >= 3
        if name == "remainder":
            rows = np.flatnonzero(is_near & np.isfinite(last))
            with np.errstate(over="ignore"):
                dividends = _as_numbers(last[rows] * (rows // FAMILIES % 16 + 0.5), kind)
            first[rows] = _neighbours(dividends, rows % 3 - 1, kind)
        else:
            rows = np.flatnonzero(is_near & np.isfinite(first))
            last[rows] = _neighbours(first[rows], rows % 3 - 1, kind)

    def _solve(self, name: str, rows: NDArray[np.int64], draw: int) -> list[NDArray[Any]]:
        """Return operands for rows: of several candidates those whose result is nearest to a boundary."""
        *of_others, of_last = self.case.kinds[:-1]
        result = self.case.kinds[-1]
        to_integers = isinstance(result, np.dtype) or name in TO_INTEGERS
        operation = "to" if to_integers else name
        words = _words(Draw(self.seed, len(self.case.kinds), draw), rows, 6).astype(np.int64)
        family, turn = (rows % FAMILIES)[:, np.newaxis], (rows // FAMILIES)[:, np.newaxis]
        draw_boundaries = _integer_boundaries if to_integers else _boundaries
        below, part = draw_boundaries(result, of_last, family[:, 0], turn[:, 0], words[:2, :, 0])
        below, part = below[:, np.newaxis], part[:, np.newaxis]
        precision = result.precision if isinstance(result, sf.Format) else 24
        with np.errstate(all="ignore"):
            boundary = below + part
            candidates = _candidates(operation, boundary, of_others, precision, words)
            last = LAST[operation](boundary, *candidates) + np.zeros((1, CANDIDATES))
            steps = np.where(np.arange(CANDIDATES) % 4 == 0, words[4] % 3 - 1, 0)
            if operation in ("add", "subtract"):  # a number, and the part of a spacing behind it
                last[:, ::2] = part if operation == "add" else -part
                candidates[0][:, ::2] = _as_numbers(below, of_others[0])
            if operation == "fma":  # the same, with a product as the part
                b = _as_numbers(part / candidates[0], of_others[1])
                candidates[1][:, ::2] = _neighbours(b, steps, of_others[1])[:, ::2]
                last[:, ::2] = below
            if operation in ("add", "subtract", "fma"):  # operands that cancel
                exact = EXACT["multiply"](*candidates) if operation == "fma" else candidates[0]
                last = np.where(family == 6, exact if operation == "subtract" else -exact, last)
            if isinstance(of_last, np.dtype):  # float64 does not have all integers of 64 bits
                last = _as_numbers(below, of_last) + _as_numbers(part, of_last) + np.zeros((1, CANDIDATES), int)
            else:
                last = _as_numbers(last, of_last)
            last = _neighbours(last, steps, of_last)
            if operation == "multiply":
                self._tie_products(candidates, last, family[:, 0] == 4, precision, words)
            away = np.abs(EXACT[operation](*candidates, last.astype(np.float64)) - boundary)
        # In rows 4 an exact tie is the nearest; in the others it is not a candidate.
        away = np.where((away == 0) & (family != 4) | np.isnan(away), np.inf, away)
        # float64 cannot represent the boundaries of its own roundings.
        is_free = (
            (family == 6) | (family < 3) | ((family == 4) & (operation == "multiply")) | (precision > MOST_PRECISION)
        )
        best = np.where(is_free, turn % CANDIDATES, np.argmin(away, axis=1)[:, np.newaxis])
        return [np.take_along_axis(x, best, axis=1)[:, 0] for x in (*candidates, last)]

    def _tie_products(
        self,
        candidates: list[NDArray[Any]],
        last: NDArray[Any],
        rows: NDArray[np.bool_],
        precision: int,
        words: NDArray[np.int64],
    ) -> None:
        """Replace factors in rows by odd integers whose product has one bit more than the result, times powers of two.

        Products of two odd integers of j and k bits have j + k bits, or one less.
        """
        of_a, of_b = self.case.kinds[:2]
        assert isinstance(of_a, sf.Format) and isinstance(of_b, sf.Format)
        bits = np.clip(1 + words[3] % precision, precision + 1 - of_b.precision, of_a.precision)
        for x, width, kind, word in ((candidates[0], bits, of_a, 0), (last, precision + 1 - bits, of_b, 2)):
            top = np.int64(1) << np.clip(width - 1, 0, 52)
            odd = words[word] % top | top | 1
            x[rows] = _with_exponents(odd.astype(np.float64), _exponents(x), kind)[rows]


def _words(key: Draw, rows: NDArray[np.int64], count: int) -> NDArray[np.uint32]:
    """Return random words, (count, rows, CANDIDATES), which depend only on the number of a row."""
    size = CANDIDATES * count
    if not rows.size:
        return np.zeros((count, 0, CANDIDATES), np.uint32)
    first, last = int(rows[0]), int(rows[-1]) + 1
    words = random_words(key, first * size, last * size).reshape(-1, count, CANDIDATES)
    return np.moveaxis(words[rows - first], 1, 0)


def _boundaries(
    format: Kind, of_last: Kind, family: NDArray, turn: NDArray, words: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return numbers of a format, and the part of a spacing from each to a boundary: half of one, or nothing."""
    assert isinstance(format, sf.Format)
    if isinstance(of_last, np.dtype):  # the numbers below integers, in all binades alike
        integers = _random_integers(of_last, words)
        below = sf.round(integers, format, sf.toward_zero.saturating()).astype(np.float64)
    else:
        codes = words[0].astype(np.uint64) << np.uint64(32) | words[1].astype(np.uint64)
        codes &= np.uint64(2**format.bits - 1)
        if format.special == "fixed_symmetric":
            codes[codes == 2 ** (format.bits - 1)] = 0
        below = sf.decode(codes, format).astype(np.float64)
    below[~np.isfinite(below)] = 1.0
    signs = np.where(np.signbit(below), -1.0, 1.0)
    ends = [0.0 if format.has_zero else format.smallest_subnormal, format.smallest_normal, format.max]
    if format.mantissa_bits:
        multiples = (words[1] % (1 << min(format.mantissa_bits, 30))).astype(np.float64)
        below = np.where(family == 2, signs * multiples * format.smallest_subnormal, below)
    is_end = family == 5
    below[is_end] = (signs * np.array(ends)[turn % 3])[is_end]
    part = signs * sf.ulp(below, format).astype(np.float64) / 2
    # A result just below the smallest normal number may be tiny only before its rounding.
    is_number = is_end & (turn % 3 == 1) | ((family == 3) & (turn % 4 == 3)) | (family == 6)
    part = np.where(is_number & (below != 0), 0.0, part)
    return below, np.where(family < 3, part * (words[0] % 17 - 8) / 2, part)


def _integer_boundaries(
    kind: Kind, of_last: Kind, family: NDArray, turn: NDArray, words: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return integers, and the part from each to a boundary: 1/2, or nothing."""
    integers = _random_integers(kind if isinstance(kind, np.dtype) else np.dtype(np.int16), words)
    limits = np.iinfo(kind if isinstance(kind, np.dtype) else np.int16)
    ends = np.array([0.0, -1.0, limits.max, limits.min - 1.0])
    integers = np.where(family == 5, ends[turn % 4], integers)
    return integers, np.where((family == 6) | ((family == 3) & (turn % 4 == 3)), 0.0, 0.5)


def _random_integers(dtype: np.dtype, words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return integers of a dtype, with all numbers of bits alike."""
    limits = np.iinfo(dtype)
    sizes = np.floor(np.ldexp(1 + words[1] / 2.0**32, (words[0] % (limits.bits - 1)).astype(np.int32)))
    return np.where((words[1] % 2 == 1) & (limits.min < 0), -sizes, sizes)


def _candidates(
    operation: str,
    boundary: NDArray[np.float64],
    kinds: list[Kind],
    precision: int,
    words: NDArray[np.int64],
) -> list[NDArray[np.float64]]:
    """Return candidates for all operands except the last one, so that the last one can be near the boundary."""
    if not kinds:
        return []
    # In every second candidate, significands have few bits, so that the last operand is often exact.
    significands = _random_significands(words[0], words[1])
    few = np.ldexp(1.0, (words[2] % precision).astype(np.int32))
    significands = np.where(words[3] % 2 == 0, significands, np.round(significands * few) / few)
    exponents, shift = _exponents(boundary), words[5] % 5 - 2
    of_a = kinds[0]
    assert isinstance(of_a, sf.Format)
    if operation in ("add", "subtract"):
        near = _with_exponents(significands, exponents + 2 - words[5] % (precision + 5), of_a)
        return [near]
    a = _with_exponents(significands, exponents // 2 + shift, of_a)
    if operation != "fma":
        return [a]
    of_b = kinds[1]
    assert isinstance(of_b, sf.Format)
    far = exponents - _exponents(a) + 1 - words[5] % (precision + 4)
    return [a, _with_exponents(_random_significands(words[1], words[2]), far, of_b)]


def _edges(format: sf.Format) -> NDArray[np.float64]:
    """Return the numbers at the ends of a format, and its special values."""
    edges = [0.0 if format.has_zero else 1.0, 1.0, format.smallest_subnormal, format.smallest_normal, format.max]
    if format.signed:
        edges += [-x for x in edges]
    edges += [np.inf] if format.has_infinity else []
    edges += [np.nan] if format.has_nan else []
    return np.unique(sf.round(edges, format)).astype(np.float64) if format.is_fixed else np.array(edges)


def _random_significands(words: NDArray[Any], signs: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers from 1 to 2 of 33 significant bits, with random signs."""
    return (1.0 + words / 2.0**32) * (1.0 - 2.0 * (signs & 1))


def _exponents(x: ArrayLike) -> NDArray[np.int64]:
    """Return the exponents of the binades of numbers."""
    return np.frexp(x)[1].astype(np.int64) - 1


def _with_exponents(x: NDArray[np.float64], exponents: NDArray[np.int64], format: sf.Format) -> NDArray[np.float64]:
    """Return numbers of a format with the significands of x, and with exponents as near as the format has them."""
    exponents = np.clip(exponents, _exponents(format.smallest_subnormal), _exponents(format.max))
    return _as_numbers(np.ldexp(x, (exponents - _exponents(x)).astype(np.int32)), format)


def _as_numbers(x: NDArray[Any], kind: Kind) -> NDArray[Any]:
    """Return the nearest finite numbers of a format, or the nearest integers of a dtype, as objects."""
    x = np.nan_to_num(x, nan=0.0)
    if isinstance(kind, np.dtype):
        limits = np.iinfo(kind)
        numbers = [min(max(int(number), limits.min), limits.max) for number in np.round(x).reshape(-1).tolist()]
        return np.array(numbers, object).reshape(x.shape)
    return sf.round(x if kind.signed else np.abs(x), kind, sf.nearest_even.saturating()).astype(np.float64)


def _neighbours(x: NDArray[Any], steps: NDArray[np.int64], kind: Kind) -> NDArray[Any]:
    """Return the next larger numbers where `steps` is 1, and the next smaller ones where it is -1, if they exist."""
    if isinstance(kind, np.dtype):
        limits = np.iinfo(kind)
        return np.clip(x + np.broadcast_to(steps, x.shape).astype(object), limits.min, limits.max)
    lowest = kind.min if kind.signed else 0.0 if kind.has_zero else kind.smallest_subnormal
    moved = sf.nextafter(x, np.where(steps > 0, kind.max, np.where(steps < 0, lowest, x)), kind)
    return np.where(np.isfinite(moved), moved, x).astype(np.float64)
