"""Totals of chunks of products before they are rounded, by NumPy alone: for roundings whose draws the user gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate._fused import Fused

#: The exponent of zeros that take no part: it lies below that of every product.
NO_TERM_EXPONENT = -900

#: The factors of a product; both broadcast to the sums.
Factors = tuple[NDArray, NDArray]


def chunk_total(fused: Fused, factors: Sequence[Factors], so_far: NDArray, least: tuple[int, int]) -> NDArray:
    """The exact totals of a chunk of products and the sums so far; `least` are emin of both factors' formats.

    Infinities and NaN are those of float64's own sums.
    """
    with np.errstate(all="ignore"):
        missing = [np.zeros_like(so_far)] * (fused.terms - len(factors))
        products = [np.broadcast_to(x * y, so_far.shape) for x, y in factors]
        exponents = [_exponent(x, least[0]) + _exponent(y, least[1]) for x, y in factors]
        terms, nothing = np.stack([so_far, *products, *missing]), NO_TERM_EXPONENT
        if fused.zero_exponent is not None:
            nothing = int(fused.zero_exponent)
        powers = np.stack(
            [
                np.where(term != 0.0, exponent, nothing)
                for term, exponent in zip(
                    terms, [_exponent(so_far, fused.output.emin), *exponents, *missing], strict=True
                )
            ]
        )
        # In units of the last bit that is kept a term is below 2^(F + 2), F being at most 40, and a chunk
        # has at most 1024 of them: float64 adds such integers without error, in whatever order.
        unit = np.ldexp(np.ones_like(so_far), (powers.max(axis=0) - int(fused.fraction_bits)).astype(np.int32))
        total, plain = reduce(np.add, _align_terms(terms, unit, fused.align.steps)) * unit, reduce(np.add, terms)
    # With an infinite operand the unit is no number; the plain sum then is what IEEE 754 says, an infinity or NaN.
    return np.where(np.isfinite(plain), total, plain)


def _exponent(x: NDArray, least: int) -> NDArray:
    """The exponents of numbers that are not zero."""
    return np.maximum(np.frexp(x)[1] - 1, least)


def _align_terms(terms: NDArray, unit: NDArray, steps: str) -> NDArray:
    """Terms in units as integers."""
    # A power of two: the quotient is exact, unless it is so small that it is less than any unit.
    units = terms / unit
    if steps == "nearest":
        return np.rint(units)
    cut = np.trunc(units)
    if steps == "truncated":
        return cut
    # Units far below one may be zero.
    is_cut = (cut != units) | ((units == 0.0) & (terms != 0.0))
    return np.where(is_cut & (cut % 2 == 0), cut + np.sign(terms), cut)
