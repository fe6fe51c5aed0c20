"""Operands that test a unit: random numbers, edge cases, and operands with results near a rounding boundary.

A wrong rounding shows only if the exact result is a tie, or near one. Random operands rarely have such results. So a
boundary of the rounding is drawn first, and then operands with this boundary as their exact result, or nearly so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.arithmetic.testfloat import COMPARISONS, SIMFLOAT_NAMES, Kind
from simfloat.sums.vector_cases import DOT, Case
from simfloat.tools.commands.nan_operands import with_nan
from simfloat.tools.commands.operand_numbers import (
    as_numbers,
    exponents_of,
    neighbours,
    random_significands,
    special_number,
    with_exponents,
)
from simfloat.tools.commands.special_sums import special_sums

#: The largest exponent of far larger products that cancel. It is so small that sums in FP16 do not overflow.
LARGEST_EXPONENT = 13

#: The number of differences between the exponents of far larger products and of the other products.
GAPS = 32

#: Kinds of operands of a single operation: the number of a row modulo `FAMILIES`. `_relate_operands` describes them.
#: Below `NEAR`, operands are random, except most operands of conversions.
SUBNORMAL_RESULT, NEAR, TIE, END, CANCELLATION, SUBNORMAL_OPERAND, FAMILIES = 2, 3, 4, 5, 6, 7, 8

#: The number of operands that are tried for a row, and the number of rows that are tried at once.
CANDIDATES, ROWS_AT_ONCE = 16, 4096

#: The largest precision of results for which float64 represents boundaries, and the distances of results from them.
MOST_PRECISION = 50

#: The exact result of an operation. TestFloat calls a conversion "to".
EXACT_RESULT: dict[str, Callable[..., Any]] = {
    **{"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "sqrt": np.sqrt},
    **{"fma": lambda a, b, c: a * b + c, "round": lambda x: x, "to": lambda x: x},
}

#: The last operand of an operation, from an exact result and the other operands.
LAST_OPERAND: dict[str, Callable[..., Any]] = {
    **{"add": lambda t, a: t - a, "subtract": lambda t, a: a - t, "multiply": lambda t, a: t / a},
    **{"divide": lambda t, a: a / t, "sqrt": lambda t: t * t, "fma": lambda t, a, b: t - a * b},
    **{"round": lambda t: t, "to": lambda t: t},
}

#: Operations that only round an operand; and operations that return integers in the format of the operand.
CONVERSIONS = frozenset(("round", "to"))
TO_INTEGERS = frozenset(("roundToInt", "rint", "floor", "ceil", "trunc"))


#: The most draws of operands, in which each draw replaces those without a result; and of a single operand, in which
#: each draw also replaces repeated ones.
DRAWS, DRAWS_OF_ONE = 16, 4

#: All numbers of a format are listed if it has at most this many bits.
MOST_BITS = 20

#: Special operands, by their number (IEEE 754-2019, 6.1 to 6.3 and 7.2): infinities that cancel, 0 * inf, 0 / 0,
#: inf / inf, zeros with both signs, exact cancellation, overflows beside an infinity, and NaN at each place.
SPECIAL = {
    2: "inf inf, inf -inf, -inf inf, inf 0, 0 inf, -inf 0, 0 -inf, 0 0, 0 -0, -0 0, -0 -0, 1 1, 1 -1, 1 0, 1 -0, -1 0, "
    "0 1, -0 1, inf 1, 1 inf, 1 -inf, nan 1, 1 nan, nan inf, inf nan, nan 0, 0 nan, nan nan",
    3: "inf 0 nan, 0 inf nan, inf 0 1, 0 inf 1, -inf 0 inf, 0 -inf -inf, inf 1 -inf, 1 -inf inf, inf inf -inf, "
    "inf 1 inf, 1 inf 1, 1 1 -inf, max max -inf, max -max inf, 1 1 -1, -1 1 1, 0 1 -0, 0 0 -0, -0 1 -0, -0 0 0, "
    "nan 1 1, 1 nan 1, 1 1 nan, nan inf 0, 0 nan inf, inf 1 nan, nan nan nan",
}


def _none_lacks_result(operands: list[NDArray]) -> NDArray[np.bool_]:
    """Return False for each row: all of them have results."""
    return np.zeros(len(operands[0]), np.bool_)


class Operands(NamedTuple):
    """The operands of the cases of an operation; a seed determines them."""

    case: Case
    terms: int
    cases: int
    seed: int
    addend: bool = True  # False if all sums start from +0

    @property
    def _name(self) -> str:
        """The operation, by simfloat's name if it has one."""
        signature = self.case.signature
        name = signature.operation if signature else self.case.operation
        return SIMFLOAT_NAMES.get(name, name)

    def choose(self, lacks_result: Callable[[list[NDArray]], NDArray[np.bool_]] = _none_lacks_result) -> list[NDArray]:
        """Return the operands of all cases, with NaN among them. The first cases of a sum are special ones."""
        operands = self._choose(lacks_result)
        repeated = (
            _are_repeated(operands[0], self.case.kinds[0]) if len(operands) == 1 else np.zeros(self.cases, np.bool_)
        )
        operands = with_nan(operands, self.case, repeated, lacks_result, self.addend)
        if self.case.operation == DOT:
            self._insert_special_sums(operands, lacks_result)
        return operands

    def _insert_special_sums(
        self, operands: list[NDArray], lacks_result: Callable[[list[NDArray]], NDArray[np.bool_]]
    ) -> None:
        """Replace the first cases by special sums that have results, at most half of all cases."""
        case = self.case
        assert case.accumulator is not None
        kinds = [kind for kind in case.kinds[:-1] if isinstance(kind, sf.Format)]
        has_addend = self.addend and case.accumulator.takes_initial
        special = special_sums(kinds, self.terms, case.accumulator.chunk, case.block, has_addend)
        has_result = ~lacks_result(special)
        for operand, rows in zip(operands, special, strict=True):
            chosen = rows[has_result][: (self.cases + 1) // 2]
            operand[: len(chosen)] = chosen

    def _choose(self, lacks_result: Callable[[list[NDArray]], NDArray[np.bool_]]) -> list[NDArray]:
        """Return the operands of all cases.

        Operands without a result are replaced by those of later draws, or by those of other rows. A single operand is
        not repeated while the format has another number.
        """
        operands = self.draw(0)
        is_single = len(operands) == 1

        def are_unwanted(chosen: list[NDArray[Any]]) -> NDArray[np.bool_]:
            lacking = lacks_result(chosen)
            return lacking | _are_repeated(chosen[0], self.case.kinds[0]) if is_single else lacking

        for draw in range(1, DRAWS_OF_ONE if is_single else DRAWS):
            rows = are_unwanted(operands)
            if not rows.any():
                return operands
            for operand, other in zip(operands, self.draw(draw), strict=True):
                operand[rows] = other[rows]
        if is_single:
            places = np.flatnonzero(are_unwanted(operands))
            numbers = self._new_numbers(np.delete(operands[0], places), places.size)
            numbers = numbers[~lacks_result([numbers])]
            operands[0][places[: numbers.size]] = numbers[: places.size]
        rows = lacks_result(operands)
        if not rows.all():
            for operand in operands:
                operand[rows] = np.resize(operand[~rows], operand[rows].shape)
        return operands

    def _new_numbers(self, chosen: NDArray[Any], count: int) -> NDArray[Any]:
        """Return random numbers that are not among the chosen ones.

        They are all other numbers of a small format, and otherwise usually more than `count`.
        """
        kind, result = self.case.kinds
        bits = kind.bits if isinstance(kind, sf.Format) else 8 * kind.itemsize
        size = 2**bits if bits <= MOST_BITS else 8 * count
        words = random_words(Draw(self.seed, len(self.case.kinds) + 1, 0), 0, 3 * size).reshape(3, size)
        if bits <= MOST_BITS:
            codes = np.argsort(words[0], kind="stable").astype(np.uint64)
        else:
            codes = (words[0].astype(np.uint64) << np.uint64(32) | words[1]) >> np.uint64(64 - bits)
        if isinstance(kind, np.dtype):  # each number of bits is as frequent as the others
            codes = codes.astype(f"u{kind.itemsize}").view(kind) >> (words[2] % bits).astype(kind)
            numbers = codes.astype(object)
        elif self._name in CONVERSIONS and isinstance(result, sf.Format) and bits > MOST_BITS:
            # Near numbers of the result's format; a quarter near its largest, and a quarter near its smallest normal.
            of_rows, draws = np.arange(size) % 4, words.astype(np.int64)
            nearest, _ = _boundaries(result, kind, np.where(of_rows < 2, END, 0), 2 - of_rows, draws[:2])
            exponents = np.where(of_rows == 0, draws[1] % 5, -(draws[1] % 3)).astype(np.int32)
            distances = np.ldexp(draws[2] / 2.0**31 - 1.0, exponents)
            with np.errstate(over="ignore"):  # beyond the largest number of FP64
                numbers = as_numbers(nearest + distances * sf.ulp(nearest, result), kind)
        else:
            if kind.special == "fixed_symmetric":  # the lowest code is not a number
                codes = codes[codes != 2 ** (bits - 1)]
            numbers = sf.decode(codes, kind).astype(np.float64)
        both = np.concatenate([chosen, numbers])
        return both[chosen.size :][~_are_repeated(both, kind)[chosen.size :]]

    def draw(self, number: int) -> list[NDArray[Any]]:
        """Return the operands of a draw: vectors, or matrices with a row for each case (factors and scales)."""
        operands = [self._operand(place, kind, number) for place, kind in enumerate(self.case.kinds[:-1])]
        if self.case.operation == DOT:
            self._relate_terms(operands, number)
        else:
            self._relate_operands(operands, number)
        # Some formats have no -0: codes change it to +0.
        return [
            sf.decode(sf.encode(x, kind), kind).astype(np.float64) if isinstance(kind, sf.Format) else x
            for x, kind in zip(operands, self.case.kinds, strict=False)
        ]

    def _operand(self, place: int, kind: Kind, draw: int) -> NDArray[Any]:
        """Return random numbers with edge cases: half of all numbers, or in a sixteenth of the rows of a sum."""
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
            edges = edges[~np.isinf(edges)] if is_scale else edges  # a scale is finite or NaN
            codes &= np.uint64(2**kind.bits - 1)
            if kind.special == "fixed_symmetric":  # the lowest code is not a number
                codes[codes == 2 ** (kind.bits - 1)] = 0
            numbers = sf.decode(codes, kind).astype(np.float64)
            if self.case.operation == DOT:  # random codes would give sums that are infinite or NaN
                # The exponents of factors differ more in every fifth row. In every eighth row, scales that are powers
                # of two have all exponents, and often those at the ends, so that sums of exponents leave the range.
                rows = np.arange(size) // columns
                reach = np.where(is_factor & (rows % 5 == 4), 12, 6)
                reach[(rows % 8 == 3) & (is_scale and not kind.has_zero)] = 3 << kind.exponent_bits >> 2
                exponents = (words[1] % (2 * reach)).astype(np.int64) - reach
                numbers = with_exponents(random_significands(words[0], words[3]), exponents, kind)
        rarity = 16 * columns if is_factor or is_scale else 2
        at = words[2] % np.uint32(rarity * edges.size) < edges.size
        if draw > 0 and len(self.case.kinds) == 2:  # numbers in place of repeated ones
            at[:] = False
        numbers[at] = edges[words[3][at] % np.uint32(edges.size)]
        if is_scale and isinstance(kind, sf.Format) and not kind.has_zero:  # powers of two, with rare NaN
            numbers[np.isfinite(numbers) & at] = 1.0
        return numbers.reshape(self.cases, columns) if is_factor or is_scale else numbers

    def _relate_terms(self, operands: list[NDArray[Any]], draw: int) -> None:
        """Let the terms of a sum cancel, cut bits of each other, or carry far.

        In every second row the first product and another one cancel; in half of these rows, they are far larger than
        the other products. A third of the sums start from zero. Another third start from a number with all significant
        bits of its format. Its exponent is near the exponent of the largest product, or of the products that do not
        cancel. The terms of every eleventh row are near the smallest normal number of the sums, or of b. In another
        eleventh all terms have one sign, one exponent and the largest significands, so their sum carries as far as
        possible.
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
        least, most, most_a, most_b = (int(exponents_of(x)) for x in limits)
        top = min(most_a + most_b, most, LARGEST_EXPONENT)
        gap = words[0] % GAPS
        related = np.where(are_tiny, least - 2, top - gap)[:, np.newaxis] - (rows[:, np.newaxis] + columns) % 4
        wanted = related - exponents_of(a)
        moved = with_exponents(b, wanted, of_b)
        b[are_far | are_tiny] = moved[are_far | are_tiny]
        # Products that cannot be as small as the sums are zero in half of the rows, so that sums are subnormal.
        if of_b.has_zero:
            b[(are_tiny & (rows % 2 == 1))[:, np.newaxis] & (wanted < exponents_of(of_b.smallest_subnormal))] = 0.0
        a[are_far, 0] = with_exponents(a[are_far, 0], np.full(are_far.sum(), min(top // 2, most_a)), of_a)
        b[are_far, 0] = with_exponents(b[are_far, 0], top - exponents_of(a[are_far, 0]), of_b)
        for first, column in ((0, -1), (2, -1), (4, min(1, self.terms - 1)), (6, -1)):
            # The lowest number of two's complement has no opposite.
            a[first::8, column] = as_numbers(-a[first::8, 0], of_a)
            b[first::8, column] = b[first::8, 0]
        for x, kind in ((a, of_a), (b, of_b)):
            exponents = np.minimum(words[3, are_full] % 4, int(exponents_of(kind.max)) - 1)[:, np.newaxis]
            x[are_full] = with_exponents(np.full(x[are_full].shape, 2.0 - kind.eps), exponents, kind)
        with np.errstate(invalid="ignore", over="ignore"):
            products = np.abs(a * b)
            for scale in scales:
                products *= np.repeat(scale, self.case.block, axis=1)[:, : self.terms]
        largest = exponents_of(np.max(products, axis=1, where=np.isfinite(products), initial=0.0))
        # Half of the exponents differ by at most 4, the others by more than the significant bits.
        reach = np.where(words[1] & 1, 4, of_c.precision + 2)
        near = largest - np.where(are_far, gap, 0) + words[2] % (2 * reach + 1) - reach
        exponents = np.where(are_tiny, least - words[2] % of_c.precision, near)
        starts = with_exponents(random_significands(words[0], words[3]), exponents, of_c)
        c[...] = np.select([(rows % 3 == 1) | are_tiny, rows % 3 == 0], [starts, c], 0.0 if of_c.has_zero else 1.0)
        c[are_full] = np.abs(c[are_full])
        if self.case.wraps:
            # In every second row, the total is about as far beyond an end of the range as inside. Some totals are the
            # end itself, and some are the next number.
            totals = (a * b).sum(axis=1)
            parts = np.where(np.isin(rows % 8, (1, 3)), 1.0, 2.0 * words[2] / 2.0**32)
            steps = np.where(rows % 8 == 3, np.sign(totals) * of_c.smallest_subnormal, 0.0)
            starts = np.where(totals > 0, of_c.max, of_c.min) - totals * parts + steps
            c[rows % 2 == 1] = as_numbers(starts, of_c)[rows % 2 == 1]
        if not self.addend or (self.case.accumulator is not None and not self.case.accumulator.takes_initial):
            c[...] = 0.0

    def _relate_operands(self, operands: list[NDArray[Any]], draw: int) -> None:
        """Replace operands by ones that test the rounding. The family of a row is its number modulo `FAMILIES`.

        * 0 to 2: in three quarters of these rows, the operand of a conversion is within two spacings of a number of the
          result; in rows 2, this number is subnormal.
        * `NEAR`: the exact result is near a number halfway between two neighbours, or near a neighbour.
        * `TIE`: it is a tie, if a candidate has one.
        * `END`: it is near the overflow threshold or near the smallest numbers.
        * `CANCELLATION`: the operands cancel, or the result is exact or nearly exact.
        * `SUBNORMAL_OPERAND`: an operand is subnormal, or zero in a format without subnormal numbers.

        The operands of comparisons and remainders have other relations, and functions have only the last family.
        """
        name, rows = self._name, np.arange(self.cases)
        if draw == 0 and name not in CONVERSIONS:
            self._insert_special_operands(operands)
        if name in COMPARISONS or name == "remainder":
            self._relate_pairs(name, operands)
            return
        if name in LAST_OPERAND or name in TO_INTEGERS:
            family, is_other = rows % FAMILIES, ((rows // FAMILIES % 4 > 0) | (draw > 0)) & (name in CONVERSIONS)
            has_boundary = (family >= NEAR) & (family <= CANCELLATION) | (family < NEAR) & is_other
            for block in np.array_split(np.flatnonzero(has_boundary), -(-self.cases // ROWS_AT_ONCE)):
                for operand, values in zip(operands, self._solve(name, block, draw), strict=True):
                    operand[block] = values
        for place, kind in enumerate(self.case.kinds[:-1]):
            if isinstance(kind, sf.Format) and kind.has_zero and not kind.is_fixed and kind.mantissa_bits:
                small = rows[(rows % FAMILIES == SUBNORMAL_OPERAND) & (rows // FAMILIES % len(operands) == place)]
                parts = np.fmod(np.abs(np.nan_to_num(operands[place][small], posinf=0.0)), 1.0)
                multiples = np.maximum(np.round(np.ldexp(parts, kind.mantissa_bits)), 1.0) * kind.subnormals
                operands[place][small] = as_numbers(multiples * kind.smallest_subnormal, kind)
        of_first = self.case.kinds[0]
        if draw == 0 and name in CONVERSIONS and isinstance(of_first, sf.Format):  # all edge cases in turn
            edges, at = _edges(of_first), rows[rows % (2 * FAMILIES) == 2 * FAMILIES - 1]
            operands[0][at] = edges[at // (2 * FAMILIES) % edges.size]

    def _insert_special_operands(self, operands: list[NDArray[Any]]) -> None:
        """Replace the first random rows by special operands; a single operand of a format gets its edge cases."""
        kinds = [kind for kind in self.case.kinds[:-1] if isinstance(kind, sf.Format)]
        if len(kinds) == 1:
            edges = _edges(kinds[0]).tolist()
            special = [[x] for x in [*edges, *(-x for x in edges if x == np.inf and kinds[0].signed)]]
        else:
            texts = [row.split() for row in SPECIAL.get(len(kinds), "").split(", ")]
            rows = [[special_number(*pair) for pair in zip(row, kinds, strict=False)] for row in texts]
            special = [[x for x in row if x is not None] for row in rows if None not in row]
        places = np.flatnonzero(np.arange(self.cases) % FAMILIES < NEAR)
        for place, row in zip(places, special, strict=False):
            for operand, x in zip(operands, row, strict=False):
                operand[place] = x

    def _relate_pairs(self, name: str, operands: list[NDArray[Any]]) -> None:
        """Let two operands be equal or neighbours; for a remainder, let their quotient be near n + 1/2."""
        first, last = operands
        kind = self.case.kinds[0]
        assert isinstance(kind, sf.Format)
        is_near = np.arange(self.cases) % FAMILIES >= NEAR
        if name == "remainder":
            rows = np.flatnonzero(is_near & np.isfinite(last))
            with np.errstate(over="ignore"):
                dividends = as_numbers(last[rows] * (rows // FAMILIES % 16 + 0.5), kind)
            first[rows] = neighbours(dividends, rows % 3 - 1, kind)
        else:
            rows = np.flatnonzero(is_near & np.isfinite(first))
            last[rows] = neighbours(first[rows], rows % 3 - 1, kind)

    def _solve(self, name: str, rows: NDArray[np.int64], draw: int) -> list[NDArray[Any]]:
        """Return operands for rows: for each row, the candidate with the result nearest to a boundary."""
        of_last, result = self.case.kinds[-2:]
        to_integers = isinstance(result, np.dtype) or name in TO_INTEGERS
        operation = "to" if to_integers else name
        words = _words(Draw(self.seed, len(self.case.kinds), draw), rows, 6).astype(np.int64)
        family, group = rows % FAMILIES, rows // FAMILIES
        draw_boundaries = _integer_boundaries if to_integers else _boundaries
        boundaries = draw_boundaries(result, of_last, family, group, words[:2, :, 0])
        numbers, offsets = (x[:, np.newaxis] for x in boundaries)
        family, group = family[:, np.newaxis], group[:, np.newaxis]
        precision = result.precision if isinstance(result, sf.Format) else 24
        with np.errstate(all="ignore"):
            *others, last = candidates = self._candidates(operation, numbers, offsets, family, precision, words)
            results = EXACT_RESULT[operation](*others, last.astype(np.float64))
            distances = np.abs(results - (numbers + offsets))
        # An exact tie is the best candidate for a tie, and no candidate for the other families.
        distances = np.where((distances == 0) & (family != TIE) | np.isnan(distances), np.inf, distances)
        # The nearest candidate is not needed if all are as good, or if float64 cannot represent the boundary.
        is_free = (family == CANCELLATION) | (family < NEAR) | ((family == TIE) & (operation == "multiply"))
        is_free |= precision > MOST_PRECISION
        best = np.where(is_free, group % CANDIDATES, np.argmin(distances, axis=1)[:, np.newaxis])
        return [np.take_along_axis(x, best, axis=1)[:, 0] for x in candidates]

    def _candidates(
        self,
        operation: str,
        numbers: NDArray[np.float64],
        offsets: NDArray[np.float64],
        family: NDArray[np.int64],
        precision: int,
        words: NDArray[np.int64],
    ) -> list[NDArray[Any]]:
        """Return candidates for all operands, so that exact results are near the boundaries `numbers + offsets`."""
        *of_others, of_last = self.case.kinds[:-1]
        others = _other_operands(operation, numbers + offsets, of_others, precision, words)
        last = LAST_OPERAND[operation](numbers + offsets, *others) + np.zeros((1, CANDIDATES))
        # A quarter of the last operands may be moved to a neighbour, so that results are near a boundary, not at it.
        steps = np.where(np.arange(CANDIDATES) % 4 == 0, words[4] % 3 - 1, 0)
        # In every second candidate of a sum, one term is the number, and the other one is the offset.
        if operation in ("add", "subtract"):
            last[:, ::2] = offsets if operation == "add" else -offsets
            others[0][:, ::2] = as_numbers(numbers, of_others[0])
        if operation == "fma":
            b = as_numbers(offsets / others[0], of_others[1])
            others[1][:, ::2] = neighbours(b, steps, of_others[1])[:, ::2]
            last[:, ::2] = numbers
        if operation in ("add", "subtract", "fma"):
            first = others[0] * others[1] if operation == "fma" else others[0]
            last = np.where(family == CANCELLATION, first if operation == "subtract" else -first, last)
        if isinstance(of_last, np.dtype):  # float64 cannot represent all integers of 64 bits
            last = as_numbers(numbers, of_last) + as_numbers(offsets, of_last) + np.zeros((1, CANDIDATES), int)
        else:
            last = as_numbers(last, of_last)
        last = neighbours(last, steps, of_last)
        if operation == "multiply":
            self._tie_products(others, last, family[:, 0] == TIE, precision, words)
        return [*others, last]

    def _tie_products(
        self,
        others: list[NDArray[Any]],
        last: NDArray[Any],
        rows: NDArray[np.bool_],
        precision: int,
        words: NDArray[np.int64],
    ) -> None:
        """Replace factors in rows by odd integers times powers of two, so that many products are ties.

        A product is a tie if it has one significant bit more than the result. The factors have j and k bits, together
        one more than the result. So their product, which has j + k bits or one less, is a tie or exact.
        """
        of_a, of_b = self.case.kinds[:2]
        assert isinstance(of_a, sf.Format) and isinstance(of_b, sf.Format)
        bits = np.clip(1 + words[3] % precision, precision + 1 - of_b.precision, of_a.precision)
        for x, width, kind, word in ((others[0], bits, of_a, 0), (last, precision + 1 - bits, of_b, 2)):
            top = np.int64(1) << np.clip(width - 1, 0, 52)
            odd = words[word] % top | top | 1
            x[rows] = with_exponents(odd.astype(np.float64), exponents_of(x), kind)[rows]


def _words(key: Draw, rows: NDArray[np.int64], count: int) -> NDArray[np.uint32]:
    """Return random words (count, rows, CANDIDATES). The words of a row depend only on its number."""
    size = CANDIDATES * count
    if not rows.size:
        return np.zeros((count, 0, CANDIDATES), np.uint32)
    first, last = int(rows[0]), int(rows[-1]) + 1
    words = random_words(key, first * size, last * size).reshape(-1, count, CANDIDATES)
    return np.moveaxis(words[rows - first], 1, 0)


def _boundaries(
    format: Kind, of_last: Kind, family: NDArray, group: NDArray, words: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return numbers of a format, and the offsets of boundaries from them.

    An offset is half a spacing away from zero, or 0. In the families below `NEAR` it is up to two spacings.
    """
    assert isinstance(format, sf.Format)
    if isinstance(of_last, np.dtype):  # boundaries near integers of all sizes
        integers = _random_integers(of_last, words)
        numbers = sf.round(integers, format, sf.toward_zero.saturating()).astype(np.float64)
    else:
        codes = words[0].astype(np.uint64) << np.uint64(32) | words[1].astype(np.uint64)
        codes &= np.uint64(2**format.bits - 1)
        if format.special == "fixed_symmetric":  # the lowest code is not a number
            codes[codes == 2 ** (format.bits - 1)] = 0
        numbers = sf.decode(codes, format).astype(np.float64)
    numbers[~np.isfinite(numbers)] = 1.0
    signs = np.where(np.signbit(numbers), -1.0, 1.0)
    ends = [0.0 if format.has_zero else format.smallest_subnormal, format.smallest_normal, format.max]
    if format.mantissa_bits:
        multiples = (words[1] % (1 << min(format.mantissa_bits, 30))).astype(np.float64)
        numbers = np.where(family == SUBNORMAL_RESULT, signs * multiples * format.smallest_subnormal, numbers)
    is_end = family == END
    numbers[is_end] = (signs * np.array(ends)[group % 3])[is_end]
    offsets = signs * sf.ulp(numbers, format).astype(np.float64) / 2
    # A result just below the smallest normal number may be tiny only before it is rounded: a test of `tininess`.
    is_number = is_end & (group % 3 == 1) | ((family == NEAR) & (group % 4 == 3)) | (family == CANCELLATION)
    offsets = np.where(is_number & (numbers != 0), 0.0, offsets)
    return numbers, np.where(family < NEAR, offsets * (words[0] % 17 - 8) / 2, offsets)


def _integer_boundaries(
    kind: Kind, of_last: Kind, family: NDArray, group: NDArray, words: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return integers and the offsets of boundaries from them: 1/2 or 0."""
    dtype = kind if isinstance(kind, np.dtype) else np.dtype(np.int16)
    limits = np.iinfo(dtype)
    ends = np.array([0.0, -1.0, limits.max, limits.min - 1.0])
    integers = np.where(family == END, ends[group % 4], _random_integers(dtype, words))
    return integers, np.where((family == CANCELLATION) | ((family == NEAR) & (group % 4 == 3)), 0.0, 0.5)


def _random_integers(dtype: np.dtype, words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return random integers of a dtype; each number of bits is as frequent as the others."""
    limits = np.iinfo(dtype)
    sizes = np.floor(np.ldexp(1 + words[1] / 2.0**32, (words[0] % (limits.bits - 1)).astype(np.int32)))
    return np.where((words[1] % 2 == 1) & (limits.min < 0), -sizes, sizes)


def _other_operands(
    operation: str,
    boundary: NDArray[np.float64],
    kinds: list[Kind],
    precision: int,
    words: NDArray[np.int64],
) -> list[NDArray[np.float64]]:
    """Return candidates for all operands except the last one, with which the exact result can be near the boundary."""
    if not kinds:
        return []
    # In half of the candidates, significands have few bits, so that the last operand is often exact.
    significands = random_significands(words[0], words[1])
    powers = np.ldexp(1.0, (words[2] % precision).astype(np.int32))
    significands = np.where(words[3] % 2 == 0, significands, np.round(significands * powers) / powers)
    exponents, of_a = exponents_of(boundary), kinds[0]
    assert isinstance(of_a, sf.Format)
    if operation in ("add", "subtract"):
        return [with_exponents(significands, exponents + 2 - words[5] % (precision + 5), of_a)]
    a = with_exponents(significands, exponents // 2 + words[5] % 5 - 2, of_a)
    if operation != "fma":
        return [a]
    of_b = kinds[1]
    assert isinstance(of_b, sf.Format)
    of_product = exponents + 1 - words[5] % (precision + 4)
    return [a, with_exponents(random_significands(words[1], words[2]), of_product - exponents_of(a), of_b)]


def _are_repeated(x: NDArray[Any], kind: Kind) -> NDArray[np.bool_]:
    """Return True for numbers that are equal to an earlier one. NaN equals NaN, and -0 differs from +0."""
    codes = sf.encode(x, kind) if isinstance(kind, sf.Format) else x.astype(kind)
    repeated = np.ones(x.size, np.bool_)
    repeated[np.unique(codes, return_index=True)[1]] = False
    return repeated


def _edges(format: sf.Format) -> NDArray[np.float64]:
    """Return zero, one, the numbers at the ends of a format, and its special values."""
    edges = [0.0 if format.has_zero else 1.0, 1.0, format.smallest_subnormal, format.smallest_normal, format.max]
    if format.signed:
        edges += [-x for x in edges]
    edges += [np.inf] if format.has_infinity else []
    edges += [np.nan] if format.has_nan else []
    return np.unique(sf.round(edges, format)).astype(np.float64) if format.is_fixed else np.array(edges)
