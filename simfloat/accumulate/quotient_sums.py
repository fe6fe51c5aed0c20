"""Sums of quotients, for many elements at once: unevaluated sums of three float64, and a bound on what these lack.

Additions and products without error are Knuth's and Dekker's. Where a float64 number lies between the bounds, so that
it is not certain how a total is rounded, an element is left to fractions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Parts of a total, and quotients that are taken of a numerator and then of its remainders.
PARTS_OF_TOTAL = 3

#: The exponent up to which numerators and divisors have quotients and remainders that lie in float64's range: a last
#: remainder has 324 bits less than its numerator, and is divided once more.
FARTHEST = 340

Numbers = NDArray[np.float64]


class QuotientSums:
    """The sums of quotients in an array of elements."""

    __slots__ = ("_are_known", "_lost", "_parts")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._parts = np.zeros((PARTS_OF_TOTAL, *shape))
        self._lost = np.zeros(shape)  # at least what all parts together lack
        self._are_known = np.ones(shape, bool)

    def add(self, numerators: Numbers, divisors: Numbers | float) -> None:
        """Add a quotient to each sum."""
        self._are_known &= (numerators == 0) | _has_quotients(numerators)
        self._are_known &= _has_quotients(divisors)
        # Long division with digits of 53 bits: each quotient's remainder is exact, and is divided in its turn.
        remainder = numerators
        for _ in range(PARTS_OF_TOTAL):
            quotients = remainder / divisors
            self._add_exactly(quotients)
            product, error = _product(quotients, divisors)
            remainder = (remainder - product) - error  # without error: a remainder is a float64 number
        self._lost += np.abs(remainder / divisors)

    def add_product_quotients(self, numerators: Numbers, divisors: Numbers, divisor: float) -> None:
        """Add quotients whose divisors are each multiplied by `divisor` first."""
        product, error = _product(divisors, divisor)
        self._are_known &= error == 0
        self.add(numerators, product)

    def totals(self, to_nearest: bool) -> tuple[Numbers, NDArray[np.bool_]]:
        """The sums rounded to nearest even, or to odd; and where these are certain."""
        first, second, third = self._parts
        # Parts overlap after many additions. Two passes of sums without
        # error bring the leading bits into the first one.
        for _ in range(2):
            second, third = _sum(second, third)
            first, second = _sum(first, second)
        second, third = _sum(second, third)
        lost = 2 * self._lost + np.abs(third)
        is_exact = (lost == 0) & (second == 0)
        are_certain = self._are_known & (first + second == first)
        if to_nearest:
            # What is lost moves the total to no other side of the middle of two numbers.
            are_certain &= (lost <= np.abs(second) * 2.0**-22) & (first + second * (1 + 2.0**-20) == first) | (
                lost == 0
            )
            return first + 0.0, are_certain
        are_certain &= is_exact | (lost < np.abs(second) * 0.25)
        is_odd = first.view(np.int64) & 1 == 1
        beside = np.nextafter(first, np.copysign(np.inf, second))
        return np.where(is_exact | is_odd, first, beside) + 0.0, are_certain

    def _add_exactly(self, rest: Numbers) -> None:
        # Each part takes what it can and hands on what it lacks; below the last one nothing is kept but a bound.
        for part in self._parts:
            part[...], rest = _sum(part, rest)
        self._lost += np.abs(rest)


def _has_quotients(x: Numbers | float) -> NDArray[np.bool_]:
    return (np.abs(x) >= 2.0**-FARTHEST) & (np.abs(x) <= 2.0**FARTHEST)


def _sum(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """The rounded sum, and what it lacks."""
    # Knuth's, six operations: it asks nothing of the order of magnitudes, which Dekker's three do.
    total = x + y
    of_y = total - x
    return total, (x - (total - of_y)) + (y - of_y)


def _product(x: Numbers, y: Numbers | float) -> tuple[Numbers, Numbers]:
    """The rounded product, and what it lacks."""
    product = x * y
    (upper, lower), (high, low) = _halves(x), _halves(y)
    return product, lower * low - (((product - upper * high) - lower * high) - upper * low)


def _halves(x: Numbers | float) -> tuple[Numbers, Numbers]:
    """Two numbers of 26 bits whose sum is x."""
    # Veltkamp's splitting. Up to 2^FARTHEST the product does not overflow; results for larger numbers are not used.
    scaled = (2.0**27 + 1) * np.asarray(x)
    upper = scaled - (scaled - x)
    return upper, x - upper
