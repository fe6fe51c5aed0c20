"""Probes of a function: sums of chosen products, remembered and counted."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.formats import Format, nearest_even
from simfloat.formats.definition import round_value

#: Rows of the first batch of sums, and of later ones at most.
FIRST_ROWS, MOST_ROWS = 32, 512

#: Sums of more products are remembered compressed.
SHORT = 64

#: How often a function is called at most, unless the user says otherwise.
MOST_CALLS = 100_000


class ContradictoryProbes(Exception):
    """The results of probes are those of no order of additions."""


class OutOfCalls(Exception):
    """The function was called as often as it may be."""


class Sums(NamedTuple):
    """Operands, (rows, terms) each, and what the function gives for each row."""

    a: NDArray
    b: NDArray
    results: NDArray[np.float64]


class BlackBox:
    """A function of two vectors of length `terms`, numbers of two formats, that returns the sum of their products.

    It remembers all that it was asked, and may be called so many times.
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], terms: int, inputs: tuple[Format, Format], calls: int = MOST_CALLS
    ) -> None:
        self.function, self.terms, self.inputs, self.calls = function, terms, inputs, calls
        self._factors: dict[float, tuple[float, float] | None] = {}
        self._dtypes = tuple(np.dtype(np.float32 if format.fits_float32 else np.float64) for format in inputs)
        # Most probes of long sums are ones but for two places: compressed, millions of numbers take little.
        self._answers: dict[bytes, float] = {}

    def __call__(self, a: NDArray, b: NDArray) -> float:
        """What the function returned for two vectors, when it was asked first."""
        x, y = (np.asarray(v, dtype) for v, dtype in zip((a, b), self._dtypes, strict=True))
        operands = x.tobytes() + y.tobytes()
        if self.terms > SHORT:
            operands = zlib.compress(operands, 1)
        if operands not in self._answers:
            self._answers[operands] = self.call_function(x, y)
        return self._answers[operands]

    @property
    def sum_count(self) -> int:
        """How many sums it was asked for."""
        return len(self._answers)

    def sums(self) -> Iterator[Sums]:
        """All that it was asked for, the last first, in batches that grow."""
        operands = tuple(reversed(self._answers))
        start = 0
        while start < len(operands):
            batch = operands[start : 2 * start + FIRST_ROWS][:MOST_ROWS]
            a, b = _unpack_rows(batch, self.terms, self._dtypes)
            yield Sums(a, b, np.array([self._answers[row] for row in batch]))
            start += len(batch)

    def call_function(self, a: NDArray, b: NDArray) -> float:
        """What the function returns for two vectors.

        Raises ValueError if that is no number, or if it raises, and OutOfCalls if it may not be called any more.
        """
        if self.calls == 0:
            raise OutOfCalls
        self.calls -= 1
        x, y = (np.array(v, dtype) for v, dtype in zip((a, b), self._dtypes, strict=True))
        try:
            with np.errstate(all="ignore"):
                result = self.function(x, y)
        except Exception as error:
            types = " and ".join(dict.fromkeys(map(str, self._dtypes)))
            raise ValueError(
                f"f must take two {types} vectors of length {self.terms}; it raised {type(error).__name__}: {error}"
            ) from error
        number = as_operand(result, "f(a, b)")
        if number.ndim:
            raise ValueError(f"f must return one number, as result[0, 0] or result.item(); got shape {number.shape}.")
        return float(number)

    def products(self, values: Mapping[int, float]) -> float:
        """The sum of these products at their places, and of zeros elsewhere."""
        a, b = np.zeros(self.terms), np.zeros(self.terms)
        for place, value in values.items():
            factors = self.factors(value)
            if factors is None:
                raise ContradictoryProbes(f"{value!r} is no product of numbers of the operands' formats")
            a[place], b[place] = factors
        return self(a, b)

    def factors(self, value: float) -> tuple[float, float] | None:
        """Two numbers of the operands' formats whose product is `value`, b a power of two near 1; None if none are."""
        if value not in self._factors:
            self._factors[value] = self._find_factors(value)
        return self._factors[value]

    def _find_factors(self, value: float) -> tuple[float, float] | None:
        first, second = self.inputs
        exponent = math.frexp(value)[1] - 1
        for least in (first.emin, first.emin - first.mantissa_bits):
            shift = exponent - min(max(exponent, least), first.emax)
            a, b = math.ldexp(value, -shift), 2.0**shift
            if _is_number(a, first) and _is_number(b, second):
                return a, b
        return None


@lru_cache(maxsize=8)
def _unpack_rows(rows: tuple[bytes, ...], terms: int, dtypes: tuple[np.dtype, np.dtype]) -> tuple[NDArray, NDArray]:
    """Operands (rows, terms) from what is remembered of them; many candidates ask for the same."""
    raw = [zlib.decompress(row) for row in rows] if terms > SHORT else rows
    split = terms * dtypes[0].itemsize
    a, b = (b"".join(part) for part in ([row[:split] for row in raw], [row[split:] for row in raw]))
    return np.frombuffer(a, dtypes[0]).reshape(-1, terms), np.frombuffer(b, dtypes[1]).reshape(-1, terms)


def _is_number(x: float, format: Format) -> bool:
    return round_value(x, format, nearest_even) == x


def last(holds: Callable[[int], bool], start: int, stop: int) -> int:
    """The last n from start to stop for which a property holds that holds up to some n; start - 1 if it never does."""
    low, high = start - 1, stop
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


class ProductRange(NamedTuple):
    """The least and the largest power of two that a single product may be and be returned unchanged."""

    low: int
    high: int


def span_of(box: BlackBox) -> ProductRange:
    """The span of a function's sums. Raises ValueError if it does not return single products."""
    for place in range(box.terms):
        for a, b in ((1.0, 1.0), (2.0, 1.0), (1.0, -2.0)):
            x, y = np.zeros(box.terms), np.zeros(box.terms)
            x[place], y[place] = a, b
            result = box(x, y)
            if result != a * b:
                raise ValueError(
                    f"f must return the sum of the products of its vectors; for the single product {a} * {b} at place "
                    f"{place} it returned {result!r}. Pass a sum as lambda a, b: (a * b).sum()."
                )
    first, second = box.inputs

    def returns(exponent: int) -> bool:
        value = math.ldexp(1.0, exponent)
        return value > 0.0 and box.factors(value) is not None and box.products({0: value}) == value

    high = last(returns, 0, min(first.emax + second.emax, 1023))
    lowest = first.emin - first.mantissa_bits + second.emin - second.mantissa_bits
    low = -last(lambda down: returns(-down), 0, min(-lowest, 1074))
    return ProductRange(low, high)
